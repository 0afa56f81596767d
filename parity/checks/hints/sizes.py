"""Ratios that are a size of the layout, its inverse or its square root."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from parity.checks.comparison import Leg
from parity.layout import AXES, Layout

__all__ = ["RANKS", "Match", "Size", "match", "ratio_text", "sizes_of"]

RANKS = {
    "dp": "the data parallel ranks",
    "fsdp": "the fully sharded ranks",
    "tp": "the tensor parallel ranks",
    "pp": "the pipeline stages",
    "ep": "the expert parallel ranks",
    "cp": "the context parallel ranks",
    "dp × fsdp": "the data parallel and fully sharded ranks",
    "dp × fsdp × cp": "the data and context parallel ranks",
    "world size": "all ranks",
    "micro-batches": "the micro-batches",
}

# In the order in which a ratio is taken for one: a size of two powers may be another's root.
_POWERS = ((1.0, "{}"), (-1.0, "1/{}"), (0.5, "√{}"), (-0.5, "1/√{}"), (2.0, "{}²"), (-2.0, "1/{}²"))


@dataclass(frozen=True)
class Size:
    """A number that a mistake in the layout may multiply or divide by.

    Attributes:
        name: an axis, a product of axes, `micro-batches` or `world size`.
        value: at least 2.
        shared: the baseline has the same, so that its mistake would be in both legs.
    """

    name: str
    value: int
    shared: bool = False


@dataclass(frozen=True)
class Match:
    """A ratio that is a power of a size.

    Attributes:
        size: the size that is most likely meant.
        power: 1, -1, 0.5, -0.5, 2 or -2.
        formula: such as `1/√tp`.
        others: names of other sizes that give the same number.
    """

    size: Size
    power: float
    formula: str
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        also = f", like {' and '.join(self.others)}" if self.others else ""
        told = f"{self.size.name} = {self.size.value}{also}"
        return told if self.power == 1 else f"{self.formula}, with {told}"


def sizes_of(baseline: Leg, candidate: Leg) -> tuple[Size, ...]:
    """The candidate's sizes above 1, those that the baseline does not share first."""
    mine, theirs = _sizes(candidate), _sizes(baseline)
    found = [Size(name, value, theirs.get(name) == value) for name, value in mine.items() if value > 1]
    return tuple(sorted(found, key=lambda size: size.shared and size.name != "micro-batches"))


def match(ratio: float, sizes: Sequence[Size], tolerance: float, prefer: Iterable[str] = ()) -> Match | None:
    """The size that a ratio is, the simplest power first and the preferred names first of equal numbers.

    Args:
        ratio: the candidate's over the baseline's.
        sizes: those that are possible.
        tolerance: relative.
        prefer: names, the most likely first.
    """
    if not (math.isfinite(ratio) and ratio > 0) or abs(ratio - 1) <= tolerance:
        return None
    order: dict[str, int] = {}
    for name in prefer:
        order.setdefault(name, len(order))
    ranked = sorted(sizes, key=lambda size: (size.shared and size.name != "micro-batches", order.get(size.name, 99)))
    for power, form in _POWERS:
        hits = [size for size in ranked if abs(ratio / size.value**power - 1) <= tolerance]
        if hits:
            others = tuple(size.name for size in hits[1:] if size.name in AXES or size.name == "micro-batches")
            return Match(hits[0], power, form.format(hits[0].name), others)
    return None


def ratio_text(ratio: float) -> str:
    """Four significant digits, zeros kept: a ratio of 2.000 is known to be no 2.01."""
    return f"{ratio:#.4g}" if math.isfinite(ratio) and ratio < 1e4 else f"{ratio:.6g}"


def _sizes(leg: Leg) -> dict[str, int]:
    layout = leg.layout.sizes() if leg.layout is not None else {}
    ranks = leg.records.ranks if leg.records is not None else ()
    if leg.layout is None:
        layout = {a: 1 + max((rank.coordinates.get(a, 0) for rank in ranks), default=0) for a in AXES}
    dp, fsdp, cp = (layout.get(axis, 1) for axis in ("dp", "fsdp", "cp"))
    found = dict(layout)
    if dp > 1 and fsdp > 1:
        found["dp × fsdp"] = dp * fsdp
    if cp > 1 and dp * fsdp > 1:
        found["dp × fsdp × cp"] = dp * fsdp * cp
    world = Layout(**layout).world_size if layout else 1
    world = max([world, *(rank.world_size for rank in ranks)])
    found["world size"] = world
    counts = {batch.micro_batches for rank in ranks for batch in rank.batches.values()} - {None}
    if len(counts) == 1:
        found["micro-batches"] = next(iter(count for count in counts if count is not None))
    return found
