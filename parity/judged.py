"""What was judged, beside its result: for files that hold every step, which a result does not."""

from collections.abc import Mapping
from dataclasses import dataclass

from parity.checks.comparison import Comparison, Leg
from parity.result import Result

__all__ = ["Judged"]


@dataclass(frozen=True, eq=False)
class Judged:
    """A result, and what it was made of.

    Attributes:
        result: the result.
        legs: by name, those that left curves.
        comparisons: those of which both legs left curves.
    """

    result: Result
    legs: Mapping[str, Leg]
    comparisons: tuple[Comparison, ...]
