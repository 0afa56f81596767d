"""What to say of a text in which no format finds a training record."""

import re
from collections.abc import Iterable

from parity.curves.pattern import EXAMPLE
from parity.plain import plain

__all__ = ["unread"]

_TRACEBACK = "Traceback (most recent call last):"
# What Python prints at the end of a traceback: not indented, but for a rank's prefix, and named by convention.
_ERROR = re.compile(
    r"(?:\[[\w|=.-]{1,300}\]:? ?|\d{1,6}: ?)?"
    r"(?P<error>(?:\w{1,200}\.){0,16}\w{0,200}(?:Error|Exception|Exit|Interrupt)\b(?:: .{0,400})?)"
)


def unread(head: str, known: Iterable[str]) -> str:
    """Why nothing was read, in one line: how the run broke off, if the text's beginning tells, else what to do.

    Args:
        head: the beginning of the text.
        known: names of formats.
    """
    _, traceback, rest = head.partition(_TRACEBACK)
    if traceback:
        # The first error is the cause of those after it.
        error = next((found for line in rest.split("\n") if (found := _ERROR.match(line))), None)
        if error:
            return f"no training record in any known format: the run broke off with {plain(error['error'], 120)}"
    first = plain(head.lstrip().split("\n", 1)[0], 60)
    return (
        f"no known format ({', '.join(known)}); it begins {first!r}. If lines have a step and a loss, name them "
        f"with a pattern, such as {EXAMPLE}"
    )
