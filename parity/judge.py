"""The right half of the data's way: legs on disk to a result. Runs anywhere, without torch."""

from collections.abc import Mapping

import numpy as np

from parity.allowed import profile_name, profile_of
from parity.checks.comparison import Comparison
from parity.checks.comparison import Leg as JudgedLeg
from parity.checks.outcome import Verdict
from parity.checks.verdict import merge
from parity.compare import compare
from parity.curves import read
from parity.curves.curve import LegCurves
from parity.errors import UsageError
from parity.result import ComparisonResult, LegResult, Result
from parity.rundir import RunDirectory, Snapshot
from parity.suite import Compare, Suite

__all__ = ["judge_run"]


def judge_run(directory: RunDirectory) -> Result:
    """Judge every comparison of a run directory from what its legs left.

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
        f"{leg.name} is from the earlier run {leg.run_id}"
        for leg in legs
        if leg.run_id is not None and leg.run_id != snapshot.run_id
    ] + [
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
        suite=suite.name,
        run_id=snapshot.run_id,
        steps=suite.steps,
        verdict=verdict.value,
        summary=_summary(verdict, comparisons, legs),
        reproduce=snapshot.reproduce,
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
    if not curves.curves:
        # It got as far as opening its file; what it says there of its end is in the leg's error already.
        status = "no curve" if leg.status == "finished" else leg.status
        return leg.model_copy(update={"status": status, "error": leg.error or f"{path}: holds no step"}), None
    curves = curves.counted_from(source.first_step)
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
    name, reason = profile_name(
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
