"""What a person sees while legs run: one live line per leg at a terminal, plain lines elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from parity.launch import (
    DevicesHeld,
    Event,
    Interrupted,
    LegEnding,
    LegFinished,
    LegProgress,
    LegStarted,
    TorchImported,
)
from parity.plain import plain
from parity.report import text

__all__ = ["show_progress"]

# A line of a log for every tenth of a leg is enough to see that it lives.
_PARTS = 10
# Steps that a rate is measured over: the first ones compile and allocate, and say nothing of those to come.
_RECENT = 30
_BAR = 20
_REDRAW = 0.1  # seconds; a leg can make thousands of steps in one
_STYLES = {
    "finished": "green",
    "failed": "red",
    "timed out": "red",
    "interrupted": "yellow",
    "stopped": "yellow",
    "running": "bold",
}
_ENDED = ("finished", "failed", "timed out", "interrupted", "stopped", "not started")


@dataclass
class _Leg:
    status: str = "waiting"
    note: str = ""
    step: int | None = None
    loss: float | None = None
    started: float | None = None
    seconds: float | None = None
    recent: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def ended(self) -> bool:
        return self.status in _ENDED

    def take(self, step: int, loss: float | None, now: float) -> None:
        self.step = step
        self.loss = self.loss if loss is None else loss
        self.recent.append((now, step))

    @property
    def rate(self) -> float | None:
        """Steps in a second; None where nobody can know yet."""
        if not self.recent:
            return None
        (first, a), (last, b) = self.recent[0], self.recent[-1]
        return (b - a) / (last - first) if last > first and b > a else None

    def left(self, steps: int, now: float) -> float | None:
        """Seconds to the last step; None where nobody can know."""
        if self.rate is None or self.step is None or self.ended:
            return None
        return max(0.0, (steps - 1 - self.step) / self.rate - (now - self.recent[-1][0]))


@contextmanager
def show_progress(
    console: Console, layouts: Mapping[str, str], steps: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[Event], None]]:
    """A function that takes the run's events and shows them.

    Args:
        console: where to; its kind decides how.
        layouts: by leg, how its layout reads.
        steps: optimizer steps of each leg.
        clock: seconds.
    """
    legs = _Legs(layouts, steps, clock)
    # Colours may be forced upon a file, but nothing there can move a cursor.
    if not (console.file.isatty() and console.is_interactive):
        yield _Lines(console, legs).take
        return
    # No refresh thread: the launcher calls often enough, and forks.
    with Live(legs, console=console, auto_refresh=False) as live:
        drawn = clock()

        def take(event: Event) -> None:
            nonlocal drawn
            legs.take(event)
            if not isinstance(event, LegProgress) or clock() - drawn >= _REDRAW:
                drawn = clock()
                live.refresh()

        yield take


class _Legs:
    """All legs; draws itself as one line for each, as wide as the terminal is now."""

    def __init__(self, layouts: Mapping[str, str], steps: int, clock: Callable[[], float]) -> None:
        self.legs = {name: _Leg() for name in layouts}
        self.steps = steps
        self.clock = clock
        self._layouts = layouts
        self._begun = clock()
        self._held = ""

    def done(self, leg: _Leg) -> int:
        """Steps that the leg has made; one that counts from 1 seems one ahead."""
        return 0 if leg.step is None else max(0, min(leg.step + 1, self.steps))

    def take(self, event: Event) -> None:
        match event:
            case DevicesHeld():
                self._held = _held(event)
            case LegStarted():
                leg = self.legs[event.name]
                leg.status, leg.started = "running", self.clock()
                self._held = ""
            case LegProgress():
                self.legs[event.name].take(event.step, event.loss, self.clock())
            case LegEnding():
                self.legs[event.name].note = plain(event.why, 100)
            case LegFinished():
                leg = self.legs[event.end.name]
                leg.status, leg.seconds, leg.note = event.end.status, event.end.seconds, _why(event)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = self.clock()
        shown = self._chosen(max(1, options.size.height - 3))
        rows = [self._cells(name, self.legs[name], now) for name in shown]
        yield from _fitted(rows, options.max_width)
        hidden = [leg.status for name, leg in self.legs.items() if name not in shown]
        if hidden:
            counts = ", ".join(f"{hidden.count(status)} {status}" for status in dict.fromkeys(hidden))
            yield Text(f"and {counts}", style="dim", no_wrap=True, overflow="ellipsis")
        if self._held:
            yield Text(self._held, style="yellow", no_wrap=True, overflow="ellipsis")
        elif all(leg.status == "waiting" for leg in self.legs.values()):
            yield Text(f"starting, {text.seconds(round(now - self._begun))}", style="dim", no_wrap=True)

    def _chosen(self, room: int) -> list[str]:
        """As many as there is room for: those that run first, then those that did not end well."""
        if len(self.legs) <= room:
            return list(self.legs)
        order = ("running", "failed", "timed out", "interrupted", "stopped", "waiting", "not started", "finished")
        by_need = sorted(self.legs, key=lambda name: order.index(self.legs[name].status))[:room]
        return [name for name in self.legs if name in by_need]

    def _cells(self, name: str, leg: _Leg, now: float) -> dict[str, Text]:
        filled = _BAR * self.done(leg) // self.steps
        running = not leg.ended
        return {
            "leg": Text(plain(name)),
            "layout": Text(self._layouts[name], style="dim"),
            "state": Text("ending" if leg.note and running else leg.status, style=_STYLES.get(leg.status, "")),
            "step": Text(f"{'–' if leg.step is None else self.done(leg)}/{self.steps}"),
            "bar": Text("━" * filled, style="green").append("━" * (_BAR - filled), style="bright_black"),
            "loss": Text("" if leg.loss is None else f"loss {text.value(leg.loss)}"),
            "rate": Text(_rate(leg.rate) if leg.rate and running else "", style="dim"),
            "time": Text(self._time(leg, now)),
            "note": Text(leg.note, style="red" if leg.status in ("failed", "timed out") else "yellow"),
        }

    def _time(self, leg: _Leg, now: float) -> str:
        """What is left, or how long it took, or takes so far."""
        left = leg.left(self.steps, now)
        if left is not None:
            return f"{text.seconds(round(left))} left"
        if leg.ended:
            return f"in {text.seconds(leg.seconds)}" if leg.seconds else ""
        return "" if leg.started is None else text.seconds(round(now - leg.started))


# What goes first where there is less room; leg, state and step stay, and so many cells of what went wrong.
_NOTE = 24
_SPARE = ("bar", "layout", "rate", "loss", "time")


def _fitted(rows: list[dict[str, Text]], width: int) -> Iterator[Text]:
    """Each row on one line of at most `width` cells, in columns, without those that there is no room for."""
    widths = {name: max(row[name].cell_len for row in rows) for name in rows[0]}
    columns = [name for name in widths if widths[name]]

    def over() -> int:
        least = {**widths, "note": min(widths["note"], _NOTE)}
        return sum(least[name] + 2 for name in columns) - 2 - width

    for spare in _SPARE:
        if over() > 0 and spare in columns:
            columns.remove(spare)
    widths["leg"] = min(widths["leg"], max(3, widths["leg"] - over()))
    for row in rows:
        line = Text(no_wrap=True, overflow="ellipsis")
        for name in columns:
            cell = row[name].copy()
            cell.truncate(widths[name], overflow="ellipsis", pad=True)
            line.append_text(cell).append("  ")
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        yield line


def _rate(steps_a_second: float) -> str:
    if steps_a_second < 1:
        return f"{text.seconds(1 / steps_a_second)}/step"
    return f"{steps_a_second:.3g} steps/s"


def _held(event: DevicesHeld) -> str:
    one = [name if pid is None else f"{name} (process {pid})" for name, pid in event.holders.items()]
    return f"waiting for devices that another run of parity holds: {', '.join(one)}"


def _why(event: LegFinished) -> str:
    rank = "" if event.end.failing_rank is None else f"rank {event.end.failing_rank} first"
    return ": ".join(filter(None, (rank, plain(event.end.error or "", 300))))


class _Lines:
    """A line for what happens to a leg, and at most ten for its steps, however many it claims to make."""

    def __init__(self, console: Console, legs: _Legs) -> None:
        self._console = console
        self._legs = legs
        self._parts: dict[str, int] = {}

    def take(self, event: Event) -> None:
        self._legs.take(event)
        line = self._line(event)
        if line:
            self._console.print(plain(line, 500), markup=False, highlight=False, soft_wrap=True)

    def _line(self, event: Event) -> str:
        match event:
            case DevicesHeld():
                return _held(event)
            case LegStarted():
                where = f" on GPU {','.join(event.gpus)}" if event.gpus else ""
                return f"{event.name}: started, {event.ranks} rank{'s' if event.ranks > 1 else ''}{where}"
            case LegProgress():
                return self._progress(event)
            case LegEnding():
                return f"{event.name}: ending, {event.why}"
            case LegFinished():
                end = event.end
                how = f"{end.status} in {text.seconds(end.seconds)}" if end.seconds else end.status
                rank = "" if end.failing_rank is None else f", rank {end.failing_rank} first"
                return f"{end.name}: {how}{rank}" + (f": {end.error}" if end.error else "")
            case Interrupted():
                return "interrupted; ending every rank"
            case TorchImported():
                return f"torch imported in {text.seconds(event.seconds)}"
        return ""

    def _progress(self, event: LegProgress) -> str:
        """Empty where the leg has not come into another tenth of its steps."""
        legs, leg = self._legs, self._legs.legs[event.name]
        part = (legs.done(leg) - 1) * _PARTS // legs.steps
        if part <= self._parts.get(event.name, -1):
            return ""
        self._parts[event.name] = part
        loss = "" if event.loss is None else f" loss {text.value(event.loss)}"
        left = leg.left(legs.steps, legs.clock())
        rest = "" if leg.rate is None or left is None else f", {_rate(leg.rate)}, {text.seconds(round(left))} left"
        return f"{event.name}: step {event.step}{loss}{rest}"
