"""Judging one metric's gap against what is allowed at every step; shared by the checks that do so."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Gap, named_steps
from parity.checks.floor import noise_floor
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.words import number, plural

__all__ = [
    "DOUBT",
    "MOST_WIDENING",
    "Allowance",
    "allowance",
    "attribution",
    "control_beyond",
    "judge",
    "measure",
    "unjudged",
]

# How many times a control may widen a profile's bound. The published even control over NCCL (DeepSpeedExamples#1008)
# is up to 15 times beyond the bound of fp32-cpu in its first 50 steps. Beyond this, nothing tells a noisy model from
# a control that carries the candidate's bug.
MOST_WIDENING = 32.0

# How many times beyond a profile's bound a later step is still in doubt, where no control measured the noise.
DOUBT = 4.0

# A step stands out as a spike when its gap is ten times the median gap of the run.
_SPIKE = 10.0


@dataclass(frozen=True, eq=False)
class Allowance:
    """What is allowed at each step of a gap. All arrays are float64 (n,), absolute.

    Attributes:
        allowed: up to here a step is within.
        ceiling: beyond here it is not; between the two it cannot be told.
        own: what the bound alone allows.
        unprintable: where the bound is finer than the spacing of the printed numbers.
    """

    allowed: NDArray[np.float64]
    ceiling: NDArray[np.float64]
    own: NDArray[np.float64]
    unprintable: NDArray[np.bool_]

    def over(self, gap: Gap) -> NDArray[np.bool_]:
        """Steps that are beyond anything allowed."""
        return gap.finite & (gap.absolute > self.ceiling)

    def unclear(self, gap: Gap) -> NDArray[np.bool_]:
        """Steps of which nothing can be said."""
        return gap.finite & ~self.over(gap) & (self.unprintable | (gap.absolute > self.allowed))


def allowance(comparison: Comparison, gap: Gap) -> Allowance:
    """What a metric's bound allows.

    A bound that a person wrote stands as it is. A profile's bound is a guess about this model, so it gives way to
    the noise that the control really measured: not at the first step, where nothing has amplified rounding, and no
    further than `MOST_WIDENING`. Two printed numbers can differ by one spacing though the values do not, so a gap
    that close to the bound, or a bound finer than the spacing, cannot be judged.
    """
    bound = comparison.bound(gap.metric)
    updates = comparison.updates(gap.steps)
    own = bound.allowed(updates, gap.scale)
    allowed, ceiling = own, own
    if not bound.explicit:
        # A profile knows nothing finer than the numbers that the run computed in.
        allowed = ceiling = own = np.maximum(own, gap.spacing)
        floor = noise_floor(comparison, gap)
        if floor is None:
            # Nor what rounding does to this model: correct layouts of small models at a high learning rate were 2.4
            # times beyond in 12 steps, and beyond `steady_steps` nobody measured. The smallest real bug in the logs
            # was 8 times beyond.
            guessed = np.where(updates > bound.steady_steps, MOST_WIDENING, DOUBT)
            ceiling = np.where(updates <= 0, own, guessed * own)
        else:
            noise = np.where(updates <= 0, 0.0, comparison.k * floor)
            allowed = np.maximum(own, np.minimum(noise, MOST_WIDENING * own))
            ceiling = np.maximum(ceiling, noise)
    return Allowance(allowed, ceiling + gap.resolution, own, allowed < gap.resolution)


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
    floor = noise_floor(comparison, gap)
    here = np.searchsorted(gap.steps, step)
    if floor is not None and gap.absolute[here] > comparison.k * floor[here]:
        return f"{spike} only {number(theirs)} off: that spike is the candidate's own"
    return ""


def judge(comparison: Comparison, metric: str) -> Outcome:
    """Is the candidate's metric within what is allowed, at every step?"""
    present = [leg.name for leg in (comparison.baseline, comparison.candidate) if leg.curve(metric)]
    gap = comparison.gap(metric)

    def outcome(status: Status, reason: str, *gaps: MetricGap, warnings: tuple[str, ...] = ()) -> Outcome:
        return Outcome(metric, Kind.PARITY, status, reason, bool(present), gaps, warnings)

    if gap is None or not gap.finite.any():
        return outcome(Status.NOT_RUN, _nothing_to_judge(comparison, metric, gap, present))
    allowed = allowance(comparison, gap)
    numbers = measure(gap, allowed.allowed, noise_floor(comparison, gap))
    story = attribution(comparison, gap, numbers)
    story = f"; {story}" if story else ""
    warnings = tuple(filter(None, [_widened(comparison, gap)]))
    worst, most = number(numbers.worst or 0), number(numbers.allowed or 0)
    where = f"worst {worst} at step {numbers.worst_step}, {most} allowed there"
    over = np.flatnonzero(allowed.over(gap))
    if over.size:
        reason = (
            f"{over.size} of {plural(int(gap.finite.sum()), 'step')} beyond what is allowed, the first at step"
            f" {int(gap.steps[over[0]])}; {where}{story}"
        )
        return outcome(Status.FAIL, reason, numbers, warnings=warnings)
    unclear = unjudged(gap, allowed)
    if unclear:
        return outcome(Status.NOT_RUN, f"{unclear}; {where}{story}", numbers, warnings=warnings)
    lacking = _lacking(comparison, metric, gap)
    if lacking:
        return outcome(Status.NOT_RUN, f"{lacking}; the others are within bounds, {where}", numbers)
    reason = f"{plural(int(gap.steps.size), 'step')} within bounds; {where}{story}"
    return outcome(Status.PASS, reason, numbers, warnings=warnings)


