"""Figures of the HTML report, as plotly describes them: traces and a layout, in plain dicts.

A colour is the name of one that `report.css` has for light and for dark, as `var(--name)`. Whatever is told under the
mouse was spelled by `parity.report.text` before; plotly is given no number to spell but the ticks of linear axes.
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from parity.checks.words import plural
from parity.plain import plain
from parity.report import text
from parity.result import ComparisonResult, MetricResult, Result
from parity.result_drawn import CurveResult, DeviationResult, GradientMap

__all__ = ["Figure", "curves", "gap", "gradients", "leg_names", "look"]

# Of legs; more than these repeat them with another dash.
_COLOURS = 8
_DASHES = ("solid", "dash", "dot", "dashdot")
_DECADES = 8  # with a tick, on a logarithmic axis
_MOST_DOTS = 200  # on a line; more cannot be told apart, and take most of the time to draw
_ROUNDING = 1e-6  # a distance of gradients that is rounding in any dtype, and stays dark
_ROW, _LEAST, _MOST = 14, 160, 900  # heights of a map, in pixels


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        title: what stands above it, printable, not escaped.
        description: what it shows, in a sentence for whoever cannot see it.
        spec: `data` and `layout` of plotly.js.
    """

    title: str
    description: str
    spec: dict[str, Any]


def leg_names(result: Result) -> list[str]:
    """Every leg that has a curve or a status, in the order in which they have their colours."""
    return list(dict.fromkeys([*(leg.name for leg in result.legs), *(curve.leg for curve in result.curves)]))


