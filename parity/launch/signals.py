"""Turn the signals that ask a run to stop into something the loop looks at."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["StopRequests", "stop_requests"]


@dataclass
class StopRequests:
    """What has arrived.

    Attributes:
        count: signals so far; the second one means "at once".
        first: the first one's number.
    """

    count: int = 0
    first: int = 0


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Count SIGINT, SIGTERM and SIGHUP for a while, then give the handlers back.

    A SIGHUP that is ignored (`nohup`) stays so. Python allows handlers in the main thread only; elsewhere
    nothing is counted.
    """
    requests = StopRequests()

    def note(signum: int, frame: FrameType | None) -> None:
        requests.count += 1
        requests.first = requests.first or signum

    before = {}
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum == signal.SIGHUP and signal.getsignal(signum) == signal.SIG_IGN:
                continue
            before[signum] = signal.signal(signum, note)
    try:
        yield requests
    finally:
        for signum, handler in before.items():
            # None stands for a handler that was not installed from Python and can't be put back.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
