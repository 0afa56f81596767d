"""What was understood of logs, at a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from parity.checks.words import plural
from parity.inspection import InspectedFile, MetricSeen
from parity.plain import plain
from parity.report import text
from parity.report.columns import Columns

__all__ = ["render_inspection"]

# A table would cut its numbers.
_NARROW = 100


def render_inspection(files: Iterable[InspectedFile], console: Console) -> None:
    """Print each file's part; those that could not be read are left out."""
    for at, one in enumerate(file for file in files if not file.error):
        if at:
            console.print()
        _render(one, console)


def _render(one: InspectedFile, console: Console) -> None:
    evidence = f" ({one.evidence})" if one.evidence else " (as you say)"
    console.print(Text.assemble((plain(one.source), "bold"), f": {one.format}{evidence}"))
    if one.steps is None:
        console.print(Text("  no step", style="yellow"))
    else:
        style = "yellow" if one.steps.gap_count else ""
        console.print(Text(f"  {one.steps.text} (field {one.steps.field})", style=style))
    if one.finished is not None:
        console.print(Text("  the run wrote its end" if one.finished else "  the run never wrote its end"))
    if one.metrics:
        _metrics(one.metrics, console)
    for line, style in _lines(one):
        console.print(Text(f"  {line}", style=style))


def _metrics(metrics: Sequence[MetricSeen], console: Console) -> None:
    table = Columns("  metric", "field", "printed", "values", "first", "last", left=3)
    for one in metrics:
        printed = one.resolution.text if one.resolution else "–"
        first, last = text.value(one.first), text.value(one.last)
        if console.width < _NARROW:
            console.print(Text(f"  {one.metric} (field {one.field}): {one.count} values, {first} … {last}"))
            console.print(Text(f"    printed {printed}"))
        else:
            table.add(f"  {one.metric}", one.field, printed, str(one.count), first, last)
    if console.width >= _NARROW:
        console.print(table)


def _lines(one: InspectedFile) -> Iterable[tuple[str, str]]:
    for metric in one.metrics:
        yield from ((f"{metric.metric}: {what}", "yellow") for what in _odd(metric))
    yield from ((note, "") for note in one.notes)
    if one.other_fields:
        yield f"other fields, for --key METRIC=FIELD: {', '.join(one.other_fields)}", "dim"
    yield from ((hint, "") for hint in one.hints)


def _odd(metric: MetricSeen) -> Iterable[str]:
    if metric.nan:
        yield f"NaN at {metric.nan} of {metric.count} steps"
    if metric.infinite:
        yield f"infinite at {metric.infinite} of {metric.count} steps"
    if metric.missing_count:
        yield f"without a value at {plural(metric.missing_count, 'step')} of the log: {metric.missing}"
    if metric.conflicts:
        yield f"several values, of which the first is taken: {'; '.join(metric.conflicts[:3])}" + (
            f" and {len(metric.conflicts) - 3} more" if len(metric.conflicts) > 3 else ""
        )
