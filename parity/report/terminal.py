"""The report at a terminal."""

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from parity.plain import plain
from parity.report import text
from parity.result import ComparisonResult, MetricResult, OutcomeResult, Result

__all__ = ["COLOURS", "render_terminal"]

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow", "error": "red", "not run": "yellow"}


def render_terminal(result: Result, console: Console, where: str | None = None) -> None:
    """Print the verdict last, so that it is what remains on the screen."""
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
    console.print(Text(plain(result.summary, 2000)), soft_wrap=True)
    if where:
        console.print(Text(f"report: {where}", style="dim"), soft_wrap=True)


def _comparison(comparison: ComparisonResult) -> RenderableType:
    title = f"{comparison.candidate} against {comparison.baseline}"
    if comparison.control:
        title += f", control {comparison.control}"
    parts: list[RenderableType] = [Text(title, style="bold"), _checks(comparison)]
    parts += [Text(f"  {line}") for outcome in comparison.outcomes for line in _remarks(outcome)]
    parts += [_worst(comparison, metric) for metric in comparison.metrics if metric.window]
    return Group(*parts, Text(""))


def _checks(comparison: ComparisonResult) -> Table:
    table = Table("check", "result", "metric", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("first step", "mean", "worst", "at step", "allowed", "× allowed", "× floor"):
        table.add_column(heading, justify="right")
    for outcome in comparison.outcomes:
        status = Text(outcome.status, style=COLOURS[outcome.status] if outcome.required else "dim")
        if not outcome.gaps:
            table.add_row(outcome.check, status)
        for index, gap in enumerate(outcome.gaps):
            table.add_row(
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
    return table


def _remarks(outcome: OutcomeResult) -> list[str]:
    """What a person must read: why a check did not pass, and what weakens one that did."""
    quiet = outcome.status == "pass" or (outcome.status == "not run" and not outcome.required)
    reasons = [] if quiet else [f"{outcome.check} {outcome.status}: {plain(outcome.reason, 1000)}"]
    return reasons + [f"{outcome.check} warns: {plain(warning, 1000)}" for warning in outcome.warnings]


def _worst(comparison: ComparisonResult, metric: MetricResult) -> Group:
    head = Text(f"\n{metric.metric}, worst at step {metric.worst_step if metric.worst_step is not None else '–'}")
    lines = [head, Text(f"  gap      {text.sparkline(metric.chart.gap)}  over {metric.steps} steps, log scale")]
    if metric.chart.control is not None:
        lines.append(Text(f"  control  {text.sparkline(metric.chart.control)}"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    names = [comparison.baseline, comparison.candidate, *([comparison.control] if comparison.control else [])]
    for heading in ("step", *names, "gap", "relative", "allowed", "× allowed"):
        table.add_column(heading, justify="right")
    if comparison.control:
        table.add_column("control's gap", justify="right")
        table.add_column("× floor", justify="right")
    for row in metric.window:
        cells = [str(row.step), text.value(row.baseline), text.value(row.candidate)]
        cells += [text.value(row.control)] if comparison.control else []
        cells += [
            text.gap(row.absolute),
            text.gap(row.relative),
            text.gap(row.allowed),
            text.times(row.times_allowed),
        ]
        cells += [text.gap(row.control_relative), text.times(row.times_floor)] if comparison.control else []
        over = row.times_allowed is not None and row.times_allowed > 1
        style = "red" if over else "bold" if row.step == metric.worst_step else ""
        table.add_row(*cells, style=style)
    return Group(*lines, table)
