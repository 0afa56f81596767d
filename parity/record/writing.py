"""Lines of JSON, and the file that they are added to."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["append", "compact", "line"]

# One for all lines: making an encoder costs as much as a short line.
_encode = json.JSONEncoder(separators=(",", ":")).encode


def line(kind: str, **fields: object) -> str:
    """A line as a person reads it."""
    return json.dumps({"kind": kind, **fields}) + "\n"


def compact(fields: Mapping[str, object]) -> str:
    """A line without spaces, for those of many numbers."""
    return _encode(fields) + "\n"


def append(path: Path, lines: Iterable[str], *, replace: bool) -> None:
    """Add lines to a file.

    Args:
        path: of the file; its folder is made if this is the first time.
        lines: each with its end.
        replace: this is the first time: whatever is there goes.
    """
    if replace:
        path.parent.mkdir(parents=True, exist_ok=True)
    # Unbuffered: lines reach the file in one write, so a reader never sees half of one. By descriptor because
    # opening a file object takes five times as long, every step.
    mode = os.O_TRUNC if replace else os.O_APPEND
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | mode, 0o666)
    try:
        rest = memoryview("".join(lines).encode())
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)
