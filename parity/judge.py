"""The right half of the data's way: legs on disk to a result. Runs anywhere, without torch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parity.allowed import choose_profile
from parity.checks.comparison import Comparison
from parity.checks.comparison import Leg as JudgedLeg
from parity.checks.cut import up_to_where_it_came
from parity.checks.outcome import Verdict
from parity.checks.verdict import merge
from parity.checks.words import age
from parity.compare import compare
from parity.display.curves import curves as drawn
from parity.display.curves import points_for
from parity.display.legs import with_display
from parity.judged import Judged
from parity.legs import FoundLeg, found_legs
from parity.result import ComparisonResult, Result
from parity.rundir import RunDirectory, Snapshot
from parity.suite import Compare, Suite

__all__ = ["judge", "judge_run"]

_STOPPED = "The candidate was ended early, and what there is of it is not wrong. "


def judge_run(directory: RunDirectory, change: Callable[[Comparison], Comparison] = lambda one: one) -> Result:
    """The result of `judge`."""
    return judge(directory, change).result


def judge(directory: RunDirectory, change: Callable[[Comparison], Comparison] = lambda one: one) -> Judged:
    """Judge every comparison of a run directory from what its legs left.

    Args:
        directory: the run.
        change: applied to each comparison before it is judged.

    Raises:
        UsageError: this is no run directory.
    """
    snapshot = directory.read_snapshot()
    suite = snapshot.suite
    legs = _with_savings(found_legs(directory, snapshot), suite)
    curves = {name: leg.judged for name, leg in legs.items() if leg.judged is not None}
    judged: list[Comparison] = []

    def listed(comparison: Comparison) -> Comparison:
        judged.append(change(comparison))
        return judged[-1]

    comparisons = [_judge(suite, snapshot.device, item, legs, listed) for item in suite.compare]
    involved = {name for item in suite.compare for name in item.legs()}
    # A leg that no comparison names still must not fail unseen.
    unseen = [Verdict.ERROR for name, leg in legs.items() if name not in involved and leg.state == "broken"]
    verdict = merge([*(Verdict(comparison.verdict) for comparison in comparisons), *unseen])
    result = Result(
        suite=suite.name,
        run_id=snapshot.run_id,
        steps=suite.steps,
        verdict=verdict.value,
        summary=_summary(verdict, comparisons, legs),
        reproduce=snapshot.reproduce,
        notes=[note for leg in legs.values() for note in _notes(leg, snapshot)],
        legs=[with_display(directory, leg.result, leg.judged) for leg in legs.values()],
        comparisons=comparisons,
        curves=drawn(curves.values()),
    )
    return Judged(result, curves, tuple(judged))


def _with_savings(legs: dict[str, FoundLeg], suite: Suite) -> dict[str, FoundLeg]:
    """The legs, with what ending some of them early has saved, if they had taken as long as their baseline."""
    saved = dict(legs)
    for item in suite.compare:
        found, whole = legs[item.candidate].result, legs[item.baseline].result.seconds
        if found.status == "stopped" and whole is not None and found.seconds is not None:
            seconds = max(0.0, whole - found.seconds) * (found.ranks or 1)
            result = found.model_copy(update={"saved_device_seconds": round(seconds, 3)})
            saved[item.candidate] = replace(legs[item.candidate], result=result)
    return saved


def _notes(leg: FoundLeg, snapshot: Snapshot) -> list[str]:
    notes = []
    if leg.result.reused is not None:
        notes.append(f"{leg.result.name} did not run: it is from the cache, {age(leg.result.reused.age)} old")
    elif leg.result.run_id not in (None, snapshot.run_id, *snapshot.merged):
        notes.append(f"{leg.result.name} is from the earlier run {leg.result.run_id}")
    if leg.result.status == "stopped":
        saved = leg.result.saved_device_seconds
        how_much = "" if saved is None else f": about {saved:.0f} device-seconds saved, by its baseline's time"
        notes.append(f"{leg.result.name} was ended early, as it was wrong at its first step{how_much}")
    elif leg.state == "whole" and leg.result.status != "finished":
        how = leg.result.error or f"exit code {leg.result.exit_code}"
        notes.append(
            f"{leg.result.name} wrote its whole curve and then {leg.result.status}: {how}; it is judged by its curve"
        )
    return notes


def _judge(
    suite: Suite, device: str, item: Compare, legs: Mapping[str, FoundLeg], change: Callable[[Comparison], Comparison]
) -> ComparisonResult:
    named = [legs[name] for name in item.legs()]
    judged = [leg.judged for leg in named if leg.judged is not None]
    asked = item.profile if item.profile not in (None, "auto") else suite.profile
    environments = [leg.curves.environment for leg in judged]
    profile, reason = choose_profile(asked, environments, device, (suite.bounds, item.bounds))
    k = item.k if item.k is not None else suite.k

    def there(names: Iterable[str]) -> tuple[JudgedLeg, ...]:
        return tuple(leg for name in names if (leg := legs[name].judged) is not None)

    baseline, candidate = legs[item.baseline].judged, legs[item.candidate].judged
    result = ComparisonResult(
        baseline=item.baseline,
        candidate=item.candidate,
        controls=list(item.control),
        repeats=list(item.repeat),
        perturbed=list(item.perturbed),
        reference=item.reference,
        profile=profile.name,
        profile_reason=reason,
        k=k,
        verdict="pass",
        summary="",
    )
    if baseline is not None and candidate is not None:
        comparison = Comparison(
            baseline=baseline,
            candidate=candidate,
            controls=there(item.control),
            repeats=there(item.repeat),
            perturbed=there(item.perturbed),
            reference=next(iter(there([item.reference] if item.reference else [])), None),
            profile=profile,
            expected_steps=_expected(suite, judged),
            required=frozenset(item.require if item.require is not None else suite.require),
            k=k,
            layout_unproven=(item.layout or suite.layout) == "unproven",
        )
        stopped = legs[item.candidate].result.status == "stopped"
        if stopped:
            comparison = up_to_where_it_came(comparison)
        result = compare(change(comparison), reason, points_for(2 * len(suite.compare)))
        if stopped and result.verdict == "pass":  # whoever stopped it: so few steps prove nothing
            result = result.model_copy(update={"verdict": "inconclusive", "summary": _STOPPED + result.summary})
    broken = [leg.told for leg in named if leg.state == "broken"]
    absent = [leg.told for leg in named if leg.state == "absent"]
    if not broken and not absent:
        return result
    verdict = merge([Verdict.ERROR if broken else Verdict.INCONCLUSIVE, Verdict(result.verdict)])
    rest = f" Of what there is: {result.summary}" if result.summary else ""
    return result.model_copy(
        update={"verdict": verdict.value, "summary": f"{'; '.join(broken + absent).rstrip('.')}.{rest}"}
    )


def _expected(suite: Suite, judged: list[JudgedLeg]) -> NDArray[np.int64]:
    """The steps that every leg must have, counted from where the baseline counts: 0, or 1."""
    loss = next((curve for leg in judged if (curve := leg.curve("loss"))), None)
    first = 1 if loss is not None and loss.steps.size and loss.steps[0] == 1 else 0
    return np.arange(first, first + suite.steps, dtype=np.int64)


def _summary(verdict: Verdict, comparisons: list[ComparisonResult], legs: Mapping[str, FoundLeg]) -> str:
    deciding = [comparison for comparison in comparisons if comparison.verdict == verdict.value]
    if not deciding:
        return "; ".join(leg.told for leg in legs.values() if leg.state == "broken")
    more = f" And {len(deciding) - 1} more." if len(deciding) > 1 else ""
    return deciding[0].summary + more
