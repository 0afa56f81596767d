"""The launcher's side of the keeper: hands on what the legs print, and has them ended in time."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from entrypoint.launching.keeper import INTERRUPT, KILL, Task
from entrypoint.launching.stops import Stops

__all__ = ["Ended", "Lines", "supervise"]

_AFTER_SIGNAL = 3.0
"""Seconds for the legs to write down how far they came. The runner grants ten in all, and removing takes some."""
_AFTER_TIMEOUT = 15.0
_AFTER_KILL = 8.0

_LONGEST = 1 << 14
_MOST = 20 << 20
_A_LINE = 64
"""Bytes that a line costs beside what it holds: its time of day, and the time that it takes to print it."""
_PART = 1 << 12
"""Bytes that are printed before signals and the time are looked at again."""


@dataclass(frozen=True)
class Ended:
    """How the legs ended.

    Attributes:
        how: `finished` by themselves, `timed out`, or `interrupted`.
        exit_code: theirs; None if they were killed.
        seconds: how long they ran.
    """

    how: str
    exit_code: int | None
    seconds: float


class Lines:
    """Bytes in, whole lines out, each of a length that a log can take, and not without an end.

    Args:
        show: takes a line without its end.
        most: bytes to show, with what each line costs.
    """

    def __init__(self, show: Callable[[str], None], most: int = _MOST) -> None:
        self._show, self._left, self._rest = show, most, b""

    def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        while len(self._rest) > _LONGEST:
            # On a line of its own: what was broken in two must not come together again.
            self._line(self._rest[:_LONGEST])
            self._rest = self._rest[_LONGEST:]

    def end(self) -> None:
        if self._rest:
            self._line(self._rest)
        self._rest = b""

    @property
    def full(self) -> bool:
        """Nothing is shown any more."""
        return self._left < 0

    def _line(self, line: bytes) -> None:
        if self._left < 0:
            return
        self._left -= len(line) + _A_LINE
        if self._left < 0:
            self._show("(more was printed than a log takes; it is not shown)")
            return
        for start in range(0, max(len(line), 1), _LONGEST):
            self._show(line[start : start + _LONGEST].decode("utf-8", "replace"))


def supervise(
    task: Task,
    *,
    keeper: Sequence[str],
    env: Mapping[str, str],
    timeout: float,
    stops: Stops,
    show: Callable[[str], None],
    begun: Callable[[int], None] = lambda pid: None,
) -> Ended:
    """Run a task to its end, or end it.

    Args:
        task: what is run.
        keeper: the command line of the keeper.
        env: the whole environment of the keeper, and so of what it starts.
        timeout: seconds after which it is ended.
        stops: signals after which it is ended.
        show: takes each line that it prints.
        begun: told of the keeper's process id.
    """
    start = time.monotonic()
    lines = Lines(show)
    process = subprocess.Popen(
        list(keeper),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(env),
        cwd="/",
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    begun(process.pid)
    orders, output = process.stdin, process.stdout.fileno()
    how, deadline, killing, listening = "finished", start + timeout, False, True

    def order(word: bytes) -> None:
        with contextlib.suppress(OSError):
            orders.write(word)

    # In parts, should it be longer than the pipe takes at once: `write` without a buffer may write less.
    rest = memoryview(task.line())
    with contextlib.suppress(OSError):
        while rest:
            rest = rest[orders.write(rest) or 0 :]
    while process.poll() is None:
        now = time.monotonic()
        if how == "finished" and (stops.first or now >= deadline):
            how = "interrupted" if stops.first else "timed out"
            deadline = now + (_AFTER_SIGNAL if stops.first else _AFTER_TIMEOUT)
            order(INTERRUPT)
        elif how != "finished" and not killing and (now >= deadline or stops.count > 1 or _hurry(how, stops)):
            killing, deadline = True, now + _AFTER_KILL
            order(KILL)
        elif killing and now >= deadline:
            process.kill()
        watched = [stops.wake, *([output] if listening else [])]
        ready = select.select(watched, [], [], min(max(deadline - now, 0.01), 0.2))[0]
        if stops.wake in ready:
            stops.drain()
        if output in ready:
            data = os.read(output, 1 << 16 if lines.full else _PART)
            listening = bool(data)
            lines.take(data)
    _drain(output, lines)
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            pipe.close()
    code = process.returncode
    return Ended(how, None if killing or code < 0 else code, time.monotonic() - start)


def _hurry(how: str, stops: Stops) -> bool:
    """A signal while the legs are given time after a time-out."""
    return how == "timed out" and stops.first != 0


def _drain(output: int, lines: Lines) -> None:
    """What is left in the pipe; a process that got away may hold it open."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until and select.select([output], [], [], 0)[0]:
        data = os.read(output, 1 << 16 if lines.full else _PART)
        if not data:
            break
        lines.take(data)
    lines.end()
    sys.stdout.flush()
