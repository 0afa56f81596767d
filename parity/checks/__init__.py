"""The checks: named questions put to a comparison. Curves in, outcomes out; no files, no clock, no torch."""

from dataclasses import replace
from types import ModuleType

import numpy as np

from parity.checks import (
    complete,
    control,
    drift,
    finite,
    forward,
    grad_norm,
    gradients,
    initial_state,
    layout,
    loss,
    norm_consistent,
    replicas,
    same_data,
    trained,
    update,
)
from parity.checks.comparison import Comparison
from parity.checks.outcome import Outcome

__all__ = ["CHECKS", "run_checks"]

# In the order of the report: first whether the runs can be compared, then whether they agree. A check's name is the
# name of its module; a new check is a module with a function `check`, added here.
_MODULES: tuple[ModuleType, ...] = (
    complete,
    finite,
    trained,
    initial_state,
    same_data,
    layout,
    forward,
    loss,
    grad_norm,
    norm_consistent,
    gradients,
    update,
    replicas,
    drift,
    control,
)

CHECKS = tuple(module.__name__.rpartition(".")[2] for module in _MODULES)


# Values may be anything that a run printed; a gap too large for a float is infinite, and beyond every bound.
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def run_checks(comparison: Comparison) -> tuple[Outcome, ...]:
    """Every check's outcome, in the order of `CHECKS`. What the comparison requires is required, whatever it says."""
    outcomes = [module.check(comparison) for module in _MODULES]
    return tuple(replace(one, required=one.required or one.check in comparison.required) for one in outcomes)
