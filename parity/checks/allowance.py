"""What is allowed at every step: by a person's bound, by measured noise, or by a profile's guess."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import WHOLE, Comparison, Gap
from parity.checks.noise import horizon, measured_by_perturbing, noise_floor, sane_legs
from parity.checks.words import number, plural

__all__ = ["DOUBT", "MOST_WIDENING", "Allowance", "allowance", "control_beyond", "unjudged"]

# How many times a control may widen a profile's bound. The published even control over NCCL (DeepSpeedExamples#1008)
# is up to 15 times beyond the bound of fp32-cpu in its first 50 steps. Beyond this, nothing tells a noisy model from
# a control that carries the candidate's bug.
MOST_WIDENING = 32.0

# How many times beyond a profile's bound a later step is still in doubt, where no control measured the noise.
DOUBT = 4.0


@dataclass(frozen=True, eq=False)
class Allowance:
    """What is allowed at each step of a gap. All arrays have shape (n,); bounds are float64 and absolute.

    Attributes:
        allowed: up to here a step is within.
        ceiling: beyond here it is not; between the two it cannot be told.
        own: what the bound alone allows.
        unprintable: where the bound is finer than the spacing of the printed numbers: bool.
        judged: up to the evidence horizon: bool. Later steps are shown, and only a gap that no noise explains keeps
            them from being passed over.
    """

    allowed: NDArray[np.float64]
    ceiling: NDArray[np.float64]
    own: NDArray[np.float64]
    unprintable: NDArray[np.bool_]
    judged: NDArray[np.bool_]

    def over(self, gap: Gap) -> NDArray[np.bool_]:
        """Steps that are beyond anything allowed."""
        return gap.finite & self.judged & (gap.absolute > self.ceiling)

    def unclear(self, gap: Gap) -> NDArray[np.bool_]:
        """Steps of which nothing can be said."""
        within = self.judged & ~self.over(gap) & (self.unprintable | (gap.absolute > self.allowed))
        return gap.finite & (within | self.beyond(gap))

    def beyond(self, gap: Gap) -> NDArray[np.bool_]:
        """Steps after the horizon that are further out than anything seen of correct runs there."""
        return gap.finite & ~self.judged & (gap.absolute > self.ceiling)


def allowance(comparison: Comparison, gap: Gap) -> Allowance:
    """What a metric's bound allows.

    A bound that a person wrote stands as it is. A profile's bound is a guess about this model. Where a perturbed leg
    shows what one ulp does to it, `k` times the noise floor takes the guess's place, up to the evidence horizon.
    Where only a control measured noise, the guess gives way to it: not at the first step, where nothing has amplified
    rounding, and no further than `MOST_WIDENING`, for the control may carry the same bug. Two printed numbers can
    differ by one spacing though the values do not, so a gap that close to the bound, or a bound finer than the
    spacing, cannot be judged.
    """
    bound = comparison.bound(gap.metric)
    updates = comparison.updates(gap.steps)
    first = updates <= 0
    own = bound.allowed(updates, gap.scale)
    judged = first | (gap.steps <= horizon(comparison, gap.metric))
    if bound.explicit:
        return _made(gap, own, own, own, judged)
    # A profile knows nothing finer than the numbers that the run computed in.
    guess = np.maximum(own, gap.spacing)
    floor = noise_floor(comparison, gap)
    noise = np.zeros(own.shape) if floor is None else np.maximum(comparison.k * floor, gap.spacing)
    if measured_by_perturbing(comparison, gap.metric):
        # Before any update nothing amplifies one ulp, so a perturbed leg far out there is none.
        noise = np.where(first, np.minimum(noise, DOUBT * guess), noise)
        allowed = ceiling = np.maximum(noise, guess) if comparison.profile.only_widens else noise
    else:
        noise = np.where(first, 0.0, noise)
        allowed = np.maximum(guess, np.minimum(noise, MOST_WIDENING * guess))
        ceiling = np.maximum(guess, noise)
        if not set(comparison.controls) & set(sane_legs(comparison)):
            # Nor does it know what rounding does to this model: correct layouts of small models at a high learning
            # rate were 2.4 times beyond in 12 steps, and beyond `steady_steps` nobody measured. The smallest real bug
            # in the logs was 8 times beyond.
            doubtful = np.where(updates > bound.steady_steps, MOST_WIDENING, DOUBT)
            ceiling = np.where(first, ceiling, np.maximum(ceiling, doubtful * guess))
    if bound.first_explicit:
        allowed, ceiling = np.where(first, own, allowed), np.where(first, own, ceiling)
    return _made(gap, allowed, ceiling, guess, judged)


def _made(
    gap: Gap,
    allowed: NDArray[np.float64],
    ceiling: NDArray[np.float64],
    own: NDArray[np.float64],
    judged: NDArray[np.bool_],
) -> Allowance:
    # Equal numbers that were printed to the last digit are equal; of fewer digits nobody knows.
    equal = (gap.absolute == 0) & (gap.resolution <= WHOLE * np.abs(gap.baseline))
    return Allowance(allowed, ceiling + gap.resolution, own, (allowed < gap.resolution) & ~equal, judged)


def unjudged(gap: Gap, allowed: Allowance) -> str:
    """Why some steps can be called neither within nor beyond, and what to do; empty if all can."""
    unclear = np.flatnonzero(allowed.unclear(gap))
    if not unclear.size:
        return ""
    i = int(unclear[0])
    step, spacing = int(gap.steps[i]), float(gap.resolution[i])
    if not allowed.judged[i]:
        return (
            f"{plural(int(unclear.size), 'step')} after the evidence horizon, the first step {step}, are"
            f" {number(float(gap.absolute[i] / allowed.allowed[i]))} times beyond what noise explains, where noise"
            " already hides a fault: fewer steps, a lower learning rate or a more precise dtype would tell"
        )
    printed = allowed.unprintable | (gap.absolute <= allowed.allowed + gap.resolution)
    if printed[i]:
        least = ((gap.absolute + gap.resolution) / gap.scale)[unclear][printed[unclear]].max()
        return (
            f"the log prints {gap.metric} in steps of {number(spacing)} and hides any gap below that, too coarse for"
            f" the {number(float(allowed.allowed[i]))} allowed at step {step}: log full precision, or give a bound of"
            f" at least {number(float(least))} relative"
        )
    if gap.absolute[i] <= allowed.own[i] * MOST_WIDENING:
        return (
            f"{plural(int(unclear.size), 'step')} beyond the profile's bound, the first at step {step}, and not by"
            " enough to tell a fault from this model's rounding: give a perturbed leg or a control, a bound of your"
            " own, or fewer steps"
        )
    return (
        f"{plural(int(unclear.size), 'step')} beyond {number(MOST_WIDENING)} times the profile's bound, the first at"
        f" step {step}, yet within the control's noise: the model is noisy, or both carry the same bug; a perturbed"
        " leg tells which"
    )


def control_beyond(comparison: Comparison, gap: Gap) -> tuple[float, int, str]:
    """How many times a control's own gap is beyond the profile's bound at most, the first such step, and whose."""
    most, first, name = 0.0, 0, ""
    for control in comparison.controls:
        theirs = comparison.gap_of(gap.metric, control)
        if theirs is None or not theirs.finite.any():
            continue
        own = comparison.bound(gap.metric).allowed(comparison.updates(theirs.steps), theirs.scale)
        times = np.where(theirs.finite & (theirs.absolute > 0), theirs.absolute / own, 0.0)
        if times.max() > most:
            over = np.flatnonzero(times > 1)
            most, name = float(times.max()), control.name
            first = int(theirs.steps[over[0]]) if over.size else 0
    return most, first, name
