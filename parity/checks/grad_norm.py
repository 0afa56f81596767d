"""Is the gradient norm within what is allowed at every step?"""

from parity.checks.comparison import Comparison
from parity.checks.outcome import Outcome
from parity.checks.within import judge

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Compare the gradient norm step by step; a step, a value or a leg's curve that is not there is never within."""
    return judge(comparison, "grad_norm")
