"""Judging one metric's gap against what is allowed at every step; shared by the checks that do so."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from parity.checks.allowance import Allowance, allowance, control_beyond, unjudged
from parity.checks.comparison import Comparison, Gap, Leg, named_steps
from parity.checks.noise import horizon, measured_by_perturbing, noise_floor, sane_legs
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.words import number, plural

__all__ = ["attribution", "judge", "measure"]

# Fewer later steps than this before the evidence horizon are no evidence, unless the run has no more.
_LEAST_STEPS = 3

# Noise of two runs is independent, so that their distance is about that of each to the baseline; `_accomplice` says
# what was measured.
_IN_COMMON = 0.2

# A step stands out as a spike when its gap is ten times the median gap of the run.
_SPIKE = 10.0


def measure(
    gap: Gap,
    allowed: NDArray[np.float64],
    floor: NDArray[np.float64] | None = None,
    judged: NDArray[np.bool_] | None = None,
) -> MetricGap:
    """The numbers of a gap against an absolute allowance; steps that are not finite are left out.

    Args:
        gap: of n steps.
        allowed: float64 (n,).
        floor: float64 (n,), if noise was measured.
        judged: bool (n,), where a worst step is looked for; everywhere if None. The peak is looked for everywhere.
    """
    finite = gap.finite
    if not finite.any():
        return MetricGap(gap.metric)
    times = np.where(gap.absolute == 0, 0.0, gap.absolute / allowed)
    times = np.where(finite if judged is None else finite & judged, times, -1.0)
    if not (times >= 0).any():
        return MetricGap(gap.metric)
    # Where nothing is beyond anything allowed (all zero), the first step is as good a worst step as any.
    worst = int(np.argmax(times))
    peak = int(np.nanargmax(gap.relative))
    over = np.flatnonzero(times > 1.0)
    floor_at_worst = None if floor is None else float(floor[worst])
    return MetricGap(
        metric=gap.metric,
        first=float(gap.relative[0]) if finite[0] else None,
        mean=float(gap.relative[finite].mean()),
        worst=float(gap.relative[worst]),
        worst_step=int(gap.steps[worst]),
        allowed=float(allowed[worst] / gap.scale[worst]),
        times_allowed=float(times[worst]),
        times_floor=None if not floor_at_worst else float(gap.absolute[worst] / floor_at_worst),
        peak=float(gap.relative[peak]),
        peak_step=int(gap.steps[peak]),
        steps_over=int(over.size),
        first_over=int(gap.steps[over[0]]) if over.size else None,
    )


def attribution(comparison: Comparison, gap: Gap, numbers: MetricGap) -> str:
    """Whose spike the largest gap is: the trajectory's if a leg that measures noise stands out at the same step, the
    candidate's own if it is beyond the noise that any of them ever showed. Empty where there is no spike to speak of.
    """
    step = numbers.peak_step
    if step is None or numbers.peak is None or numbers.peak <= _SPIKE * float(np.median(gap.relative[gap.finite])):
        return ""
    theirs, leg, stands_out = max(_at_peak(comparison, gap, step), key=lambda one: one[0], default=(0.0, None, False))
    if leg is None:
        return ""
    role = "the control " if leg in comparison.controls else ""
    spike = f"largest gap {number(numbers.peak)} at step {step}, where {role}{leg.name} is"
    if stands_out and comparison.k * theirs >= numbers.peak:
        return f"{spike} {number(theirs)} off too: that spike belongs to the trajectory, not to the split"
    floor = noise_floor(comparison, gap)
    here = np.searchsorted(gap.steps, step)
    if floor is not None and gap.absolute[here] > comparison.k * floor[here]:
        return f"{spike} only {number(theirs)} off: that spike is the candidate's own"
    return ""


def _accomplice(comparison: Comparison, gap: Gap, allowed: Allowance) -> str:
    """Why a control does not excuse a gap beyond the profile's bound, if candidate and control agree with each other
    and not with the baseline: two runs' noise has nothing in common. Empty if it does.

    Of correct layouts of real frameworks, the distance between candidate and control was 0.79 to 1.4 times that to
    the baseline; of runs that shared a bug, or whose baseline had one, 0 to 0.014 (`tests/checks/test_real_logs.py`).
    """
    if measured_by_perturbing(comparison, gap.metric) or not (gap.finite & (gap.absolute > allowed.own)).any():
        return ""
    for control in (*comparison.controls, *comparison.repeats):
        theirs = comparison.gap_of(gap.metric, control)
        if theirs is None:
            continue
        _, i, j = np.intersect1d(gap.steps, theirs.steps, assume_unique=True, return_indices=True)
        both = gap.finite[i] & theirs.finite[j]
        apart = np.abs(gap.other[i] - theirs.other[j])[both].sum()
        from_baseline = np.maximum(gap.absolute[i], theirs.absolute[j])[both].sum()
        if apart < _IN_COMMON * from_baseline:
            return (
                f"{comparison.candidate.name} and {control.name} agree with each other"
                f" ({number(float(apart / from_baseline))} of their distance to {comparison.baseline.name}), which no"
                f" noise does: both carry the same bug, or {comparison.baseline.name} has one; a perturbed leg tells"
            )
    return ""


def _at_peak(comparison: Comparison, gap: Gap, step: int) -> Iterator[tuple[float, Leg, bool]]:
    """By leg that measures noise, its relative gap at a step, and whether it stands out there."""
    for leg in sane_legs(comparison):
        theirs = comparison.gap_of(gap.metric, leg)
        at = np.flatnonzero(theirs.steps == step) if theirs is not None else np.array([])
        if theirs is not None and at.size and theirs.finite[at[0]]:
            value = float(theirs.relative[at[0]])
            yield value, leg, value > _SPIKE * float(np.median(theirs.relative[theirs.finite]))


def judge(comparison: Comparison, metric: str) -> Outcome:
    """Is the candidate's metric within what is allowed, at every step?"""
    present = [leg.name for leg in (comparison.baseline, comparison.candidate) if leg.curve(metric)]
    gap = comparison.gap(metric)

    def outcome(status: Status, reason: str, *gaps: MetricGap, warnings: tuple[str, ...] = ()) -> Outcome:
        return Outcome(metric, Kind.PARITY, status, reason, bool(present), gaps, warnings)

    if gap is None or not gap.finite.any():
        return outcome(Status.NOT_RUN, _nothing_to_judge(comparison, metric, gap, present))
    allowed = allowance(comparison, gap)
    numbers = measure(gap, allowed.allowed, noise_floor(comparison, gap), allowed.judged)
    steps = gap.finite & allowed.judged
    judged, later = int(steps.sum()), comparison.updates(gap.steps) > 0
    story = "".join(f"; {part}" for part in (_scope(comparison, gap), attribution(comparison, gap, numbers)) if part)
    warnings = tuple(filter(None, [_widened(comparison, gap)]))
    worst, most = number(numbers.worst or 0), number(numbers.allowed or 0)
    where = f"worst {worst} at step {numbers.worst_step}, {most} allowed there"
    over = np.flatnonzero(allowed.over(gap))
    if over.size:
        reason = (
            f"{over.size} of {plural(judged, 'step')} beyond what is allowed, the first at step"
            f" {int(gap.steps[over[0]])}; {where}{story}"
        )
        return outcome(Status.FAIL, reason, numbers, warnings=warnings)
    least = min(_LEAST_STEPS, int((gap.finite & later).sum()))
    if int((steps & later).sum()) < least:
        return outcome(Status.NOT_RUN, _no_evidence(comparison, gap), numbers, warnings=warnings)
    unclear = unjudged(gap, allowed) or _accomplice(comparison, gap, allowed)
    if unclear:
        return outcome(Status.NOT_RUN, f"{unclear}; {where}{story}", numbers, warnings=warnings)
    lacking = _lacking(comparison, metric, gap)
    if lacking:
        return outcome(Status.NOT_RUN, f"{lacking}; the others are within bounds, {where}", numbers)
    reason = f"{plural(judged, 'step')} within bounds; {where}{story}"
    return outcome(Status.PASS, reason, numbers, warnings=warnings)


