"""The noise floor: how far two correct runs differ here, as measured by the control."""

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Gap

__all__ = ["noise_floor"]

# A value less than a tenth of the run's median is measured against that: a loss that crosses zero would otherwise
# make any difference there infinite, and a running maximum keep it.
_LEAST_OF_MEDIAN = 0.1


def noise_floor(comparison: Comparison, gap: Gap) -> NDArray[np.float64] | None:
    """Absolute noise floor at each step of `gap`, float64 (n,), or None where no control measured it.

    The floor is the running maximum of the control's relative gap, so that a control which happens to agree at
    one step does not claim that the run has no noise there. It is never less than a multiple of the dtype's
    epsilon at the value.
    """
    control = comparison.control_gap(gap.metric)
    if control is None or not control.finite.any():
        return None
    size = _size(control.baseline)
    running = np.maximum.accumulate(np.where(control.finite, control.absolute / _scale(control.baseline, size), 0.0))
    # Steps that the control lacks take the floor of the last step that it has.
    at = np.searchsorted(control.steps, gap.steps, side="right") - 1
    measured = np.where(at >= 0, running[np.maximum(at, 0)], 0.0)
    least = comparison.profile.epsilon * comparison.profile.floor_epsilons
    return np.maximum(measured, least) * _scale(gap.baseline, size)


def _size(values: NDArray[np.float64]) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(np.median(finite)) if finite.size else 0.0


def _scale(values: NDArray[np.float64], size: float) -> NDArray[np.float64]:
    least = max(_LEAST_OF_MEDIAN * size, float(np.finfo(np.float64).tiny))
    scale: NDArray[np.float64] = np.maximum(np.abs(np.where(np.isfinite(values), values, 0.0)), least)
    return scale
