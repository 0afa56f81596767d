"""Faults that can be put into the embedded trainer: one small mistake each, as a real framework made it.

A fault is one entry of `catalog`, which needs no torch, and one function of its name in a file beside this one, which
is given the trainer at a moment of its building and replaces a method, a shard or a part of the model (`injection`).
"""

from parity.train.faults.catalog import FAULTS, Fault, Hint
from parity.train.faults.fitting import misfit

__all__ = ["FAULTS", "Fault", "Hint", "misfit"]
