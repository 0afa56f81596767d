"""A table that fits the terminal it is shown at."""

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

__all__ = ["COLOURS", "Columns", "print_lines"]

COLOURS = {"pass": "green", "fail": "red", "inconclusive": "yellow", "error": "red", "not run": "yellow"}
"""Of verdicts and of outcomes of checks."""

_BETWEEN = 2


class Columns:
    """A table of one line a row, without empty columns. Where there is too little room for all, some go, and a line
    says which.

    Args:
        headings: of the columns.
        left: how many of them are of words; the others are of numbers.
        spare: headings of the columns that go first; then go the last.
    """

    def __init__(self, *headings: str, left: int = 1, spare: Sequence[str] = ()) -> None:
        self._headings = [Text(heading) for heading in headings]
        self._left = left
        self._spare = [headings.index(one) for one in spare]
        self._rows: list[tuple[Sequence[Text], str]] = []

    def add(self, *cells: str | Text, style: str = "") -> None:
        """Add a row of printable texts, shown as they are."""
        # Not as `str`, in which rich would look for its own markup.
        self._rows.append(([cell if isinstance(cell, Text) else Text(cell) for cell in cells], style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(zip(self._headings, *(cells for cells, _ in self._rows), strict=True))
        widths = [max(cell.cell_len for cell in column) + _BETWEEN for column in columns]
        filled = [at for at, (_, *cells) in enumerate(columns) if any(cell.plain not in ("", "–") for cell in cells)]
        kept = filled[:]
        for at in (*self._spare, *reversed(filled[1:])):
            if at in kept and sum(widths[one] for one in kept) - _BETWEEN > options.max_width:
                kept.remove(at)
        table = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0))
        for at in kept:
            justify: JustifyMethod = "left" if at < self._left else "right"
            table.add_column(self._headings[at], justify=justify, no_wrap=True, overflow="ellipsis")
        for cells, style in self._rows:
            table.add_row(*(cells[at] for at in kept), style=style)
        yield table
        gone = [self._headings[at].plain for at in filled if at not in kept]
        if gone:
            yield Text(f"a wider terminal also shows: {', '.join(gone)}", style="dim")


def print_lines(lines: Iterable[RenderableType], console: Console) -> None:
    """Print texts and tables. Texts are wrapped at a terminal alone: in a log they can be searched for."""
    for line in lines:
        console.print(line, soft_wrap=isinstance(line, Text) and not console.is_terminal)
