"""Logs that exist already, to a result; nothing of them need have been run by this project."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from parity.allowed import choose_profile
from parity.checks.comparison import Comparison
from parity.checks.comparison import Leg as JudgedLeg
from parity.checks.defaults import DEFAULT_K
from parity.compare import compare
from parity.curves import Keys, read
from parity.curves.curve import LegCurves, Note
from parity.display.curves import curves as drawn
from parity.errors import UsageError
from parity.judged import Judged
from parity.result import LegResult, Result
from parity.suite import BoundsByMetric

__all__ = ["LogSource", "Role", "judge_logs"]

Role = Literal["baseline", "candidate", "control", "repeat", "perturbed", "reference"]


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class LogSource:
    """A log that exists already, and how to read it.

    Attributes:
        path: the file.
        format: the reader; by content if None.
        keys: which key holds which metric.
        first_step: the number that this log gives to the first step; None where nobody says.
        pattern: of RE2, for logs in no known format.
    """

    path: Path
    format: str | None = None
    keys: Keys | None = None
    first_step: int | None = None
    pattern: str | None = None

    def read(self) -> LegCurves:
        """The curves, with steps counted from 0 where `first_step` is given, else as the log does.

        Raises:
            UsageError: the file cannot be read as a log.
        """
        curves = read(self.path, format=self.format, keys=self.keys or None, pattern=self.pattern)
        return curves if self.first_step is None else curves.counted_from(self.first_step)


def judge_logs(
    sources: Sequence[tuple[Role, LogSource]],
    *,
    profile: str | None = None,
    bounds: BoundsByMetric | None = None,
    k: float = DEFAULT_K,
    steps: int | None = None,
    require: frozenset[str] = frozenset(),
    reproduce: str = "",
) -> Judged:
    """Compare logs by role.

    Args:
        sources: one in the role `baseline`, one `candidate`, at most one `reference`, and any number of the others.
        profile: its name; by what the logs say of dtype and device if None.
        bounds: a person's bounds.
        k: how many times the noise floor is allowed.
        steps: how many steps each log must have, counted from the first.
        require: checks without which there is no pass.
        reproduce: the command line.

    Raises:
        UsageError: a file cannot be read as a log.
    """
    names = _names(sources)
    curves = _aligned([source.read() for _, source in sources])
    for (role, source), one in zip(sources, curves, strict=True):
        moved = one.environment.get("perturbed")
        if role == "perturbed" and one.start and not moved:
            raise UsageError(f"{source.path}: its recorder moved no weights: set PARITY_PERTURB=1 where it is run")
        if moved and role not in ("perturbed", "candidate"):
            raise UsageError(f"{source.path}: its weights were moved by one ulp: it is a --perturbed, no --{role}")
    legs = [(role, JudgedLeg(name, one)) for (role, _), name, one in zip(sources, names, curves, strict=True)]

    def of(role: Role) -> tuple[JudgedLeg, ...]:
        return tuple(leg for its, leg in legs if its == role)

    baseline, candidate = of("baseline")[0], of("candidate")[0]
    environments = [leg.curves.environment for leg in (baseline, candidate)]
    chosen, reason = choose_profile(profile, environments, bounds=[bounds])
    loss = baseline.curve("loss")
    first = int(loss.steps[0]) if loss is not None and loss.steps.size else 0
    comparison = Comparison(
        baseline=baseline,
        candidate=candidate,
        controls=of("control"),
        repeats=of("repeat"),
        perturbed=of("perturbed"),
        reference=next(iter(of("reference")), None),
        profile=chosen,
        expected_steps=None if steps is None else np.arange(first, first + steps, dtype=np.int64),
        required=require,
        k=k,
    )
    compared = compare(comparison, reason)
    result = Result(
        suite=" against ".join(
            shlex.quote(str(source.path))
            for wanted in ("candidate", "baseline")
            for role, source in sources
            if role == wanted
        ),
        steps=steps,
        verdict=compared.verdict,
        summary=compared.summary,
        reproduce=reproduce,
        legs=[
            LegResult(
                name=leg.name,
                status="read",
                source=str(source.path),
                format=leg.curves.format,
                notes=[note.text for note in leg.curves.notes],
                environment=dict(leg.curves.environment),
            )
            for (_, source), (_, leg) in zip(sources, legs, strict=True)
        ],
        comparisons=[compared],
        curves=drawn(leg for _, leg in legs),
    )
    return Judged(result, {leg.name: leg for _, leg in legs}, (comparison,))


def _aligned(curves: list[LegCurves]) -> list[LegCurves]:
    """Legs of which some count from 0 and some from 1, if each leg's format or the user says so, all from 0."""
    if None in (bases := {one.base for one in curves}) or len(bases) == 1:
        return curves
    aligned = []
    for one in curves:
        note = Note(f"{one.format} counts steps from {one.base}; they are counted from 0 here, as another leg's are")
        aligned.append(replace(one.counted_from(one.base), notes=(*one.notes, note)) if one.base else one)
    return aligned


def _names(sources: Sequence[tuple[Role, LogSource]]) -> list[str]:
    """What to call each leg: its file, else its folder, if that tells them apart; else its role."""
    by_file = [source.path.stem for _, source in sources]
    by_folder = [source.path.resolve().parent.name for _, source in sources]
    for names in (by_file, by_folder):
        if len(set(names)) == len(names) and all(map(_NAME.fullmatch, names)):
            return names
    roles = [role for role, _ in sources]
    return [
        role if roles.count(role) == 1 else f"{role}-{roles[: at + 1].count(role)}" for at, role in enumerate(roles)
    ]
