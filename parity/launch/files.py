"""Read files that a leg writes. It may run untrusted code: no link is followed, no pipe waited for."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Follower", "json_lines", "open_regular", "tail"]

CHUNK = 1 << 20  # the most that one look at a followed file reads, so that a leg can't fill our memory


def open_regular(path: Path) -> int | None:
    """A file descriptor for reading, or None where there is no regular file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def tail(path: Path, limit: int = 1 << 18) -> str:
    """The last `limit` bytes as text; empty where there is no such file."""
    fd = open_regular(path)
    if fd is None:
        return ""
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
        return file.read(limit).decode(errors="replace")


def json_lines(text: str) -> Iterator[dict[str, Any]]:
    """The objects among the lines of `text`. Torn lines, and others that are no JSON object, are passed over."""
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


class Follower:
    """Reads what is appended to a file, in whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._torn = b""

    def read(self) -> str:
        """The whole lines that came since the last call."""
        if self._fd is None:
            self._fd = open_regular(self._path)
            if self._fd is None:
                return ""
        data = self._torn + os.read(self._fd, CHUNK)
        whole, newline, self._torn = data.rpartition(b"\n")
        if len(self._torn) > CHUNK:  # no line of progress is that long
            self._torn = b""
        return (whole + newline).decode(errors="replace")

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
