"""Logs that people read: records printed as lines of text, among everything else that a program prints."""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from parity.curves.curve import LegCurves
from parity.curves.keys import Keys
from parity.curves.numbers import as_number
from parity.curves.opening import Opened
from parity.curves.reading import Reading
from parity.curves.records import Record

__all__ = ["Printed", "plain_text"]

# Enough to convert columns in C.
BATCH = 1024

# ECMA-48: CSI sequences (colours, cursor), OSC strings (titles, links; ended by BEL or ST), and two-byte escapes.
# What an OSC string holds is bounded, so that one left open takes no more than that with it.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_=>])|\x9b[0-?]*[ -/]*[@-~]"
)


def plain_text(line: str) -> str:
    """`line` without terminal escapes."""
    return _ESCAPES.sub("", line) if "\x1b" in line or "\x9b" in line else line


@dataclass(frozen=True)
class Printed:
    """A format of printed lines.

    Attributes:
        name: as users write it in `format:`.
        needles: texts of which every record holds one, as they stand in the file (an escape may cut them in no
            way): lines without any are searched as bytes and never looked at.
        begins: where a record begins. A line may hold several, and a progress bar before the first.
        fields: from the text of one record, up to the next, the names and numbers as they were printed, the
            step among them; None where it is no training record.
        defaults: which field is which metric, and `step`; of several names the first that the file has.
        sentinels: by field, numbers that stand for "no value here", as -1 for the loss of a rank without one.
        generic: see `Format.generic`.
    """

    name: str
    needles: tuple[str, ...]
    begins: re.Pattern[str]
    fields: Callable[[str], Record | None]
    defaults: Mapping[str, tuple[str, ...]]
    sentinels: Mapping[str, float] = field(default_factory=dict)
    generic: bool = False

    def matches(self, head: str) -> str | None:
        """How many lines of the head are records."""
        lines = [line for line in head.split("\n") if any(needle in line for needle in self.needles)]
        count = sum(1 for line in lines for _ in self._records(line))
        return f"{count} line{'s' * (count > 1)} matched" if count else None

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`."""
        reading = Reading(source, keys, self.defaults, records=f"line of {self.name}")
        found = ((record, number) for number, line in opened.holding(self.needles) for record in self._records(line))
        while batch := list(itertools.islice(found, BATCH)):
            records, numbers = [record for record, _ in batch], [number for _, number in batch]
            if self.sentinels:
                self._drop_sentinels(records, numbers, reading)
            reading.take(records, numbers)
        return reading.leg(self.name)

    def _records(self, line: str) -> Iterator[Record]:
        text = plain_text(line)
        begins = [match.start() for match in self.begins.finditer(text)]
        for start, stop in itertools.zip_longest(begins, begins[1:]):
            record = self.fields(text[start:stop])
            if record is not None:
                yield record

    def _drop_sentinels(self, records: list[Record], numbers: list[int], reading: Reading) -> None:
        for record, number in zip(records, numbers, strict=True):
            for name, sentinel in self.sentinels.items():
                if name in record and as_number(record[name]) == sentinel:
                    del record[name]
                    reading.notes.at(f"a {name} of {sentinel:g} stands for none here, ignored", number)
