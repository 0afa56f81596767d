"""The signals that ask the launcher to stop: SIGINT, then 7.5 s later SIGTERM, then 2.5 s later the end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupted", "Stops"]


class Interrupted(BaseException):
    """A signal asks to stop, and nothing was started yet that must be ended with care."""


class Stops:
    """What has arrived.

    Attributes:
        first: the first signal's number; 0 for none.
        count: how many; the second one means "at once".
        wake: readable as soon as one has arrived.
    """

    def __init__(self) -> None:
        self.first = 0
        self.count = 0
        self.wake, self._write = os.pipe()
        os.set_blocking(self.wake, False)
        os.set_blocking(self._write, False)
        self._raising = False

    def listen(self) -> None:
        """From now on. A SIGHUP that is ignored (`nohup`) stays so."""
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, self._note)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Within the block a signal raises `Interrupted`, as does one that came before."""
        self._raising = True
        try:
            if self.first:
                raise Interrupted
            yield
        finally:
            self._raising = False

    def drain(self) -> None:
        """Take note of what woke: `wake` is readable by the next signal only."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 64)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.count += 1
        self.first = self.first or signum
        with contextlib.suppress(BlockingIOError):
            os.write(self._write, b"!")
        if self._raising:
            self._raising = False
            raise Interrupted
