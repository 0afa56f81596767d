"""Did each run train? Two dead runs agree perfectly."""

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import number, plural, spans

__all__ = ["check"]

# A run with uninitialised weights kept its loss at ln(32000) = 10.37 within 1e-4 (NVIDIA-NeMo/Automodel#3701).
_LEAST_SPREAD = 1e-5


def check(comparison: Comparison) -> Outcome:
    """Fail where a leg's gradient norm, learning rate or recorded updates are zero, or its loss does not move."""
    legs = tuple(comparison.legs())
    problems = [problem for leg in legs for problem in _problems(leg)]
    if problems:
        return Outcome("trained", Kind.COMPARABILITY, Status.FAIL, "; ".join(problems))
    unknown = [leg.name for leg in legs if not _moves(leg) and not _has_gradient(leg)]
    if unknown:
        reason = f"{' and '.join(unknown)}: one step of loss and no gradient norm do not tell"
        return Outcome("trained", Kind.COMPARABILITY, Status.NOT_RUN, reason)
    spreads = ", ".join(f"{number(_spread(leg))} in {leg.name}" for leg in legs if _moves(leg))
    said = f"the loss moved, relative to its largest value: {spreads}" if spreads else "the gradient norm is not zero"
    return Outcome("trained", Kind.COMPARABILITY, Status.PASS, said)


def _problems(leg: Leg) -> list[str]:
    found = []
    norm, rate = leg.curve("grad_norm"), leg.curve("lr")
    if norm is not None:
        zero = norm.steps[norm.values == 0]
        if zero.size:
            found.append(
                f"{leg.name} has a gradient norm of 0 at {plural(int(zero.size), 'step')} ({spans(zero.tolist())})"
            )
    if rate is not None and (rate.values == 0).all():
        found.append(f"{leg.name} has a learning rate of 0 throughout")
    if _moves(leg) and _spread(leg) <= _LEAST_SPREAD:
        found.append(f"{leg.name}'s loss moves by only {number(_spread(leg))} relative over the run")
    still = _still(leg)
    if still:
        found.append(f"no update of {leg.name} changed any weight ({plural(still, 'step')} recorded)")
    return found


def _still(leg: Leg) -> int:
    """How many steps' updates were recorded, if none of them changed a weight; else 0."""
    if leg.records is None:
        return 0
    norms = [update.norms for rank in leg.records.ranks for update in rank.updates.values()]
    if any(bool((one > 0).any()) for one in norms) or not any(bool((one == 0).any()) for one in norms):
        return 0
    return len({step for rank in leg.records.ranks for step in rank.updates})


def _moves(leg: Leg) -> bool:
    """Whether there is enough of the loss to see it move."""
    loss = leg.curve("loss")
    return loss is not None and int(np.isfinite(loss.values).sum()) >= 2


def _spread(leg: Leg) -> float:
    loss = leg.curve("loss")
    assert loss is not None
    values = loss.values[np.isfinite(loss.values)]
    size = float(np.abs(values).max())
    return float(np.ptp(values)) / size if size else 0.0


def _has_gradient(leg: Leg) -> bool:
    norm = leg.curve("grad_norm")
    return norm is not None and bool((norm.values > 0).any())
