"""All checks on one comparison."""

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
    reference,
    replicas,
    same_data,
    trained,
    update,
)
from parity.checks.comparison import Comparison
from parity.checks.forward import UNSURE
from parity.checks.outcome import Outcome, Status, Verdict

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
    reference,
)

# Checks that a difference in start or data decides, and those that then say nothing more.
_START = ("initial_state", "same_data")
_FOLLOWS = ("forward", "loss", "grad_norm", "gradients", "update", "drift", "control", "reference")

CHECKS = tuple(module.__name__.rpartition(".")[2] for module in _MODULES)


# Values may be anything that a run printed; a gap too large for a float is infinite, and beyond every bound.
@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def run_checks(comparison: Comparison) -> tuple[Outcome, ...]:
    """Every check's outcome, in the order of `CHECKS`. What the comparison requires is required, whatever it says."""
    outcomes = [module.check(comparison) for module in _MODULES]
    start = [one for one in outcomes if one.check in _START]
    if all(one.status is Status.PASS for one in start):
        outcomes = [_same_start(one) if one.check == "forward" else one for one in outcomes]
    elif any(one.status is Status.FAIL and one.verdict is Verdict.INCONCLUSIVE for one in start):
        # Runs that start from other weights or train on other samples differ for that reason alone.
        outcomes = [_not_judged(one) if one.check in _FOLLOWS else one for one in outcomes]
    return tuple(replace(one, required=one.required or one.check in comparison.required) for one in outcomes)


def _same_start(outcome: Outcome) -> Outcome:
    """A gap at the first step leaves only the forward, where weights and data were shown to be the same."""
    sure = "the forward is wrong, for weights and data are the same"
    return replace(outcome, reason=outcome.reason.replace(UNSURE, sure))


def _not_judged(outcome: Outcome) -> Outcome:
    if outcome.status is not Status.FAIL:
        return outcome
    reason = f"not judged, for the legs differ in their start or their data: {outcome.reason}"
    return replace(outcome, status=Status.NOT_RUN, reason=reason)
