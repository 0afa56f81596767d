"""One comparison at a terminal, with everything that a result says of it."""

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import RenderableType
from rich.text import Text

from parity.plain import plain
from parity.report import text
from parity.report.columns import COLOURS, Columns
from parity.result import ComparisonResult, MetricResult, OutcomeResult

__all__ = ["check_table", "comparison_details", "printable"]

_ModelT = TypeVar("_ModelT", bound=BaseModel)


def printable(model: _ModelT) -> _ModelT:
    """The same with every text in it on one line of printable characters, so that none can be forgotten."""
    return model.model_copy(update={name: _printable(getattr(model, name)) for name in type(model).model_fields})


def _printable(value: Any) -> Any:
    match value:
        case BaseModel():
            return printable(value)
        case str():
            return plain(value, 2000)
        case list() | tuple():
            return [_printable(one) for one in value]
        case dict():
            return {_printable(key): _printable(one) for key, one in value.items()}
    return value


def comparison_details(comparison: ComparisonResult) -> Iterator[RenderableType]:
    """Checks and their reasons, hints, what would have been caught, the worst steps, and parameters beyond what is
    allowed.

    Args:
        comparison: with printable texts.
    """
    title = f"{comparison.candidate} against {comparison.baseline}"
    controls = f", control {', '.join(comparison.controls)}" if comparison.controls else ""
    verdict = (comparison.verdict, COLOURS[comparison.verdict])
    yield Text.assemble(title, controls, ": ", verdict, style="bold")
    yield Text(comparison.summary)
    yield check_table(comparison)
    yield from (Text(line) for outcome in comparison.outcomes for line in _remarks(outcome))
    yield from (Text(f"🔎 {hint}", style="bold") for hint in comparison.hints)
    if comparison.sensitivity:
        yield Text(f"sensitivity: {comparison.sensitivity.line}", style="dim")
    for metric in comparison.metrics:
        if metric.window:
            yield from _worst(comparison, metric)
    for outcome in comparison.outcomes:
        if outcome.status == "fail" and outcome.parameters:
            yield from _parameters(outcome)


def check_table(comparison: ComparisonResult) -> Columns:
    """A row for each check and metric."""
    numbers = ("worst", "at step", "allowed", "× allowed", "× floor", "first step", "mean")
    table = Columns("check", "result", "metric", *numbers, left=3)
    for outcome in comparison.outcomes:
        status = Text(outcome.status, style=COLOURS[outcome.status] if outcome.required else "dim")
        if not outcome.gaps:
            table.add(outcome.check, status, *[""] * 8)
        for index, gap in enumerate(outcome.gaps):
            table.add(
                "" if index else outcome.check,
                "" if index else status,
                gap.metric,
                text.gap(gap.worst),
                "–" if gap.worst_step is None else str(gap.worst_step),
                text.gap(gap.allowed),
                text.times(gap.times_allowed),
                text.times(gap.times_floor),
                text.gap(gap.first),
                text.gap(gap.mean),
            )
    return table


def _remarks(outcome: OutcomeResult) -> list[str]:
    """What a person must read: why a check did not pass, and what weakens one that did."""
    quiet = outcome.status == "pass" or (outcome.status == "not run" and not outcome.required)
    reasons = [] if quiet else [f"{outcome.check} {outcome.status}: {outcome.reason}"]
    return reasons + [f"{outcome.check} warns: {warning}" for warning in outcome.warnings]


def _worst(comparison: ComparisonResult, metric: MetricResult) -> Iterator[RenderableType]:
    yield Text(f"\n{metric.metric}, worst at step {metric.worst_step if metric.worst_step is not None else '–'}")
    lines = {"gap": metric.chart.gap, "noise": metric.chart.noise}
    for name, line in lines.items():
        if line is not None:
            yield Text(f"{name:5} {text.sparkline(line)}", no_wrap=True, overflow="crop")
    names = [comparison.baseline, comparison.candidate]
    headings = ["step", *names, "gap", "allowed", "× allowed", "relative"]
    headings += ["× floor", comparison.beside, f"{comparison.beside}'s, relative"] if comparison.beside else []
    table = Columns(*headings, left=0)
    for row in metric.window:
        cells = [
            str(row.step),
            text.value(row.baseline),
            text.value(row.candidate),
            text.gap(row.absolute),
            text.gap(row.allowed),
            text.times(row.times_allowed),
            text.gap(row.relative),
        ]
        if comparison.beside:
            cells += [text.times(row.times_floor), text.value(row.noise), text.gap(row.noise_relative)]
        over = row.times_allowed is not None and not row.times_allowed <= 1
        table.add(*cells, style="red" if over else "bold" if row.step == metric.worst_step else "")
    yield table


def _parameters(outcome: OutcomeResult) -> Iterator[RenderableType]:
    shares = ", ".join(f"{group} {text.percent(share)}" for group, share in outcome.shares.items())
    yield Text(f"\n{outcome.check} by parameter" + (f"; squared error: {shares}" if shares else ""))
    numbers = ("step", "relative L2", "allowed", "ratio", "cosine", "squared error", "× floor")
    table = Columns("parameter", "group", *numbers, left=2)
    for one in outcome.parameters:
        table.add(
            one.name,
            one.group,
            str(one.step),
            text.gap(one.distance),
            text.gap(one.allowed),
            text.ratio(one.ratio),
            text.ratio(one.cosine),
            text.percent(one.share),
            text.times(one.times_floor),
            style="" if one.distance <= one.allowed else "red",
        )
    yield table
