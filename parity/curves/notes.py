"""What a reader noticed, bounded in number and length, and safe to print."""

import re
import unicodedata
from dataclasses import dataclass, field

from parity.curves.curve import Note
from parity.errors import UsageError

__all__ = ["Notes", "plain", "refusal"]

# Past some twenty a person reads none of them, and a hostile log could make millions.
MOST = 20
# Enough to find the place; the rest is counted.
LINES_NAMED = 3
# Longer than any sentence here with its key names, short enough for one terminal line or two.
LENGTH = 200

# CSI (colours, cursor) and OSC (window titles, hyperlinks, ended by BEL or ST); dropping only the escape
# character would leave their parameters in the text.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?", re.DOTALL)
_SPACES = re.compile(r"\s+")
# Control, format (bidirectional overrides, zero width), surrogate, private and unassigned characters: they
# can hide text, reorder it, or fail to encode.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn"}


def plain(text: object, length: int = LENGTH) -> str:
    """`text` on one line, without escapes and unprintable characters, at most `length` characters."""
    # A key may be a megabyte long; four times the length leaves room for what is dropped.
    some = str(text)[: 4 * length]
    one_line = _SPACES.sub(" ", _ESCAPES.sub("", some)).strip()
    shown = "".join(c for c in one_line if unicodedata.category(c) not in _UNPRINTABLE)
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def refusal(source: str, why: str) -> UsageError:
    """The error for a source that can't be read: one line, the source first."""
    return UsageError(f"{plain(source)}: {why}")


@dataclass
class _Tally:
    count: int = 0
    lines: list[int] = field(default_factory=list)


class Notes:
    """Collects notes in the order in which their kind was first noticed."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Tally | None] = {}
        self._dropped = 0

    def add(self, text: str) -> None:
        """A note on the source as a whole."""
        if self._room(text):
            self._kinds.setdefault(text, None)

    def at(self, what: str, line: int, count: int = 1) -> None:
        """A note on a line, counted with the others of its kind; `count` such lines from `line` on."""
        if not self._room(what):
            return
        tally = self._kinds.setdefault(what, _Tally())
        if tally is not None:
            tally.count += count
            if len(tally.lines) < LINES_NAMED:
                tally.lines.append(line)

    def _room(self, kind: str) -> bool:
        room = kind in self._kinds or len(self._kinds) < MOST
        self._dropped += not room
        return room

    def all(self) -> tuple[Note, ...]:
        """The notes, and one more that counts those there was no room for."""
        notes = [Note(plain(_sentence(what, tally))) for what, tally in self._kinds.items()]
        if self._dropped:
            notes.append(Note(f"and {self._dropped} more"))
        return tuple(notes)


def _sentence(what: str, tally: _Tally | None) -> str:
    if tally is None:
        return what
    named = ", ".join(map(str, tally.lines))
    more = tally.count - len(tally.lines)
    return f"{what}: line{'s' * (tally.count > 1)} {named}" + (f" and {more} more" if more else "")
