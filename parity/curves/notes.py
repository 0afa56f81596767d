"""What a reader noticed, bounded in number and length, and safe to print."""

from dataclasses import dataclass, field

from parity.curves.curve import Note
from parity.errors import UsageError
from parity.plain import plain

__all__ = ["Notes", "refusal"]

# Past some twenty a person reads none of them, and a hostile log could make millions.
MOST = 20
# Enough to find the place; the rest is counted.
LINES_NAMED = 3


def refusal(source: str, why: str) -> UsageError:
    """The error for a source that can't be read: one line, the source first."""
    return UsageError(f"{plain(source)}: {why}")


@dataclass
class _Tally:
    count: int = 0
    lines: list[int] = field(default_factory=list)


class Notes:
    """Collects notes in the order in which their kind was first noticed.

    Attributes:
        place: what the numbers given to `at` count.
    """

    def __init__(self) -> None:
        self.place = "line"
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
        notes = [Note(plain(_sentence(what, tally, self.place))) for what, tally in self._kinds.items()]
        if self._dropped:
            notes.append(Note(f"and {self._dropped} more"))
        return tuple(notes)


def _sentence(what: str, tally: _Tally | None, place: str) -> str:
    if tally is None:
        return what
    named = ", ".join(map(str, tally.lines))
    more = tally.count - len(tally.lines)
    return f"{what}: {place}{'s' * (tally.count > 1)} {named}" + (f" and {more} more" if more else "")
