"""What each rank of a leg holds, as rows of strips to draw."""

from dataclasses import dataclass

from parity.checks.words import plural, spans
from parity.result import LegResult
from parity.result.drawn import PartResult, ShardedResult

__all__ = ["Holdings", "Strip", "holdings"]

# Beyond these, a border between heads is finer than a strip can show.
_MOST_BORDERS = 128


@dataclass(frozen=True)
class Strip:
    """A part of a whole.

    Attributes:
        said: the part in words.
        size: of the whole.
        parts: `(start, length)` each.
        borders: where a head begins, without the first.
        wrong: it cuts through a head.
    """

    said: str
    size: int
    parts: tuple[tuple[int, int], ...]
    borders: tuple[int, ...] = ()
    wrong: bool = False


@dataclass(frozen=True)
class Holdings:
    """One leg's ranks.

    Attributes:
        leg: its name.
        layout: the axes that are more than one, such as `tp=3`.
        alone: what its only rank holds, where there is one; then there is nothing to draw.
        columns: heading and explanation of each strip.
        rows: of each rank its number, coordinates, parameters' elements, and a strip a column, or None.
    """

    leg: str
    layout: str
    alone: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, str, str, tuple[Strip | None, ...]], ...]


def holdings(leg: LegResult) -> Holdings | None:
    """What the ranks of a leg hold; None where nothing was recorded."""
    if not leg.holds:
        return None
    layers = 1 + max((layer for rank in leg.holds for layer in rank.layers or ()), default=-1)
    firsts = list(dict.fromkeys(one.first for rank in leg.holds for one in rank.experts))
    experts = {first: 1 + max((e for rank in leg.holds for one in rank.experts if one.first == first
                               for e in one.experts), default=-1) for first in firsts}  # fmt: skip
    columns = [("layers", f"of {layers}")] if layers else []
    columns += [(f"experts of {first}", f"of {size}") for first, size in experts.items()]
    columns += [(one.group, _about(one)) for one in leg.sharded]
    rows = []
    for rank in leg.holds:
        strips: list[Strip | None] = [_some(rank.layers or [], layers)] if layers else []
        held = {one.first: one.experts for one in rank.experts}
        strips += [_some(held.get(first, []), size) for first, size in experts.items()]
        strips += [
            next((_part(one, part) for part in one.parts if part.rank == rank.rank), None) for one in leg.sharded
        ]
        axes = [axis for axis, size in leg.layout.items() if size > 1]
        where = ", ".join(f"{axis} {rank.coordinates[axis]}" for axis in axes if axis in rank.coordinates)
        rows.append((str(rank.rank), where, f"{rank.elements:,}", tuple(strips)))
    layout = " ".join(f"{axis}={size}" for axis, size in leg.layout.items() if size > 1)
    alone = ""
    if len(rows) == 1:
        alone = f"One rank holds all {leg.holds[0].elements:,} elements" + (
            f" of {plural(layers, 'layer')}." if layers else "."
        )
    return Holdings(leg.name, layout, alone, tuple(columns), tuple(rows))


def _about(one: ShardedResult) -> str:
    unit = "columns" if one.dimension else "rows"
    whole = plural(one.size // one.head_size, "head") if one.head_size else f"{one.size:,} {unit}"
    return f"{one.name}, {whole}" + (f", cut by {one.axis}" if one.axis else "")


def _some(held: list[int], size: int) -> Strip:
    """Things that are counted, such as layers."""
    known = sorted(set(held))
    parts = tuple((one, 1) for one in known)
    return Strip(spans(known) if known else "none", max(1, size), parts, _borders(size, 1))


def _part(one: ShardedResult, part: PartResult) -> Strip:
    parts = ((part.start, part.stop - part.start),)
    if one.head_size is None:
        return Strip(_span(part.start, part.stop), max(1, one.size), parts)
    cut = bool(part.start % one.head_size or part.stop % one.head_size)
    if cut:
        said = f"rows {_span(part.start, part.stop)}: cut through a head of {one.head_size} rows"
    else:
        said = f"heads {_span(part.start // one.head_size, part.stop // one.head_size)}"
    return Strip(said, max(1, one.size), parts, _borders(one.size, one.head_size), cut)


def _span(start: int, stop: int) -> str:
    """From `start` up to, without, `stop`."""
    return "none" if stop <= start else f"{start:,}" if stop == start + 1 else f"{start:,}–{stop - 1:,}"


def _borders(size: int, every: int) -> tuple[int, ...]:
    return tuple(range(every, size, every)) if size <= _MOST_BORDERS * every else ()
