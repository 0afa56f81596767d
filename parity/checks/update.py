"""Did the first optimizer steps change each parameter alike? Optimizer bugs leave loss and gradients equal."""

from parity.checks.comparison import Comparison
from parity.checks.outcome import Outcome
from parity.checks.per_parameter import judge_parameters

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Compare what each optimizer step changed of every parameter, at every step that both legs sketched."""
    return judge_parameters(comparison, "update", "updates", comparison.profile.update)
