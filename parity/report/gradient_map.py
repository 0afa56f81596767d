"""The map of the HTML report: how far out each parameter's gradient is at each sketched step."""

import math
from dataclasses import dataclass
from itertools import groupby

from parity.checks.words import plural
from parity.plain import plain
from parity.report import text
from parity.report.figures import Figure, for_plotly
from parity.report.log_axis import LogAxis
from parity.result import ComparisonResult
from parity.result.drawn import GradientMap

__all__ = ["gradient_map"]

_ROUNDING = 1e-6  # a distance of gradients that is rounding in any dtype, and stays dark
_ROW, _LEAST, _MOST = 14, 160, 900  # heights of a map, in pixels


def gradient_map(comparison: ComparisonResult) -> Figure | None:
    """A map of how far each parameter's gradient is from the baseline's, at each sketched step."""
    drawn = comparison.gradients
    if drawn is None or not drawn.names:
        return None
    known = [cell for row in drawn.distance for cell in row if cell is not None]
    axis = LogAxis.of(known)
    told = [[_cell(drawn, row, column) for column in range(len(drawn.steps))] for row in range(len(drawn.names))]
    places = [[axis.place(cell, broken=axis.top) for cell in row] for row in drawn.distance]
    logs = [[None if place is None else math.log10(place) for place in row] for row in places]
    sizes = [place for cell in known if cell > 0 and (place := axis.place(cell)) is not None] or [axis.top]
    low, high = (axis.bottom if axis.zeros else min(sizes)), max(*sizes, _ROUNDING)
    near = (high / low) ** 0.08  # where two labels would touch
    inner = [(place, label) for place, label in axis.ticks() if near * low < place < high / near]
    ticks = [(low, "0" if axis.zeros else text.gap(low)), *inner, (high, text.gap(high))]
    trace = {
        "type": "heatmap", "z": logs, "x": [str(step) for step in drawn.steps], "customdata": told,
        "hovertemplate": "%{customdata}<extra></extra>", "xgap": 1, "ygap": 1 if len(drawn.names) < 60 else 0,
        "colorscale": "Viridis", "zmin": math.log10(low), "zmax": math.log10(high),
        "colorbar": {"thickness": 12, "outlinewidth": 0, "tickvals": [math.log10(place) for place, _ in ticks],
                     "ticktext": [label for _, label in ticks]},
    }  # fmt: skip
    blocks = _blocks(drawn)
    height = min(_MOST, max(_LEAST, _ROW * len(drawn.names))) + 60
    wide = (height - 60) / len(drawn.names)
    labels = [block for block in blocks if block.rows * wide >= 11] or blocks
    lines = [block.first - 0.5 for block in blocks if block.first and block.new_layer]
    layout = {
        "height": height,
        "margin": {"t": 8, "b": 40, "l": 8, "r": 8},
        "xaxis": {"type": "category", "title": {"text": "step"}, "fixedrange": True, "automargin": True},
        "yaxis": {
            "autorange": "reversed", "fixedrange": True, "automargin": True, "showgrid": False,
            "tickvals": [block.first + (block.rows - 1) / 2 for block in labels],
            "ticktext": [for_plotly(block.label) for block in labels],
        },
        "shapes": [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at,
             "line": {"color": "var(--text)", "width": 2}}
            for at in lines
        ],
    }  # fmt: skip
    some = "" if len(drawn.names) == drawn.count else f", the {len(drawn.names)} furthest out of {drawn.count}"
    steps = plural(len(drawn.steps), "step") + (
        "" if len(drawn.steps) == drawn.sketched else f" of {drawn.sketched} sketched"
    )
    return Figure(
        f"Gradients, before clipping: relative L2 distance to {plain(comparison.baseline)}",
        f"{plural(len(drawn.names), 'parameter')}{some}, layer by layer and by kind, at {steps}; "
        f"the largest distance is {text.gap(max(map(_size, known), default=None))}.",
        {"data": [trace], "layout": layout},
    )


@dataclass(frozen=True)
class _Block:
    """Rows of a map that belong together: one kind of parameter in one layer."""

    label: str
    first: int
    rows: int
    new_layer: bool


def _blocks(drawn: GradientMap) -> list[_Block]:
    blocks: list[_Block] = []
    before: object = ()
    at = 0
    for (layer, group), rows in groupby(zip(drawn.layers, drawn.groups, strict=True)):
        count = len(list(rows))
        label = group if layer is None else f"{layer} · {group}"
        blocks.append(_Block(label, at, count, layer != before))
        before = layer
        at += count
    return blocks


def _cell(drawn: GradientMap, row: int, column: int) -> str:
    said = f"{for_plotly(drawn.names[row])}<br>{for_plotly(drawn.groups[row])}, step {drawn.steps[column]}<br>"
    said += f"distance {text.gap(drawn.distance[row][column])}"
    if drawn.times_floor is not None:
        said += f"<br>{text.times(drawn.times_floor[row][column])} × floor"
    return said


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else value
