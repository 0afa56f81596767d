"""Is the first loss the same, tightly? Nothing has been updated yet: a gap there is a wrong forward."""

import numpy as np

from parity.checks.comparison import Comparison
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.within import measure
from parity.checks.words import number

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Compare the loss of the first step only, against the bound for the first step, which noise never widens."""
    gap = comparison.gap("loss")
    required = gap is not None or bool(comparison.shift) or "forward" in comparison.required

    def not_run(reason: str, required: bool = required) -> Outcome:
        return Outcome("forward", Kind.PARITY, Status.NOT_RUN, reason, required)

    if gap is None:
        return not_run(
            "the legs have no step of loss in common" + (", as they are counted" if comparison.shift else "")
        )
    first = int(gap.steps[0])
    if first != comparison.first_step:
        return not_run(f"step {comparison.first_step}, the first, is not in both legs")
    if first > 1:
        reason = f"the logs begin at step {first}, after weights were updated"
        return not_run(reason, "forward" in comparison.required)
    if not gap.finite[0]:
        return not_run(f"the loss of step {first} is not finite in both legs")
    bound = comparison.bound("loss")
    only = type(gap)(gap.metric, gap.steps[:1], gap.baseline[:1], gap.other[:1], gap.resolution[:1])
    allowed = bound.allowed(np.zeros(1, dtype=np.int64), only.baseline)
    numbers = measure(only, allowed)
    relative = number(numbers.worst or 0)
    if only.absolute[0] > allowed[0] + only.resolution[0]:
        reason = (
            f"the loss already differs by {relative} at step {first}, before any update"
            f" ({number(numbers.allowed or 0)} allowed): a wrong forward, or different initial weights or data"
        )
        return Outcome("forward", Kind.PARITY, Status.FAIL, reason, required, (numbers,))
    if allowed[0] < only.resolution[0]:
        return not_run(
            f"the log prints the loss in steps of {number(float(only.resolution[0]))}, coarser than the"
            f" {number(float(allowed[0]))} allowed at the first step: log full precision, or give a first_rtol of at"
            f" least {number(float(only.resolution[0] / only.scale[0]))}"
        )
    return Outcome(
        "forward",
        Kind.PARITY,
        Status.PASS,
        f"the first loss differs by {relative} ({number(numbers.allowed or 0)} allowed)",
        required,
        (numbers,),
    )
