"""Every leg's curves as one table of comma-separated values, for a notebook or a spreadsheet.

A row is one leg's value of one metric at one step. Where the leg is a comparison's candidate and the metric is
judged, the row also has the baseline's value there, the size of the gap, what was allowed and the noise floor, all in
the metric's own unit; a candidate of several baselines has a row for each.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from parity.checks.allowance import allowance
from parity.checks.comparison import JUDGED, Comparison, Leg
from parity.checks.noise import noise_floor
from parity.curves.curve import Curve
from parity.judged import Judged
from parity.plain import plain

__all__ = ["COLUMNS", "MOST_ROWS", "render_curves"]

COLUMNS = ("leg", "metric", "step", "value", "baseline", "baseline_value", "gap", "allowed", "floor")

# Five legs of 10,000 steps have 150,000 rows; this many take 40 MB and two seconds.
MOST_ROWS = 300_000


def render_curves(judged: Judged, most: int = MOST_ROWS) -> tuple[str, int]:
    """The text of `curves.csv`, and of how many steps it has one.

    Args:
        judged: what was judged.
        most: rows, more or less. If there are more, each curve has every n-th of its steps, counted from its first,
            its last, and those at which a value is not finite or a gap is the largest in units of what is allowed.
    """
    tables = list(_tables(judged))
    rows = sum(curve.steps.size for _, curve, _ in tables)
    every = max(1, math.ceil(rows / most))
    lines = (_rows(leg, curve, comparison, every) for leg, curve, comparison in tables)
    return "".join([",".join(COLUMNS), "\n", *chain.from_iterable(lines)]), every


def _tables(judged: Judged) -> Iterator[tuple[Leg, Curve, Comparison | None]]:
    for name, leg in judged.legs.items():
        mine = [one for one in judged.comparisons if one.candidate.name == name]
        for metric, curve in leg.curves.curves.items():
            against = [one for one in mine if metric in JUDGED and one.gap(metric) is not None]
            if not against:
                yield leg, curve, None
            for comparison in against:
                yield leg, curve, comparison


def _rows(leg: Leg, curve: Curve, comparison: Comparison | None, every: int) -> Iterator[str]:
    kept = np.zeros(curve.steps.size, dtype=np.bool_)
    kept[::every], kept[-1:] = True, True
    kept |= ~np.isfinite(curve.values)
    more: list[Iterable[str]] = [repeat("")] * 5
    if comparison is not None:
        more = [repeat(_word(comparison.baseline.name)), *_against(comparison, curve, kept)]
    start = f"{_word(leg.name)},{_word(curve.metric)}"
    for step, *cells in zip(curve.steps[kept].tolist(), _written(curve.values[kept]), *more, strict=False):
        yield f"{start},{step},{','.join(cells)}\n"


def _against(comparison: Comparison, curve: Curve, kept: NDArray[np.bool_]) -> list[list[str]]:
    """The baseline's value, the gap, what is allowed and the floor, at the curve's steps that are kept; a step that
    the baseline lacks has none. Keeps the worst step too.
    """
    gap = comparison.gap(curve.metric)
    assert gap is not None
    allowed = allowance(comparison, gap).allowed
    at = np.searchsorted(curve.steps, gap.steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        times = np.where(gap.absolute > 0, gap.absolute / allowed, -1.0)
    kept[at[int(np.argmax(times))]] = True
    wanted = kept[at]
    places = (np.cumsum(kept) - 1)[at[wanted]].tolist()
    columns = []
    for values in (gap.baseline, gap.absolute, allowed, noise_floor(comparison, gap)):
        column = [""] * int(kept.sum())
        if values is not None:
            for place, text in zip(places, _written(values[wanted]), strict=True):
                column[place] = text
        columns.append(column)
    return columns


def _written(values: NDArray[np.float64]) -> Iterator[str]:
    """The shortest text that reads back as the same number; what is none is spelled as in `result.json`."""
    return map(_number, values.tolist())


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _word(name: str) -> str:
    """A name as one cell, and none that a spreadsheet would compute."""
    word = plain(name)
    word = f"'{word}" if word[:1] in ("=", "+", "-", "@") else word
    return '"' + word.replace('"', '""') + '"' if {",", '"'} & {*word} else word
