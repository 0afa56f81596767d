"""Is the first loss the same, tightly? Nothing has been updated yet: a gap there is a wrong forward."""

from parity.checks.allowance import allowance, unjudged
from parity.checks.comparison import Comparison
from parity.checks.noise import noise_floor
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.within import measure
from parity.checks.words import number

__all__ = ["UNSURE", "check"]

UNSURE = "a wrong forward, or different initial weights or data"


def check(comparison: Comparison) -> Outcome:
    """Compare the loss of the first step only, against the bound for the first step.

    No control widens it, and a perturbed leg by no more than `DOUBT`: nothing has amplified rounding yet.
    """
    gap = comparison.gap("loss")

    def outcome(status: Status, reason: str, *gaps: MetricGap, required: bool = True) -> Outcome:
        return Outcome("forward", Kind.PARITY, status, reason, required, gaps)

    if gap is None:
        reason = "the legs have no step of loss in common" + (", as they are counted" if comparison.shift else "")
        return outcome(Status.NOT_RUN, reason, required=bool(comparison.shift))
    first = int(gap.steps[0])
    if first != comparison.first_step:
        return outcome(Status.NOT_RUN, f"step {comparison.first_step}, the first, is not in both legs")
    if not comparison.begins:
        return outcome(Status.NOT_RUN, f"the logs begin at step {first}, after weights were updated", required=False)
    if not gap.finite[0]:
        return outcome(Status.NOT_RUN, f"the loss of step {first} is not finite in both legs")
    only = gap.first()
    allowed = allowance(comparison, only)
    numbers = measure(only, allowed.allowed, noise_floor(comparison, only))
    relative = number(numbers.worst or 0)
    if allowed.over(only)[0]:
        reason = (
            f"the loss already differs by {relative} at step {first}, before any update"
            f" ({number(numbers.allowed or 0)} allowed): {UNSURE}"
        )
        return outcome(Status.FAIL, reason, numbers)
    unclear = unjudged(only, allowed)
    if unclear:
        return outcome(Status.NOT_RUN, f"{unclear} (first_rtol)", numbers)
    return outcome(
        Status.PASS, f"the first loss differs by {relative} ({number(numbers.allowed or 0)} allowed)", numbers
    )
