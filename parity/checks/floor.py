"""The noise floor: how far two correct runs differ here, as measured by the control."""

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Gap

__all__ = ["noise_floor"]


def noise_floor(comparison: Comparison, metric: str, gap: Gap) -> NDArray[np.float64] | None:
    """Absolute noise floor at each step of `gap`, float64 (n,), or None where no control measured it.

    The floor is the running maximum of the control's relative gap, so that a control which happens to agree at
    one step does not claim that the run has no noise there. It is never less than a multiple of the dtype's
    epsilon at the value, nor than the spacing of the printed numbers.
    """
    control = comparison.control_gap(metric)
    if control is None or not control.finite.any():
        return None
    running = np.maximum.accumulate(np.where(control.finite, control.relative, 0.0))
    # Steps that the control lacks take the floor of the last step that it has.
    at = np.searchsorted(control.steps, gap.steps, side="right") - 1
    measured = np.where(at >= 0, running[np.maximum(at, 0)], 0.0)
    least = comparison.profile.epsilon * comparison.profile.floor_epsilons
    floor: NDArray[np.float64] = np.maximum(np.maximum(measured, least) * gap.scale, gap.resolution)
    return floor
