"""What a person sees while legs run: a live table at a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from parity.launch import Event, Interrupted, LegEnding, LegFinished, LegProgress, LegStarted, TorchImported
from parity.plain import plain

__all__ = ["show_progress"]

# A line of a log for every tenth of a leg is enough to see that it lives.
_LINES_PER_LEG = 10


@dataclass
class _Leg:
    status: str = "waiting"
    step: int | None = None
    loss: float | None = None
    started: float = 0.0
    seconds: float | None = None


@contextmanager
def show_progress(console: Console, layouts: Mapping[str, str], steps: int) -> Iterator[Callable[[Event], None]]:
    """A function that takes the run's events and shows them.

    Args:
        console: where to; its kind decides how.
        layouts: by leg, how its layout reads.
        steps: optimizer steps of each leg.
    """
    if not console.is_terminal:
        yield _Lines(console, steps).take
        return
    table = _Table(layouts, steps)
    # No refresh thread: the launcher calls often enough, and forks.
    with Live(table.draw(), console=console, auto_refresh=False, transient=True) as live:

        def take(event: Event) -> None:
            table.take(event)
            live.update(table.draw(), refresh=True)

        yield take


def _ended(event: LegFinished) -> str:
    end = event.end
    text = f"{end.status} in {end.seconds:.1f} s" if end.seconds else end.status
    if end.failing_rank is not None:
        text += f", rank {end.failing_rank} first"
    return text + (f": {plain(end.error, 300)}" if end.error else "")


class _Lines:
    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._every = max(1, steps // _LINES_PER_LEG)
        self._next: dict[str, int] = {}

    def take(self, event: Event) -> None:
        text = self._line(event)
        if text:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _line(self, event: Event) -> str:
        match event:
            case LegStarted():
                where = f" on GPU {','.join(event.gpus)}" if event.gpus else ""
                return f"{event.name}: started, {event.ranks} rank{'s' if event.ranks > 1 else ''}{where}"
            case LegProgress() if event.step >= self._next.get(event.name, 0):
                self._next[event.name] = event.step + self._every
                loss = "" if event.loss is None else f" loss {event.loss:.6g}"
                return f"{event.name}: step {event.step}{loss}"
            case LegEnding():
                return f"{event.name}: ending, {plain(event.why)}"
            case LegFinished():
                return f"{event.end.name}: {_ended(event)}"
            case Interrupted():
                return "interrupted; ending every rank"
            case TorchImported():
                return f"torch imported in {event.seconds:.1f} s"
        return ""


class _Table:
    def __init__(self, layouts: Mapping[str, str], steps: int) -> None:
        self._layouts = layouts
        self._steps = steps
        self._legs = {name: _Leg() for name in layouts}

    def take(self, event: Event) -> None:
        match event:
            case LegStarted():
                leg = self._legs[event.name]
                leg.status, leg.started = "running", time.monotonic()
            case LegProgress():
                leg = self._legs[event.name]
                leg.step, leg.loss = event.step, event.loss
            case LegEnding():
                self._legs[event.name].status = plain(event.why, 60)
            case LegFinished():
                leg = self._legs[event.end.name]
                leg.status, leg.seconds = plain(_ended(event), 100), event.end.seconds

    def draw(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("leg", "layout", "step", "", "loss", "status"):
            table.add_column(heading, no_wrap=heading != "status")
        for name, leg in self._legs.items():
            done = 0 if leg.step is None else min(leg.step + 1, self._steps)
            bar = "━" * int(20 * done / self._steps)
            running = leg.seconds is None and leg.started
            status = f"{leg.status} {time.monotonic() - leg.started:.0f} s" if running else leg.status
            table.add_row(
                name,
                self._layouts[name],
                f"{done}/{self._steps}",
                Text(bar.ljust(20), style="green"),
                "" if leg.loss is None else f"{leg.loss:.6g}",
                Text(status),
            )
        return table
