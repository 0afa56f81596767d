"""The right half of the data's way: legs on disk, or logs, to a result. Runs anywhere, without torch."""

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from parity import __version__
from parity.checks.comparison import Comparison
from parity.checks.comparison import Leg as JudgedLeg
from parity.checks.outcome import Verdict
from parity.checks.profiles import PROFILES, Profile, with_bounds
from parity.checks.verdict import merge
from parity.compare import compare
from parity.curves import read
from parity.curves.curve import LegCurves
from parity.errors import UsageError
from parity.result import ComparisonResult, LegResult, Result
from parity.rundir import RunDirectory, Snapshot
from parity.suite import Bounds, BoundsByMetric, Compare, Suite

__all__ = ["LogSource", "judge_logs", "judge_run", "profile_of"]


def _profile_name(asked: str | None, dtype: object, device: object) -> tuple[str, str]:
    """The profile's name, and why that one."""
    if asked and asked != "auto":
        return asked, ""
    if dtype not in ("fp32", "fp64", "bf16"):
        return f"fp32-{'gpu' if device == 'cuda' else 'cpu'}", "assumed, for nothing says in which dtype the legs ran"
    name = "bf16" if dtype == "bf16" else f"fp32-{'gpu' if device == 'cuda' else 'cpu'}"
    return name, f"from dtype {dtype} on {'GPU' if device == 'cuda' else 'CPU'}"


def profile_of(name: str, *bounds: BoundsByMetric | None) -> Profile:
    """A profile with a person's bounds; later ones win."""
    profile = PROFILES[name]
    for by_metric in bounds:
        for metric in ("loss", "grad_norm"):
            given: Bounds | None = getattr(by_metric, metric, None)
            if given is not None:
                profile = with_bounds(profile, metric, **given.model_dump())
    return profile


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _counted_from(curves: LegCurves, first_step: int) -> LegCurves:
    """The same curves with steps counted from 0."""
    if not first_step:
        return curves
    moved = {
        metric: replace(
            curve,
            steps=curve.steps - first_step,
            conflicts=tuple(replace(conflict, step=conflict.step - first_step) for conflict in curve.conflicts),
            missing=tuple(step - first_step for step in curve.missing),
        )
        for metric, curve in curves.curves.items()
    }
    return replace(curves, curves=moved)


def judge_run(directory: RunDirectory, reproduce: str | None = None) -> Result:
    """Judge every comparison of a run directory from what its legs left.

    Args:
        directory: the run.
        reproduce: the command that makes the run again; `parity run SUITE` if not given.

    Raises:
        UsageError: this is no run directory.
    """
    snapshot = directory.read_snapshot()
    suite = snapshot.suite
    legs: list[LegResult] = []
    curves: dict[str, LegCurves] = {}
    for name in suite.legs:
        leg = directory.read_leg(name)
        if leg is None:
            legs.append(LegResult(name=name, status="not run"))
            continue
        leg, read_curves = _read_leg(directory, snapshot, leg)
        legs.append(leg)
        if read_curves is not None:
            curves[name] = read_curves
    by_name = {leg.name: leg for leg in legs}
    comparisons = [_judge(suite, snapshot.device, item, by_name, curves) for item in suite.compare]
    notes = [
        f"{leg.name} wrote its whole curve and then {leg.status}: {leg.error or f'exit code {leg.exit_code}'}"
        for leg in legs
        if leg.status not in ("finished", "not run") and leg.name in curves and _whole(suite, curves[leg.name])
    ]
    involved = {name for item in suite.compare for name in (item.baseline, item.candidate, item.control) if name}
    verdict = merge(
        [
            *(Verdict(comparison.verdict) for comparison in comparisons),
            # A leg that no comparison names still must not fail unseen.
            *(Verdict.ERROR for leg in legs if leg.name not in involved and _broken(suite, leg, curves)),
        ]
    )
    return Result(
        parity_version=__version__,
        created=_now(),
        suite=suite.name,
        run_id=snapshot.run_id,
        steps=suite.steps,
        verdict=verdict.value,
        summary=_summary(verdict, comparisons, legs),
        reproduce=reproduce or f"parity run {shlex.quote(snapshot.suite_name)} --steps {suite.steps}",
        notes=notes,
        legs=legs,
        comparisons=comparisons,
    )


def _read_leg(directory: RunDirectory, snapshot: Snapshot, leg: LegResult) -> tuple[LegResult, LegCurves | None]:
    """The leg with what its source says, and its curves if it left any."""
    path, source = directory.source(snapshot, leg.name)
    try:
        curves = read(path, format=source.format, keys=source.keys or None, within=directory.path)
    except UsageError as error:
        if leg.status in ("not started", "not run"):
            return leg, None
        problem = str(error)
        status = "no curve" if leg.status == "finished" else leg.status
        return leg.model_copy(update={"status": status, "error": leg.error or problem}), None
    curves = _counted_from(curves, source.first_step)
    update = {
        "source": str(path.relative_to(directory.path.absolute()) if path.is_absolute() else path),
        "format": curves.format,
        "environment": {**leg.environment, **curves.environment},
        "notes": [note.text for note in curves.notes],
    }
    started_as = curves.start.get("run_id")
    if started_as is not None and started_as != snapshot.run_id and curves.start.get("leg") != leg.name:
        update |= {
            "status": "no curve",
            "error": f"{update['source']} was written by run {started_as}, not by this one",
        }
        return leg.model_copy(update=update), None
    return leg.model_copy(update=update), curves


