"""What a person sees while hundreds of legs run: a bar at a terminal, a line for every tenth elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["show_legs"]


@contextmanager
def show_legs(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A function that is told, as each leg ends, the suite's name, how many ended, and how many there are."""
    if not console.is_terminal:

        def line(suite: str, ended: int, legs: int) -> None:
            if ended == legs or ended % max(1, legs // 10) == 0:
                console.print(f"{suite}: {ended} of {legs} legs", markup=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # No refresh thread: the launcher forks.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bars:
        tasks = {}

        def bar(suite: str, ended: int, legs: int) -> None:
            if suite not in tasks:
                tasks[suite] = bars.add_task(suite, total=legs)
            bars.update(tasks[suite], completed=ended, refresh=True)

        yield bar
