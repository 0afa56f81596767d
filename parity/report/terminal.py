"""The report at a terminal: the first screen, as in the comment."""

import shlex

from rich.console import Console
from rich.text import Text

from parity.plain import plain
from parity.report.columns import COLOURS, Columns, print_lines
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
    title = ("parity: ", (screen.verdict, f"bold {COLOURS[screen.verdict]}"), f" · {screen.suite}")
    lines: list[Text | Columns] = [Text.assemble(*title), Text(screen.sentence)]
    lines += [_table(screen)] if screen.rows else []
    lines += [Text(screen.others)] if screen.others else []
    named = {"first divergence: ": screen.divergence, "reproduce: ": screen.reproduce, "": screen.tested}
    lines += [Text.assemble((name, "dim"), line) for name, line in named.items() if line]
    lines += [Text(plain(note), style="dim") for note in result.notes[:_NOTES]]
    if len(result.notes) > _NOTES:
        lines.append(Text(f"{len(result.notes) - _NOTES} more notes are in the report", style="dim"))
    if where:
        lines.append(Text(f"report: {where}/report.md; parity show {shlex.quote(where)} tells more", style="dim"))
    print_lines(lines, console)


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
            Text(f"{row.curve} {row.sparkline}".strip(), justify="left"),
        )
    return table
