"""A logarithmic axis for what may be zero, infinite or no number."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from parity.report import text

__all__ = ["LogAxis"]

_DECADES = 8  # with a tick, on a logarithmic axis


@dataclass(frozen=True)
class LogAxis:
    """A logarithmic axis on which an exact zero has a place too: one decade below the smallest value."""

    bottom: float
    top: float
    zeros: bool

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "LogAxis":
        known = [value for value in values if value is not None and math.isfinite(value)]
        # Beyond these a power of ten is no float64.
        sizes = [min(max(value, 1e-300), 1e300) for value in known if value > 0] or [1e-8]
        zeros = any(value == 0 for value in known)
        low, high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
        return cls(10.0 ** (low - zeros), 10.0 ** max(high, low + 1), zeros)

    def place(self, value: float | None, broken: float | None = None) -> float | None:
        """Where a value is drawn; None, or `broken`, for what is not finite."""
        if value is None:
            return None
        if not math.isfinite(value):
            return broken
        return min(max(value, self.bottom), self.top)

    def ticks(self) -> list[tuple[float, str]]:
        """Places and labels."""
        low, high = round(math.log10(self.bottom)), round(math.log10(self.top))
        decades = range(low + self.zeros, high + 1, max(1, -(-(high - low) // _DECADES)))
        return [(self.bottom, "0")] * self.zeros + [(10.0**at, text.gap(10.0**at)) for at in decades]

    def layout(self) -> dict[str, Any]:
        ticks = self.ticks()
        low, high = math.log10(self.bottom), math.log10(self.top)
        return {
            "type": "log", "range": [low - 0.04 * (high - low), high + 0.08 * (high - low)],
            "tickvals": [place for place, _ in ticks], "ticktext": [label for _, label in ticks],
        }  # fmt: skip
