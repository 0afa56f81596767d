"""Judging one metric's gap against what is allowed at every step; shared by the checks that do so."""

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Gap
from parity.checks.floor import noise_floor
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.words import number, plural

__all__ = ["allowance", "attribution", "judge", "measure"]

# A step stands out as a spike when its gap is ten times the median gap of the run.
_SPIKE = 10.0


def allowance(comparison: Comparison, metric: str, gap: Gap) -> NDArray[np.float64]:
    """Absolute gap allowed at each step, float64 (n,).

    A bound that a person wrote stands as it is. A profile's bound is a guess about this model, so it gives way to
    the noise that the control really measured, except at the first step: there nothing has amplified rounding.
    """
    bound = comparison.bound(metric)
    updates = comparison.updates(gap.steps)
    allowed = bound.allowed(updates, gap.baseline)
    floor = None if bound.explicit else noise_floor(comparison, metric, gap)
    if floor is None:
        return allowed
    return np.where(updates <= 0, allowed, np.maximum(allowed, comparison.k * floor))


def measure(gap: Gap, allowed: NDArray[np.float64], floor: NDArray[np.float64] | None = None) -> MetricGap:
    """The numbers of a gap against an absolute allowance; steps that are not finite are left out."""
    finite = gap.finite
    if not finite.any():
        return MetricGap(gap.metric)
    times = np.where(gap.absolute == 0, 0.0, gap.absolute / allowed)
    times = np.where(finite, times, -1.0)
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
    """Whose spike the largest gap is: the trajectory's if the control stands out at the same step, the candidate's
    own if it is beyond the noise that the control ever showed. Empty where there is no spike to speak of.
    """
    control, step = comparison.control_gap(gap.metric), numbers.peak_step
    if control is None or comparison.control is None or step is None or numbers.peak is None:
        return ""
    at = np.flatnonzero(control.steps == step)
    if not at.size or not control.finite[at[0]]:
        return ""
    theirs = float(control.relative[at[0]])
    if numbers.peak <= _SPIKE * float(np.median(gap.relative[gap.finite])):
        return ""
    spike = f"largest gap {number(numbers.peak)} at step {step}, where the control {comparison.control.name} is"
    stands_out = theirs > _SPIKE * float(np.median(control.relative[control.finite]))
    if stands_out and comparison.k * theirs >= numbers.peak:
        return f"{spike} {number(theirs)} off too: that spike belongs to the trajectory, not to the split"
    floor = noise_floor(comparison, gap.metric, gap)
    here = np.searchsorted(gap.steps, step)
    if floor is not None and gap.absolute[here] > comparison.k * floor[here]:
        return f"{spike} only {number(theirs)} off: that spike is the candidate's own"
    return ""


def judge(comparison: Comparison, metric: str) -> Outcome:
    """Is the candidate's metric within what is allowed, at every step?"""
    present = [leg.name for leg in (comparison.baseline, comparison.candidate) if leg.curve(metric)]
    required = bool(present) or metric in comparison.required
    gap = comparison.gap(metric)

    def outcome(status: Status, reason: str, *gaps: MetricGap, warnings: tuple[str, ...] = ()) -> Outcome:
        return Outcome(metric, Kind.PARITY, status, reason, required, gaps, warnings)

    if gap is None or not gap.finite.any():
        if not present:
            return outcome(Status.NOT_RUN, f"neither leg logs {metric}")
        if len(present) == 1:
            return outcome(Status.NOT_RUN, f"only {present[0]} logs {metric}")
        if comparison.shift:
            return outcome(Status.NOT_RUN, "the legs count their steps from different numbers")
        if gap is None:
            return outcome(Status.NOT_RUN, f"the legs have no step of {metric} in common")
        return outcome(Status.NOT_RUN, f"{metric} is finite in both legs at no step")

    allowed = allowance(comparison, metric, gap)
    numbers = measure(gap, allowed, noise_floor(comparison, metric, gap))
    story = attribution(comparison, gap, numbers)
    story = f"; {story}" if story else ""
    warnings = tuple(filter(None, [_widened(comparison, metric, gap, allowed)]))
    where = (
        f"worst {number(numbers.worst or 0)} at step {numbers.worst_step},"
        f" {number(numbers.allowed or 0)} allowed there"
    )
    beyond_print = gap.finite & (gap.absolute > allowed + gap.resolution)
    if beyond_print.any():
        reason = (
            f"{numbers.steps_over} of {plural(int(gap.finite.sum()), 'step')} beyond what is allowed,"
            f" the first at step {numbers.first_over}; {where}{story}"
        )
        return outcome(Status.FAIL, reason, numbers, warnings=warnings)
    unprintable = gap.finite & (allowed < gap.resolution)
    if unprintable.any():
        i = int(np.flatnonzero(unprintable)[0])
        reason = (
            f"the log prints {metric} in steps of {number(float(gap.resolution[i]))}, coarser than the"
            f" {number(float(allowed[i]))} allowed at step {int(gap.steps[i])}: log full precision, or give a"
            f" bound of at least {number(float(gap.resolution[i] / gap.scale[i]))} relative"
        )
        return outcome(Status.NOT_RUN, reason, numbers, warnings=warnings)
    lacking = _lacking(comparison, metric, gap)
    if lacking:
        return outcome(Status.NOT_RUN, f"{lacking}; the others are within bounds, {where}", numbers)
    return outcome(
        Status.PASS,
        f"{plural(int(gap.steps.size), 'step')} within bounds; {where}{story}",
        numbers,
        warnings=warnings,
    )


def _lacking(comparison: Comparison, metric: str, gap: Gap) -> str:
    """Why the steps that agree are not all the steps there should be; empty if they are."""
    not_finite = int((~gap.finite).sum())
    if not_finite:
        return f"{plural(not_finite, 'step')} not finite"
    curves = [leg.curve(metric) for leg in (comparison.baseline, comparison.candidate)]
    stepped = [curve.steps for curve in curves if curve is not None]
    wanted = comparison.expected_steps
    if wanted is None:
        named = [np.asarray(curve.missing, dtype=np.int64) for curve in curves if curve is not None]
        wanted = np.unique(np.concatenate([*stepped, *named]))
    absent = int(np.setdiff1d(wanted, gap.steps).size)
    if absent:
        return f"{absent} of {plural(int(wanted.size), 'step')} not in both legs"
    conflicts = sum(len(curve.conflicts) for curve in curves if curve is not None)
    return f"{plural(conflicts, 'step')} written with several values" if conflicts else ""


def _widened(comparison: Comparison, metric: str, gap: Gap, allowed: NDArray[np.float64]) -> str:
    """A warning where the control's own gap is beyond the profile's bound."""
    control = comparison.control_gap(metric)
    if control is None or comparison.control is None:
        return ""
    bound = comparison.bound(metric)
    own = bound.allowed(comparison.updates(control.steps), control.baseline)
    over = np.flatnonzero(control.finite & (control.absolute > own))
    if not over.size:
        return ""
    step = int(control.steps[over[0]])
    times = float(control.absolute[over[0]] / own[over[0]]) if own[over[0]] else np.inf
    return (
        f"the control {comparison.control.name} is itself {number(times)} times beyond the {metric} bound of"
        f" {comparison.profile.name}, first at step {step}: either this model is noisier than the profile"
        " supposes, or the control carries the same bug"
    )
