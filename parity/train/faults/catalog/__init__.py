"""Every fault, by name."""

from parity.train.faults.catalog import forward, gradients, reports, state
from parity.train.faults.fault import Fault, Hint

__all__ = ["FAULTS", "Fault", "Hint"]

FAULTS: dict[str, Fault] = {
    fault.name: fault for module in (forward, gradients, reports, state) for fault in module.FAULTS
}
"""In the order of the kinds: wrong forward, wrong gradients, wrong reports, wrong state and controls."""
