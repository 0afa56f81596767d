"""Any text, by a pattern of the user's: `step (?P<step>\\d+).*loss (?P<loss>\\S+)`.

Patterns are RE2's: the time that a search takes grows with the line's length and no faster, whatever the pattern.
Python's own `re` can take for ever, and a suite may be a stranger's.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from parity.curves.curve import LegCurves
from parity.curves.keys import Keys
from parity.curves.notes import refusal
from parity.curves.opening import Opened
from parity.curves.printed import BATCH, plain_text
from parity.curves.ranks import Ranks, prefixes
from parity.curves.reading import Reading
from parity.curves.records import Record
from parity.errors import UsageError
from parity.plain import plain

__all__ = ["EXAMPLE", "FORMAT", "Pattern", "problem"]

EXAMPLE = r"'step (?P<step>\d+).*loss (?P<loss>\S+)'"
"""A pattern, for messages."""

# A pattern for a line is far shorter; RE2 bounds the memory of a longer one as well, with a less helpful message.
_LONGEST = 1000
# RE2's own default for a compiled pattern and its cache: bytes.
_MEMORY = 8 << 20


def problem(pattern: str) -> str:
    """What is wrong with a pattern, after "must"; empty if nothing is."""
    try:
        _compiled(pattern)
    except ValueError as error:
        return str(error)
    return ""


def _compiled(pattern: str) -> Any:
    import re2  # only where there is a pattern: environments that train need not have it

    if len(pattern) > _LONGEST:
        raise ValueError(f"be at most {_LONGEST} characters long")
    options = re2.Options()
    options.max_mem, options.log_errors = _MEMORY, False
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(
            f"be a regular expression of RE2, which has no look-around and no back-references: {plain(why, 80)}"
        ) from None
    if "step" not in found.groupindex or len(found.groupindex) < 2:
        raise ValueError(f"have groups named step and after metrics, such as {EXAMPLE}")
    return found


class Pattern:
    """The format `pattern`: a record for each line that the pattern is found in.

    Args:
        pattern: the user's; None for the one that formats are listed by, which reads nothing.

    Raises:
        UsageError: the pattern is none.
    """

    name = "pattern"
    generic = True

    def __init__(self, pattern: str | None = None) -> None:
        try:
            self._pattern = None if pattern is None else _compiled(pattern)
        except ValueError as error:
            raise UsageError(f"pattern: must {error}") from None

    def matches(self, head: str) -> str | None:
        """Nothing: no text shows that a pattern was meant for it."""
        return None

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`. A curve for every group but `step`."""
        if self._pattern is None:
            raise refusal(source, f"format: pattern needs a pattern, such as {EXAMPLE}")
        defaults = {name: (name,) for name in sorted(self._pattern.groupindex)}
        reading = Reading(source, keys, defaults, records="match of the pattern")
        ranks = Ranks(reading.notes, ["step"], [name for name in defaults if name != "step"])
        found = _found(opened, self._pattern.search, ranks)
        while batch := list(itertools.islice(found, BATCH)):
            reading.take([record for record, _ in batch], [line for _, line in batch])
        return reading.leg(self.name)


def _found(opened: Opened, search: Callable[[str], Any], ranks: Ranks) -> Iterator[tuple[Record, int]]:
    for number, line in enumerate(opened.lines(), start=1):
        text = plain_text(line)
        match = search(text)
        if match is None:
            continue
        record: Record = {name: value for name, value in match.groupdict().items() if value is not None}
        said = [one.rank for one in prefixes(text) if one.stop <= match.start()]
        ranks.take(record, said[-1] if said else "", number)
        yield record, number


FORMAT = Pattern()