def unjudged(gap: Gap, allowed: Allowance) -> str:
    """Why some steps can be called neither within nor beyond, and what to do; empty if all can."""
    unclear = np.flatnonzero(allowed.unclear(gap))
    if not unclear.size:
        return ""
    i = int(unclear[0])
    step, spacing = int(gap.steps[i]), float(gap.resolution[i])
    if allowed.unprintable[i] or gap.absolute[i] <= allowed.allowed[i] + spacing:
        return (
            f"the log prints {gap.metric} in steps of {number(spacing)}, too coarse for the"
            f" {number(float(allowed.allowed[i]))} allowed at step {step}: log full precision, or give a bound of at"
            f" least {number(float((gap.absolute[i] + spacing) / gap.scale[i]))} relative"
        )
    if gap.absolute[i] <= allowed.own[i] * MOST_WIDENING:
        return (
            f"{plural(int(unclear.size), 'step')} beyond the profile's bound, the first at step {step}, and not by"
            " enough to tell a fault from this model's rounding: give a control, a bound of your own, or fewer steps"
        )
    return (
        f"{plural(int(unclear.size), 'step')} beyond {number(MOST_WIDENING)} times the profile's bound, the first at"
        f" step {step}, yet within the control's noise: the model is noisy, or both carry the same bug, and no leg"
        " here tells which"
    )


def control_beyond(comparison: Comparison, gap: Gap) -> tuple[float, int]:
    """How many times the control's own gap is beyond the profile's bound at most, and the first such step."""
    control = comparison.control_gap(gap.metric)
    if control is None or not control.finite.any():
        return 0.0, 0
    own = comparison.bound(gap.metric).allowed(comparison.updates(control.steps), control.scale)
    times = np.where(control.finite & (control.absolute > 0), control.absolute / own, 0.0)
    over = np.flatnonzero(times > 1)
    return float(times.max()), int(control.steps[over[0]]) if over.size else 0


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


def _widened(comparison: Comparison, gap: Gap) -> str:
    """A warning where the control's own gap is beyond the profile's bound."""
    times, step = control_beyond(comparison, gap)
    if times <= 1 or comparison.control is None:
        return ""
    return (
        f"the control {comparison.control.name} is itself up to {number(times)} times beyond the {gap.metric} bound"
        f" of {comparison.profile.name}, first at step {step}: either this model is noisier than the profile"
        " supposes, or the control carries the same bug"
    )
