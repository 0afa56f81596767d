"""Where a person is told things: standard output or standard error."""

import os
import sys

from rich.console import Console

__all__ = ["make_console"]


class _Console(Console):
    """A console that falls silent when its reader goes away, as `head` does: legs go on and results are written."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_console(stderr: bool = False) -> Console:
    """Standard output, or standard error; a log file is no 80 columns wide."""
    console = _Console(highlight=False, stderr=stderr)
    return console if console.is_terminal else _Console(highlight=False, stderr=stderr, width=200)
