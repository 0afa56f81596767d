"""Look at what a leg writes, while it runs and after. What can't be read as a plain file reads as nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from parity.curves.notes import Notes
from parity.curves.records import Record, objects
from parity.errors import UsageError
from parity.untrusted import open_regular

__all__ = ["Follower", "json_lines", "tail"]

CHUNK = 1 << 20  # the most that one look at a followed file reads, so that a leg can't fill our memory


def tail(path: Path, limit: int = 1 << 18) -> str:
    """The last `limit` bytes as text; empty where there is no such file."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode(errors="replace")
    except (UsageError, OSError):
        return ""


def json_lines(text: str) -> Iterator[Record]:
    """The objects among the lines of `text`. Torn lines, and others that are no JSON object, are passed over."""
    for records, _ in objects(iter(text.split("\n")), Notes()):
        yield from records


class Follower:
    """Reads what is appended to a file, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._torn = b""

    def read(self) -> str:
        """The whole lines that came since the last call."""
        if self._file is None:
            try:
                self._file = open_regular(self._path)
            except UsageError:  # not there yet
                return ""
        # Not through the file's buffer, which would take the end that it has met for the last one.
        data = self._torn + os.read(self._file.fileno(), CHUNK)
        whole, newline, self._torn = data.rpartition(b"\n")
        if len(self._torn) > CHUNK:  # no line of progress is that long
            self._torn = b""
        return (whole + newline).decode(errors="replace")

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