def look(number: int) -> tuple[int, str]:
    """The number of a leg's colour, and its dash."""
    return number % _COLOURS, _DASHES[number // _COLOURS % len(_DASHES)]


def curves(result: Result) -> list[Figure]:
    """One figure for each metric, with the curves of all legs."""
    names = leg_names(result)
    by_metric: dict[str, list[CurveResult]] = {}
    for curve in result.curves:
        by_metric.setdefault(curve.metric, []).append(curve)
    return [_curves(plain(metric), ones, names) for metric, ones in by_metric.items()]


def _curves(metric: str, ones: Sequence[CurveResult], names: Sequence[str]) -> Figure:
    traces = []
    finite = [value for one in ones for value in one.values if math.isfinite(value)]
    for place, one in enumerate(ones):
        colour, dash = look(names.index(one.leg))
        told = [f"{_drawn(one.leg)} {text.value(value)}" for value in one.values]
        # Curves lie upon each other: those below are wider.
        width = 1.5 + 1.2 * min(3, len(ones) - 1 - place)
        line = {"color": f"var(--leg-{colour})", "width": width, "dash": dash}
        traces.append(_line(one.steps, list(map(_known, one.values)), told, line, leg=one.leg))
        traces += _broken(one.steps, one.values, max(finite, default=0.0), _drawn(one.leg), leg=one.leg)
    count, shown = max((one.count, len(one.steps)) for one in ones)
    said = f"{plural(len(ones), 'leg')}, {plural(count, 'step')}"
    if shown < count:
        said += f"; {shown} steps of a leg are drawn, its largest and smallest values among them"
    yaxis: dict[str, Any] = {"zeroline": False}
    if finite and min(finite) == max(finite):  # of which plotly would make an axis two units high
        yaxis |= {"tickvals": finite[:1], "ticktext": [text.value(finite[0])]}
        margin = abs(finite[0]) / 9 or 1.0
        yaxis["range"] = [finite[0] - margin, finite[0] + margin] if margin < 1e307 else None
    return Figure(metric, f"{said}.", {"data": traces, "layout": _layout(yaxis)})


def gap(comparison: ComparisonResult, metric: MetricResult) -> Figure | None:
    """The gap between candidate and baseline, with what is allowed and the noise floor; None from an old result."""
    drawn = metric.deviation
    if drawn is None or not drawn.steps:
        return None
    axis = _LogAxis.of([*drawn.gap, *drawn.allowed, *(drawn.floor or ()), *(drawn.noise or ())])
    ends = [drawn.steps[0], drawn.steps[-1]]
    allowed = [axis.place(value) for value in drawn.allowed]
    traces = [
        {"x": ends, "y": [axis.bottom] * 2, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip",
         "showlegend": False},
        {"fill": "tonexty", "fillcolor": "var(--band)", "name": "allowed",
         **_line(drawn.steps, allowed, [f"allowed {text.gap(n)}" for n in drawn.allowed], _style("allowed"))},
    ]  # fmt: skip
    for name, values in (("floor", drawn.floor), ("noise", drawn.noise)):
        if values is not None:
            told = [f"{name} {text.gap(n)}" for n in values]
            traces.append({"name": name, **_line(drawn.steps, list(map(axis.place, values)), told, _style(name))})
    told = [
        f"gap {text.gap(size)}, {text.times(times)} × allowed"
        for size, times in zip(drawn.gap, drawn.times_allowed, strict=True)
    ]
    places = [axis.place(size) for size in drawn.gap]
    line = {"name": f"gap of {_drawn(comparison.candidate)}", **_line(drawn.steps, places, told, _style("gap"))}
    if len(drawn.steps) <= _MOST_DOTS:
        line |= {"mode": "lines+markers", "marker": {"size": 4, "color": "var(--gap)"}}
    traces.append(line)
    traces += _broken(drawn.steps, drawn.gap, axis.top, "gap")
    annotations, shapes = _marks(metric, drawn, axis, traces)
    layout = _layout(axis.layout()) | {"annotations": annotations, "shapes": shapes, "showlegend": True}
    return Figure(
        f"{plain(metric.metric)}: gap relative to {plain(comparison.baseline)}",
        _told(metric, drawn),
        {"data": traces, "layout": layout},
    )


def _told(metric: MetricResult, drawn: DeviationResult) -> str:
    """The worst step in words, as the figure marks it."""
    said = f"Over {plural(drawn.count, 'step')}"
    worst = _at(drawn, metric.worst_step)
    if worst is not None:
        gap, allowed, times = drawn.gap[worst], drawn.allowed[worst], drawn.times_allowed[worst]
        said += f", worst at step {metric.worst_step}: {text.gap(gap)}, allowed {text.gap(allowed)}"
        said += f", {text.times(times)} × allowed"
    if metric.first_divergent_step is not None:
        said += f"; first beyond what is allowed at step {metric.first_divergent_step}"
    if metric.horizon is not None:
        said += f"; judged up to step {metric.horizon}"
    if len(drawn.steps) < drawn.count:
        said += f". {len(drawn.steps)} steps are drawn, the largest gaps among them"
    return f"{said}."


def _marks(
    metric: MetricResult, drawn: DeviationResult, axis: "_LogAxis", traces: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The worst step, the first beyond, and what lies behind the horizon."""
    annotations, shapes = [], []
    worst = _at(drawn, metric.worst_step)
    place = None if worst is None else axis.place(drawn.gap[worst])
    if worst is not None and place is not None:
        x = drawn.steps[worst]
        ring = {"size": 13, "symbol": "circle-open", "color": "var(--worst)", "line": {"width": 3}}
        traces.append({"x": [x], "y": [place], "mode": "markers", "marker": ring, "hoverinfo": "skip",
                       "showlegend": False})  # fmt: skip
        side = "left" if worst * 2 < len(drawn.steps) else "right"
        annotations.append(
            {"x": x, "y": math.log10(place), "text": f"worst, step {x}", "font": {"color": "var(--worst)"},
             "xanchor": side, "yanchor": "bottom", "showarrow": False,
             "xshift": 9 if side == "left" else -9, "yshift": 3, "bgcolor": "var(--page)"}
        )  # fmt: skip
    first = metric.first_divergent_step
    if first is not None and first != metric.worst_step:
        shapes.append(_upright(first, "worst"))
        annotations.append(_above(first, f"first beyond, step {first}", "worst"))
    if metric.horizon is not None and metric.horizon < drawn.steps[-1]:
        shapes.append(
            {"type": "rect", "x0": metric.horizon, "x1": drawn.steps[-1], "y0": 0, "y1": 1, "yref": "paper",
             "fillcolor": "var(--beyond)", "line": {"width": 0}, "layer": "below"}
        )  # fmt: skip
        annotations.append(_above(metric.horizon, f"judged up to step {metric.horizon}", "muted"))
    return annotations, shapes


def _upright(step: int, colour: str) -> dict[str, Any]:
    return {"type": "line", "x0": step, "x1": step, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": f"var(--{colour})", "width": 1, "dash": "dot"}}  # fmt: skip


def _above(step: int, said: str, colour: str) -> dict[str, Any]:
    return {"x": step, "y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "left", "text": said,
            "showarrow": False, "font": {"color": f"var(--{colour})"}}  # fmt: skip


def gradients(comparison: ComparisonResult) -> Figure | None:
    """A map of how far each parameter's gradient is from the baseline's, at each sketched step."""
    drawn = comparison.gradients
    if drawn is None or not drawn.names:
        return None
    known = [cell for row in drawn.distance for cell in row if cell is not None]
    axis = _LogAxis.of(known)
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
            "ticktext": [_drawn(block.label) for block in labels],
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
    said = f"{_drawn(drawn.names[row])}<br>{_drawn(drawn.groups[row])}, step {drawn.steps[column]}<br>"
    said += f"distance {text.gap(drawn.distance[row][column])}"
    if drawn.times_floor is not None:
        said += f"<br>{text.times(drawn.times_floor[row][column])} × floor"
    return said


@dataclass(frozen=True)
class _LogAxis:
    """A logarithmic axis on which an exact zero has a place too: one decade below the smallest value."""

    bottom: float
    top: float
    zeros: bool

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "_LogAxis":
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


def _layout(yaxis: dict[str, Any]) -> dict[str, Any]:
    return {
        "height": 300,
        "margin": {"t": 24, "b": 64, "l": 8, "r": 8},
        "hovermode": "x unified",
        "showlegend": False,
        "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        "xaxis": {"title": {"text": "step", "standoff": 4}, "hoverformat": "d", "tickformat": "d", "zeroline": False,
                  "unifiedhovertitle": {"text": "step %{x}"}, "automargin": True},
        "yaxis": {"automargin": True, **yaxis},
    }  # fmt: skip


def _line(
    steps: Sequence[int],
    values: Sequence[float | None],
    told: Sequence[str],
    line: dict[str, Any],
    leg: str = "",
) -> dict[str, Any]:
    return {
        "x": list(steps), "y": list(values), "customdata": list(told), "mode": "lines", "line": line,
        "hovertemplate": "%{customdata}<extra></extra>", **({"meta": {"leg": leg}} if leg else {}),
    }  # fmt: skip


def _broken(
    steps: Sequence[int], values: Sequence[float], height: float, who: str, leg: str = ""
) -> list[dict[str, Any]]:
    """Crosses where a value is not finite."""
    at = [index for index, value in enumerate(values) if not math.isfinite(value)]
    if not at:
        return []
    told = [f"{who} {text.gap(values[index])}" for index in at]
    line = _line([steps[index] for index in at], [height] * len(at), told, {}, leg=leg)
    cross = {"symbol": "x", "size": 9, "color": "var(--worst)"}
    return [line | {"mode": "markers", "marker": cross, "name": "not finite", "showlegend": True}]


def _style(what: str) -> dict[str, Any]:
    width, dash = {"allowed": (2, "solid"), "floor": (1.5, "dash"), "noise": (1.5, "dot"), "gap": (2, "solid")}[what]
    return {"color": f"var(--{what})", "width": width, "dash": dash}


def _at(drawn: DeviationResult, step: int | None) -> int | None:
    return drawn.steps.index(step) if step is not None and step in drawn.steps else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _drawn(name: str) -> str:
    """Untrusted text for plotly, which reads some tags of HTML, and references."""
    return html.escape(plain(name), quote=False)
