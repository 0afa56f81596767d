"""The guard: outlives the supervising process for as long as it takes to end what that left behind.

A supervisor that is killed with SIGKILL can't end anything. Embedded ranks die with it (`linux.die_with_parent`),
but a command's ranks and daemons don't, as torchrun starts them in sessions of their own. Those that have cleared
environment, it has named while it could.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil

from parity.launch import marker

__all__ = ["main"]

PATIENCE = 10.0  # seconds for SIGKILL to take effect


def main(argv: Sequence[str]) -> None:
    """Wait on standard input: a dot says that the run ended well, its end without one that the supervisor died.

    Lines before that name processes of legs (`marker.note`).

    Args:
        argv: the run's id, and perhaps a command that ends what runs on other machines.
    """
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    named: list[psutil.Process] = []
    torn = b""
    while data := os.read(0, 1 << 16):
        if data.endswith(b"."):
            return
        *lines, torn = (torn + data).split(b"\n")
        named = [one for one in named if one.is_running()]
        named += [one for line in lines if (one := marker.recall(line.decode())) is not None]
    run_id, *elsewhere = argv
    deadline = time.monotonic() + PATIENCE
    while (left := marker.members(run_id, None, named)) and time.monotonic() < deadline:
        marker.send(left, signal.SIGKILL)
        time.sleep(0.05)
    if elsewhere:  # only now: what is left here could ask for more
        with contextlib.suppress(OSError):
            subprocess.run(elsewhere, check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
