"""The last lines of a failed leg's logs."""

import contextlib
import re
from collections.abc import Sequence

from parity.errors import UsageError
from parity.plain import plain
from parity.result import LegResult
from parity.result.drawn import LogTail
from parity.rundir import RunDirectory, last_lines

__all__ = ["tails"]

_LINES = 40
_LONGEST = 400
_MOST_LOGS = 3


def tails(directory: RunDirectory, leg: LegResult) -> list[LogTail]:
    """The ends of the logs that tell most: of the rank that failed first, of what the command itself printed, then of
    other ranks. Lines are untrusted still, but printable; empty logs are left out."""
    found: list[LogTail] = []
    for path in _most_telling_first(leg.logs, leg.failing_rank):
        last: list[str] = []
        with contextlib.suppress(UsageError):  # a log that is gone or led astray shows nothing
            last = last_lines(directory.path / path, directory.path, _LINES)
        lines = [_printable(line) for line in last]
        if any(lines):
            found.append(LogTail(path=path, lines=lines))
        if len(found) == _MOST_LOGS:
            break
    return found


def _most_telling_first(paths: Sequence[str], failing_rank: int | None) -> list[str]:
    """The failing rank's log, then the command's own, then the others'."""

    def place(path: str) -> int:
        if failing_rank is not None and re.search(rf"(^|/)rank-{failing_rank}\.log$", path):
            return 0
        return 1 if path.endswith("command.log") else 2

    return sorted(paths, key=place)


def _printable(line: str) -> str:
    """The line with its indentation, without what hides or reorders text."""
    indent = re.match(r"[ \t]*", line)
    return " " * min(40, len(indent[0].expandtabs(4)) if indent else 0) + plain(line, _LONGEST)