def _whole(suite: Suite, curves: LegCurves) -> bool:
    """Whether the leg's loss reaches the last step; with a recorder, also whether it said that it ended."""
    loss = curves.curves.get("loss")
    return loss is not None and loss.steps.size == suite.steps and curves.finished is not False


def _broken(suite: Suite, leg: LegResult, curves: Mapping[str, LegCurves]) -> bool:
    """Whether the leg failed to compute its curve; one that died after its last step did compute it."""
    if leg.status in ("finished", "not run"):
        return False
    return leg.name not in curves or not _whole(suite, curves[leg.name])


def _judge(
    suite: Suite, device: str, item: Compare, legs: Mapping[str, LegResult], curves: Mapping[str, LegCurves]
) -> ComparisonResult:
    names = [name for name in (item.baseline, item.candidate, item.control) if name]
    environment = legs[item.baseline].environment
    name, reason = _profile_name(
        item.profile if item.profile not in (None, "auto") else suite.profile,
        environment.get("dtype"),
        device,
    )
    k = item.k if item.k is not None else suite.k
    broken = [leg for n in names if _broken(suite, leg := legs[n], curves)]
    absent = [n for n in names if legs[n].status == "not run"]
    result = None
    if item.baseline in curves and item.candidate in curves:
        control = item.control if item.control in curves else None
        result = compare(
            Comparison(
                baseline=JudgedLeg(item.baseline, curves[item.baseline]),
                candidate=JudgedLeg(item.candidate, curves[item.candidate]),
                control=JudgedLeg(control, curves[control]) if control else None,
                profile=profile_of(name, suite.bounds, item.bounds),
                expected_steps=_expected(suite, curves, names),
                required=frozenset(item.require if item.require is not None else suite.require),
                k=k,
            ),
            reason,
        )
    if not broken and not absent and result is not None:
        return result
    verdict = Verdict.ERROR if broken else Verdict.INCONCLUSIVE
    text = "; ".join(
        [*(f"{leg.name} {leg.status}{f': {leg.error}' if leg.error else ''}" for leg in broken)]
        + [f"{n} was not run" for n in absent]
    )
    if result is not None:
        verdict = merge([verdict, Verdict(result.verdict)])
        return result.model_copy(
            update={"verdict": verdict.value, "summary": f"{text}. Of what there is: {result.summary}"}
        )
    return ComparisonResult(
        baseline=item.baseline,
        candidate=item.candidate,
        control=item.control,
        profile=name,
        profile_reason=reason,
        k=k,
        verdict=verdict.value,
        summary=f"{text}.",
    )


def _expected(
    suite: Suite, curves: Mapping[str, LegCurves], names: list[str]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The steps that every leg must have, counted from where the baseline counts: 0, or 1."""
    loss = next((curve for n in names if n in curves and (curve := curves[n].curves.get("loss"))), None)
    first = 1 if loss is not None and loss.steps.size and loss.steps[0] == 1 else 0
    return np.arange(first, first + suite.steps, dtype=np.int64)


def _summary(verdict: Verdict, comparisons: list[ComparisonResult], legs: list[LegResult]) -> str:
    deciding = [comparison for comparison in comparisons if comparison.verdict == verdict.value]
    if not deciding:
        bad = [f"{leg.name} {leg.status}{f': {leg.error}' if leg.error else ''}" for leg in legs]
        return "; ".join(bad)
    more = f" And {len(deciding) - 1} more." if len(deciding) > 1 else ""
    return deciding[0].summary + more


class LogSource:
    """A log that exists already, and how to read it.

    Args:
        role: baseline, candidate or control.
        path: the file.
        format: the reader; by content if None.
        keys: which key holds which metric.
        first_step: the number that this log gives to the first step.
    """

    def __init__(
        self,
        role: str,
        path: Path,
        format: str | None = None,  # noqa: A002 - the word that users know
        keys: Mapping[str, str] | None = None,
        first_step: int = 0,
    ) -> None:
        self.role = role
        self.path = path
        self.format = format
        self.keys = keys or None
        self.first_step = first_step

    def read(self) -> LegCurves:
        """The curves, with steps counted from 0 if `first_step` is right.

        Raises:
            UsageError: the file cannot be read as a log.
        """
        return _counted_from(read(self.path, format=self.format, keys=self.keys), self.first_step)


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
    environment = curves["baseline"].environment
    device = "cuda" if environment.get("backend") == "nccl" else "cpu"
    name, reason = _profile_name(profile, environment.get("dtype"), device)
    loss = curves["baseline"].curves.get("loss")
    first = int(loss.steps[0]) if loss is not None and loss.steps.size else 0
    comparison = Comparison(
        baseline=JudgedLeg("baseline", curves["baseline"]),
        candidate=JudgedLeg("candidate", curves["candidate"]),
        control=JudgedLeg("control", curves["control"]) if "control" in curves else None,
        profile=profile_of(name, bounds),
        expected_steps=None if steps is None else np.arange(first, first + steps, dtype=np.int64),
        required=require,
        k=k,
    )
    result = compare(comparison, reason)
    return Result(
        parity_version=__version__,
        created=_now(),
        suite=" against ".join(shlex.quote(str(sources[role].path)) for role in ("candidate", "baseline")),
        steps=steps,
        verdict=result.verdict,
        summary=result.summary,
        reproduce=reproduce,
        legs=[
            LegResult(
                name=role,
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
