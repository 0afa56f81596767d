"""Logs that exist already, to a result; nothing of them need have been run by this project."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.allowed import profile_name, profile_of
from parity.checks.comparison import Comparison
from parity.checks.comparison import Leg as JudgedLeg
from parity.compare import compare
from parity.curves import read
from parity.curves.curve import LegCurves
from parity.result import LegResult, Result
from parity.suite import BoundsByMetric

__all__ = ["LogSource", "judge_logs"]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class LogSource:
    """A log that exists already, and how to read it.

    Attributes:
        path: the file.
        format: the reader; by content if None.
        keys: which key holds which metric.
        first_step: the number that this log gives to the first step.
    """

    path: Path
    format: str | None = None
    keys: Mapping[str, str] | None = None
    first_step: int = 0

    def read(self) -> LegCurves:
        """The curves, with steps counted from 0 if `first_step` is right.

        Raises:
            UsageError: the file cannot be read as a log.
        """
        return read(self.path, format=self.format, keys=self.keys or None).counted_from(self.first_step)


def judge_logs(
    sources: Mapping[str, LogSource],
    *,
    profile: str | None = None,
    bounds: BoundsByMetric | None = None,
    k: float = 8.0,
    steps: int | None = None,
    require: frozenset[str] = frozenset(),
    reproduce: str = "",
) -> Result:
    """Compare logs by role.

    Args:
        sources: by role; `baseline` and `candidate`, and perhaps `control`.
        profile: its name; by what the logs say of dtype and device if None.
        bounds: a person's bounds.
        k: how many times the noise floor is allowed.
        steps: how many steps each log must have, counted from the first.
        require: checks without which there is no pass.
        reproduce: the command line.

    Raises:
        UsageError: a file cannot be read as a log.
    """
    curves = {role: source.read() for role, source in sources.items()}
    name, reason = profile_name(profile, [one.environment for one in curves.values()])
    loss = curves["baseline"].curves.get("loss")
    first = int(loss.steps[0]) if loss is not None and loss.steps.size else 0
    names = _names(sources)
    legs = {role: JudgedLeg(names[role], one) for role, one in curves.items()}
    comparison = Comparison(
        baseline=legs["baseline"],
        candidate=legs["candidate"],
        control=legs.get("control"),
        profile=profile_of(name, bounds),
        expected_steps=None if steps is None else np.arange(first, first + steps, dtype=np.int64),
        required=require,
        k=k,
    )
    result = compare(comparison, reason)
    return Result(
        suite=" against ".join(shlex.quote(str(sources[role].path)) for role in ("candidate", "baseline")),
        steps=steps,
        verdict=result.verdict,
        summary=result.summary,
        reproduce=reproduce,
        legs=[
            LegResult(
                name=names[role],
                status="read",
                source=str(sources[role].path),
                format=one.format,
                notes=[note.text for note in one.notes],
                environment=dict(one.environment),
            )
            for role, one in curves.items()
        ],
        comparisons=[result],
    )


def _names(sources: Mapping[str, LogSource]) -> dict[str, str]:
    """What to call each leg: its file, else its folder, if that tells them apart; else its role."""
    by_file = {role: source.path.name.split(".")[0] for role, source in sources.items()}
    by_folder = {role: source.path.resolve().parent.name for role, source in sources.items()}
    for names in (by_file, by_folder):
        if len(set(names.values())) == len(names) and all(map(_NAME.fullmatch, names.values())):
            return names
    return {role: role for role in sources}
