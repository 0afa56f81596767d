"""What a preflight finds: one line each, that names what is missing and what to do."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

__all__ = ["ENVIRONMENT", "USAGE", "Finding", "LaunchError", "missing", "one_line", "warning", "wrong"]

USAGE = 2
ENVIRONMENT = 4

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """One thing that the preflight found.

    Attributes:
        level: an `error` keeps the legs from running; a `warning` does not.
        name: the input or the part of the machine that it is about.
        text: what is missing, and what to do.
        exit_code: how the launcher ends; 0 for a warning.
    """

    level: str
    name: str
    text: str
    exit_code: int = 0

    def __str__(self) -> str:
        return one_line(f"{'warning: ' if self.level == 'warning' else ''}{self.name}: {self.text}", 600)


class LaunchError(Exception):
    """Something keeps the legs from running."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


def missing(name: str, text: str) -> Finding:
    """The machine lacks something."""
    return Finding("error", name, text, ENVIRONMENT)


def wrong(name: str, text: str) -> Finding:
    """An input, or the workflow around it, is not what it should be."""
    return Finding("error", name, text, USAGE)


def warning(name: str, text: str) -> Finding:
    """The legs run all the same."""
    return Finding("warning", name, text)


def one_line(text: object, length: int = 300) -> str:
    """`text` on one line, without escapes and unprintable characters, at most `length` characters."""
    words = " ".join(_ESCAPES.sub("", str(text)[: 4 * length]).split())
    shown = "".join(c for c in words if unicodedata.category(c)[0] != "C")
    return shown if len(shown) <= length else shown[: length - 1] + "…"
