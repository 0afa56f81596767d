"""Is each parameter's gradient the same at the first steps? Half of the real bugs leave the loss equal."""

from parity.checks.comparison import Comparison
from parity.checks.outcome import Outcome
from parity.checks.per_parameter import judge_parameters

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Compare the gradient of every parameter, before clipping, at every step that both legs sketched."""
    return judge_parameters(comparison, "gradients", "gradients", comparison.profile.gradient)
