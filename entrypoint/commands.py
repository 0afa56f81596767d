"""Workflow commands of GitHub Actions: how to write them, and how to keep what others print from being one.

The runner reads every line that a step prints. `::name key=value::message` is a command where it begins a line, and
the older `##[name]message` wherever it stands. Standard library.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

__all__ = [
    "command",
    "defuse",
    "error",
    "escape_data",
    "escape_property",
    "group",
    "notice",
    "stop_commands",
    "warning",
]

_NOTHING = "\u200b"  # zero width: the text looks as it did, and is no command
_COLONS = re.compile(":(?=:)")
_HASHES = re.compile(r"#(?=#\[)")


def escape_data(text: str) -> str:
    """A command's message, as the runner reads it back."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """The value of a command's property, such as a title or a file's name."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def command(name: str, message: str = "", **properties: object) -> str:
    """A command's line, without its end; properties that are None or empty are left out."""
    given = ",".join(
        f"{key}={escape_property(str(value))}" for key, value in properties.items() if value not in (None, "")
    )
    return f"::{name}{' ' + given if given else ''}::{escape_data(message)}"


def notice(message: str, *, stream: TextIO | None = None, **properties: object) -> None:
    """Print an annotation of the mildest kind; properties are `title`, `file`, `line`, `endLine`, `col`."""
    _print(command("notice", message, **properties), stream)


def warning(message: str, *, stream: TextIO | None = None, **properties: object) -> None:
    """Print a warning; see `notice`."""
    _print(command("warning", message, **properties), stream)


def error(message: str, *, stream: TextIO | None = None, **properties: object) -> None:
    """Print an error, which does not make the job fail; see `notice`."""
    _print(command("error", message, **properties), stream)


@contextmanager
def group(title: str, *, stream: TextIO | None = None) -> Iterator[None]:
    """Fold what is printed in the block under a title. Groups do not nest."""
    _print(command("group", title), stream)
    try:
        yield
    finally:
        _print(command("endgroup"), stream)


@contextmanager
def stop_commands(*, stream: TextIO | None = None) -> Iterator[None]:
    """Have the runner take nothing that is printed in the block for a command.

    The word that ends it is drawn anew each time, and must reach nothing whose output is printed in the block.
    """
    token = secrets.token_hex(16)
    _print(command("stop-commands", token), stream)
    try:
        yield
    finally:
        _print(command(token), stream)


def defuse(line: str) -> str:
    """The line with each `::` and `##[` broken by a character that is not seen, whatever stands around it.

    A line may hold carriage returns, each of which begins a line for the runner: so it is not only its start.
    """
    return _HASHES.sub("#" + _NOTHING, _COLONS.sub(":" + _NOTHING, line))


def _print(line: str, stream: Any) -> None:
    print(line, file=sys.stdout if stream is None else stream, flush=True)
