"""Faults that can be put into the embedded trainer: one small mistake each, as a real framework made it."""

from parity.train.faults.catalog import FAULTS, Fault, Hint

__all__ = ["FAULTS", "Fault", "Hint"]
