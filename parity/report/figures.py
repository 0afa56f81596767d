"""Figures of the HTML report, as plotly describes them: traces and a layout, in plain dicts.

A colour is the name of one that `report.css` has for light and for dark, as `var(--name)`. Whatever is told under the
mouse was spelled by `parity.report.text` before; plotly is given no number to spell but the ticks of linear axes.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parity.checks.words import plural
from parity.plain import plain
from parity.report import text
from parity.report.log_axis import LogAxis
from parity.result import ComparisonResult, MetricResult, Result
from parity.result.drawn import CurveResult, DeviationResult

__all__ = ["Figure", "curves", "for_plotly", "gap", "leg_names", "look"]

# Of legs; more than these repeat them with another dash.
_COLOURS = 8
_DASHES = ("solid", "dash", "dot", "dashdot")
_MOST_DOTS = 200  # on a line; more cannot be told apart, and take most of the time to draw


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
        told = [f"{for_plotly(one.leg)} {text.value(value)}" for value in one.values]
        # Curves lie upon each other: those below are wider.
        width = 1.5 + 1.2 * min(3, len(ones) - 1 - place)
        line = {"color": f"var(--leg-{colour})", "width": width, "dash": dash}
        traces.append(_line(one.steps, list(map(_known, one.values)), told, line, leg=one.leg))
        traces += _broken(one.steps, one.values, max(finite, default=0.0), for_plotly(one.leg), leg=one.leg)
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
    axis = LogAxis.of([*drawn.gap, *drawn.allowed, *(drawn.floor or ()), *(drawn.noise or ())])
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
    line = {"name": f"gap of {for_plotly(comparison.candidate)}", **_line(drawn.steps, places, told, _style("gap"))}
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
    metric: MetricResult, drawn: DeviationResult, axis: LogAxis, traces: list[dict[str, Any]]
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


def for_plotly(name: str) -> str:
    """Untrusted text for plotly, which reads some tags of HTML, and references."""
    return html.escape(plain(name), quote=False)
