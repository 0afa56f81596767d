"""The report at a terminal."""

from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from parity.plain import plain
from parity.report import text
from parity.result import ComparisonResult, MetricResult, OutcomeResult, Result

__all__ = ["COLOURS", "add_row", "make_table", "render_terminal"]

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow", "error": "red", "not run": "yellow"}

_ModelT = TypeVar("_ModelT", bound=BaseModel)


def render_terminal(result: Result, console: Console, where: str | None = None) -> None:
    """Print the verdict last, so that it is what remains on the screen."""
    result = _printable(result)
    for comparison in result.comparisons:
        console.print(_comparison(comparison))
    for leg in result.legs:
        if leg.status not in ("finished", "read"):
            rank = f" (rank {leg.failing_rank} first)" if leg.failing_rank is not None else ""
            error = f": {plain(leg.error, 500)}" if leg.error else ""
            console.print(Text(f"{leg.name} {leg.status}{rank}{error}", style="red"))
    for note in result.notes:
        console.print(Text(plain(note)))
    console.print(
        Text.assemble("parity: ", (result.verdict, f"bold {COLOURS[result.verdict]}"), f" · {plain(result.suite)}")
    )
    console.print(Text(result.summary), soft_wrap=True)
    if where:
        console.print(Text(f"report: {where}", style="dim"), soft_wrap=True)


def _printable(model: _ModelT) -> _ModelT:
    """The same with every text in it on one line of printable characters, so that none can be forgotten below."""
    return model.model_copy(update={name: _plain(getattr(model, name)) for name in type(model).model_fields})


def _plain(value: Any) -> Any:
    match value:
        case BaseModel():
            return _printable(value)
        case str():
            return plain(value, 2000)
        case list() | tuple():
            return [_plain(one) for one in value]
        case dict():
            return {_plain(key): _plain(one) for key, one in value.items()}
    return value


def make_table(*headings: str, left: int) -> Table:
    """A table whose first `left` columns are of words, the others of numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, heading in enumerate(headings):
        table.add_column(Text(heading), justify="left" if index < left else "right")
    return table


def add_row(table: Table, cells: Iterable[str | Text], style: str = "") -> None:
    """Add cells, whose text is shown as it is."""
    # Not as `str`, in which rich would look for its own markup.
    table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells), style=style)


def _comparison(comparison: ComparisonResult) -> RenderableType:
    title = f"{comparison.candidate} against {comparison.baseline}"
    if comparison.controls:
        title += f", control {', '.join(comparison.controls)}"
    parts: list[RenderableType] = [Text(title, style="bold"), _checks(comparison)]
    parts += [Text(f"  {line}") for outcome in comparison.outcomes for line in _remarks(outcome)]
    parts += [Text(f"  🔎 {hint}", style="bold") for hint in comparison.hints]
    parts += [Text(f"  {comparison.sensitivity.line}", style="dim")] if comparison.sensitivity else []
    parts += [_worst(comparison, metric) for metric in comparison.metrics if metric.window]
    parts += [_parameters(one) for one in comparison.outcomes if one.status == "fail" and one.parameters]
    return Group(*parts, Text(""))


def _checks(comparison: ComparisonResult) -> Table:
    numbers = ("first step", "mean", "worst", "at step", "allowed", "× allowed", "× floor")
    table = make_table("check", "result", "metric", *numbers, left=3)
    for outcome in comparison.outcomes:
        status = Text(outcome.status, style=COLOURS[outcome.status] if outcome.required else "dim")
        if not outcome.gaps:
            add_row(table, (outcome.check, status))
        for index, gap in enumerate(outcome.gaps):
            cells = (
                "" if index else outcome.check,
                "" if index else status,
                gap.metric,
                text.gap(gap.first),
                text.gap(gap.mean),
                text.gap(gap.worst),
                "–" if gap.worst_step is None else str(gap.worst_step),
                text.gap(gap.allowed),
                text.times(gap.times_allowed),
                text.times(gap.times_floor),
            )
            add_row(table, cells)
    return table


def _remarks(outcome: OutcomeResult) -> list[str]:
    """What a person must read: why a check did not pass, and what weakens one that did."""
    quiet = outcome.status == "pass" or (outcome.status == "not run" and not outcome.required)
    reasons = [] if quiet else [f"{outcome.check} {outcome.status}: {plain(outcome.reason, 1000)}"]
    return reasons + [f"{outcome.check} warns: {plain(warning, 1000)}" for warning in outcome.warnings]


def _worst(comparison: ComparisonResult, metric: MetricResult) -> Group:
    head = Text(f"\n{metric.metric}, worst at step {metric.worst_step if metric.worst_step is not None else '–'}")
    lines = [head, Text(f"  gap      {text.sparkline(metric.chart.gap)}  over {metric.steps} steps, log scale")]
    if metric.chart.noise is not None:
        lines.append(Text(f"  noise    {text.sparkline(metric.chart.noise)}"))
    names = [comparison.baseline, comparison.candidate, *([comparison.beside] if comparison.beside else [])]
    headings = ["step", *names, "gap", "relative", "allowed", "× allowed"]
    headings += [f"{comparison.beside}'s gap", "× floor"] if comparison.beside else []
    table = make_table(*headings, left=0)
    for row in metric.window:
        cells = [str(row.step), text.value(row.baseline), text.value(row.candidate)]
        cells += [text.value(row.noise)] if comparison.beside else []
        cells += [
            text.gap(row.absolute),
            text.gap(row.relative),
            text.gap(row.allowed),
            text.times(row.times_allowed),
        ]
        cells += [text.gap(row.noise_relative), text.times(row.times_floor)] if comparison.beside else []
        over = row.times_allowed is not None and row.times_allowed > 1
        add_row(table, cells, style="red" if over else "bold" if row.step == metric.worst_step else "")
    return Group(*lines, table)


def _parameters(outcome: OutcomeResult) -> Group:
    shares = ", ".join(f"{group} {text.percent(share)}" for group, share in outcome.shares.items())
    head = Text(f"\n{outcome.check} by parameter" + (f"; squared error: {shares}" if shares else ""))
    numbers = ("step", "relative L2", "allowed", "ratio", "cosine", "squared error", "× floor")
    table = make_table("parameter", "group", *numbers, left=2)
    for one in outcome.parameters:
        cells = (
            one.name,
            one.group,
            str(one.step),
            text.gap(one.distance),
            text.gap(one.allowed),
            text.ratio(one.ratio),
            text.ratio(one.cosine),
            text.percent(one.share),
            text.times(one.times_floor),
        )
        add_row(table, cells, style="" if one.distance <= one.allowed else "red")
    return Group(head, table)
