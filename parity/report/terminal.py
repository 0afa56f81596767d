"""The report at a terminal: the first screen, as in the comment."""

from rich.console import Console
from rich.text import Text

from parity.plain import plain
from parity.report.columns import COLOURS, Columns
from parity.report.first_screen import FirstScreen, first_screen
from parity.result import Result

__all__ = ["render_terminal"]

_NOTES = 5


def render_terminal(result: Result, console: Console, where: str | None = None) -> None:
    """Print the verdict and why.

    Args:
        result: the result.
        console: where to.
        where: the folder that the reports were written to, if they were.
    """
    screen = first_screen(result)
    colour = COLOURS[screen.verdict]
    console.print(Text.assemble("parity: ", (screen.verdict, f"bold {colour}"), f" · {screen.suite}"))
    console.print(Text(screen.sentence))
    if screen.rows:
        console.print(_table(screen))
    if screen.others:
        console.print(Text(screen.others))
    lines = {"first divergence": screen.divergence, "reproduce": screen.reproduce, "tested": screen.tested}
    for name, line in lines.items():
        if line:
            console.print(Text.assemble((f"{name}: ", "dim"), line), soft_wrap=name == "reproduce")
    for note in result.notes[:_NOTES]:
        console.print(Text(plain(note), style="dim"))
    if len(result.notes) > _NOTES:
        console.print(Text(f"{len(result.notes) - _NOTES} more notes are in the report", style="dim"))
    if where:
        console.print(Text(f"report: {where}/report.md; parity show {where} tells more", style="dim"), soft_wrap=True)


def _table(screen: FirstScreen) -> Columns:
    numbers = ("step", "gap", "allowed", "× allowed", "× floor")
    spare = ("allowed", "worst", "× floor", "gap")
    table = Columns("comparison", "", "worst", *numbers, "gap over all steps", left=3, spare=spare)
    for row in screen.rows:
        table.add(
            row.comparison,
            Text(row.verdict, style=COLOURS[row.verdict]),
            row.metric,
            row.worst_step,
            row.gap,
            row.allowed,
            row.times_allowed,
            row.times_floor,
            Text(f"{row.curve} {row.sparkline}", justify="left"),
        )
    return table