def _nothing_to_judge(comparison: Comparison, metric: str, gap: Gap | None, present: list[str]) -> str:
    if not present:
        return f"neither leg logs {metric}"
    if len(present) == 1:
        return f"only {present[0]} logs {metric}"
    if comparison.shift:
        return "the legs count their steps from different numbers"
    if gap is None:
        return f"the legs have no step of {metric} in common"
    return f"{metric} is finite in both legs at no step"


def _lacking(comparison: Comparison, metric: str, gap: Gap) -> str:
    """Why the steps that agree are not all the steps there should be; empty if they are."""
    not_finite = int((~gap.finite).sum())
    if not_finite:
        return f"{plural(not_finite, 'step')} not finite"
    curves = [leg.curve(metric) for leg in (comparison.baseline, comparison.candidate)]
    wanted = comparison.expected_steps
    if wanted is None:
        wanted = named_steps(curve for curve in curves if curve is not None)
    whole = np.array_equal(wanted, gap.steps)
    absent = 0 if whole else int(np.setdiff1d(wanted, gap.steps, assume_unique=True).size)
    if absent:
        return f"{absent} of {plural(int(wanted.size), 'step')} not in both legs"
    conflicts = sum(len(curve.conflicts) for curve in curves if curve is not None)
    return f"{plural(conflicts, 'step')} written with several values" if conflicts else ""


def _scope(comparison: Comparison, gap: Gap) -> str:
    """Up to which step was judged, if not to the end."""
    end = horizon(comparison, gap.metric)
    if end >= gap.steps[-1]:
        return ""
    if comparison.bound(gap.metric).until == end:
        return f"judged up to step {int(end)}, as its bound says"
    return f"judged up to step {int(end)}, the evidence horizon; {_beyond(comparison, gap)}"


def _no_evidence(comparison: Comparison, gap: Gap) -> str:
    end = horizon(comparison, gap.metric)
    return f"the evidence ends at step {int(end)}, before it tells; {_beyond(comparison, gap)}"


def _beyond(comparison: Comparison, gap: Gap) -> str:
    resolve = number(comparison.bound(gap.metric).resolve)
    return (
        f"beyond it {number(comparison.k)} times what one ulp in the weights does to {gap.metric} is more than the"
        f" {resolve} that a fault must not hide in"
    )


def _widened(comparison: Comparison, gap: Gap) -> str:
    """A warning where a control's own gap is beyond the profile's bound and no perturbed leg says whether rightly."""
    times, step, name = control_beyond(comparison, gap)
    if times <= 1 or measured_by_perturbing(comparison, gap.metric):
        return ""
    return (
        f"the control {name} is itself up to {number(times)} times beyond the {gap.metric} bound of"
        f" {comparison.profile.name}, first at step {step}: either this model is noisier than the profile supposes,"
        " or the control carries the same bug; a perturbed leg tells which"
    )
