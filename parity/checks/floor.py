"""How far a leg that should agree with the baseline is from it, up to each step."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Gap, Leg

__all__ = ["floor_of", "running"]

# A value less than a tenth of the run's median is measured against that: a loss that crosses zero would otherwise
# make any difference there infinite, and a running maximum keep it.
_LEAST_OF_MEDIAN = 0.1

# The floor looks ahead by a quarter of the steps done, and three.
_STEPS_AHEAD = 3
_PART_AHEAD = 4


def running(gap: Gap) -> NDArray[np.float64]:
    """Running maximum of a leg's relative gap, three steps and a quarter of the way ahead: float64 (n,).

    A maximum, because a leg that happens to agree at one step does not claim that the run has no noise there. Ahead,
    because rounding is amplified from a chance event on, which two correct runs meet at different steps: in 171 pairs
    of correct runs of the embedded models the gradient norm was up to 7.0 times beyond the running maximum of
    another's, and 3.8 times with the look ahead; of a gemma4 whose noise grew a hundredfold in three steps, 13.7
    times. Steps that are not finite add nothing.
    """
    relative = np.where(gap.finite, gap.absolute / _scale(gap.baseline, _size(gap.baseline)), 0.0)
    at = np.arange(relative.size)
    ahead = np.minimum(at + _STEPS_AHEAD + at // _PART_AHEAD, relative.size - 1)
    # Nothing is amplified before the first update.
    largest: NDArray[np.float64] = np.maximum.accumulate(relative)[np.where(at == 0, 0, ahead)]
    return largest


def floor_of(comparison: Comparison, gap: Gap, legs: Iterable[Leg]) -> NDArray[np.float64] | None:
    """The largest `running` of any of the legs at each step of `gap`, at least a multiple of the dtype's epsilon at
    the value: absolute, float64 (n,). None where none of them has the metric."""
    size = _size(gap.baseline)
    measured = None
    for leg in legs:
        theirs = comparison.gap_of(gap.metric, leg)
        if theirs is None or not theirs.finite.any():
            continue
        # Steps that the leg lacks take the floor of the last step that it has.
        at = np.searchsorted(theirs.steps, gap.steps, side="right") - 1
        of_leg = np.where(at >= 0, running(theirs)[np.maximum(at, 0)], 0.0)
        measured = of_leg if measured is None else np.maximum(measured, of_leg)
    if measured is None:
        return None
    return np.maximum(measured, comparison.profile.least_floor) * _scale(gap.baseline, size)


def _size(values: NDArray[np.float64]) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(np.median(finite)) if finite.size else 0.0


def _scale(values: NDArray[np.float64], size: float) -> NDArray[np.float64]:
    least = max(_LEAST_OF_MEDIAN * size, float(np.finfo(np.float64).tiny))
    scale: NDArray[np.float64] = np.maximum(np.abs(np.where(np.isfinite(values), values, 0.0)), least)
    return scale
