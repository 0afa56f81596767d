"""Logs that people read: records printed as lines of text, among everything else that a program prints."""

import bisect
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from parity.curves.alike import Alike
from parity.curves.curve import LegCurves, Note
from parity.curves.keys import Keys, chosen
from parity.curves.notes import Notes, refusal
from parity.curves.numbers import as_number
from parity.curves.opening import Opened
from parity.curves.ranks import Ranks, prefixes
from parity.curves.reading import Reading
from parity.curves.records import Record, Repeated

__all__ = ["EVALUATION", "TORN", "Printed", "named", "plain_text"]

# Enough to convert columns in C.
BATCH = 1024

# ECMA-48: CSI sequences (colours, cursor), OSC strings (titles, links; ended by BEL or ST), and two-byte escapes.
# What an OSC string holds is bounded, so that one left open takes no more than that with it.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)|[@-Z\\^_=>])|\x9b[0-?]*[ -/]*[@-~]"
)
# Put where a file ends within a line: the number before it may be half of one, and is none with it.
_CUT = "…"

EVALUATION: Record = {"evaluation": None}
"""What `Printed.fields` returns for a record of an evaluation."""
TORN: Record = {"torn": None}
"""What it returns for a training record of which nothing can be read, but that counts as one."""


def plain_text(line: str) -> str:
    """`line` without terminal escapes."""
    return _ESCAPES.sub("", line) if "\x1b" in line or "\x9b" in line else line


def named(found: Iterable[re.Match[str]]) -> Record:
    """The groups `name` and `value` of matches as a record. Several values of a name are kept, as where two ranks'
    output ran together: nothing tells which is the record's."""
    record: Record = {}
    for match in found:
        name, value = match["name"], match["value"]
        before = record.setdefault(name, value)
        several = before if isinstance(before, Repeated) else (before,)
        if value not in several and len(several) < BATCH:
            record[name] = Repeated((*several, value))
    return record


@dataclass(frozen=True)
class Printed:
    """A format of printed lines.

    Attributes:
        name: as users write it in `format:`.
        needles: texts of which every record holds one, as they stand in the file (an escape may cut them in no
            way): lines without any are searched as bytes and never looked at.
        begins: where a record begins. A line may hold several, and a progress bar before the first. A record ends
            where the next begins, or another rank's output.
        fields: from the text of one record, the names and numbers as they were printed, the step among them;
            `EVALUATION`, `TORN`, or None where it is no record. A number that nothing follows must be followed by
            the end of the text, or it may be half of one.
        defaults: which field is which metric, and `step`; of several names the first that the file has.
        sentinels: by field, numbers that stand for "no value here", as -1 for the loss of a rank without one.
        unnumbered: what to note where records hold no step and are counted from 1; empty: they must have one.
        lossless: what to note where there is no loss.
        remark: what to note of every log of this format.
        generic, first_step: see `Format`.
    """

    name: str
    needles: tuple[str, ...]
    begins: re.Pattern[str]
    fields: Callable[[str], Record | None]
    defaults: Mapping[str, tuple[str, ...]]
    sentinels: Mapping[str, float] = field(default_factory=dict)
    unnumbered: str = ""
    lossless: str = ""
    remark: str = ""
    generic: bool = False
    first_step: int | None = None

    def matches(self, head: str) -> str | None:
        """How many training records the head has, and on how many lines."""
        lines = (line for line in head.split("\n") if any(needle in line for needle in self.needles))
        told = [[record for _, record in self._records(line)] for line in lines]
        counts = [sum(record is not EVALUATION and record is not TORN for record in records) for records in told]
        matched = sum(count > 0 for count in counts)
        return f"{matched} line{'s' * (matched > 1)} matched" if matched else None

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`."""
        reading = Reading(source, keys, self.defaults, records=f"line of {self.name}")
        wanted = {**self.defaults, **chosen(keys)}
        step = wanted.pop("step")
        ranks = Ranks(reading.notes, step, [name for several in wanted.values() for name in several])
        pieces = opened.pieces() if self._can_be_alike(step) else None
        if pieces is not None:
            metrics = [name for several in wanted.values() for name in several]
            alike = Alike(self.needles[0], self._parsed, step[0], tuple(dict.fromkeys(metrics)), dict(self.sentinels))
            alike.read(pieces, functools.partial(self._decoded, opened, reading.notes), reading, ranks)
        else:
            found = self._numbered(self._training(opened, reading.notes), ranks, step, reading.notes, source)
            while batch := list(itertools.islice(found, BATCH)):
                reading.take([record for record, _ in batch], [line for _, line in batch])
        leg = reading.leg(self.name)
        more = [self.remark] * bool(self.remark) + [self.lossless] * (
            bool(self.lossless) and "loss" not in leg.curves
        )
        return dataclasses.replace(leg, notes=(*leg.notes, *map(Note, more)))

    def _training(self, opened: Opened, notes: Notes) -> Iterator[tuple[str, Record, int]]:
        """The training records: the rank that printed each, its names and numbers, and its line."""
        for number, line in opened.holding(self.needles):
            for rank, record in self._of_line(line, number, opened.cut, notes):
                yield rank, record, number

    def _can_be_alike(self, step: tuple[str, ...]) -> bool:
        """Whether records of one shape differ in nothing but their numbers."""
        return len(self.needles) == 1 and len(step) == 1 and not self.unnumbered

    def _parsed(self, line: str) -> list[tuple[str, Record]]:
        return list(self._records(line))

    def _decoded(self, opened: Opened, notes: Notes, line: bytes, number: int, cut: bool) -> list[tuple[str, Record]]:
        return list(self._of_line(opened.decoded(line), number, cut, notes))

    def _of_line(self, line: str, number: int, cut: bool, notes: Notes) -> Iterator[tuple[str, Record]]:
        """The training records of a line: the rank that printed each, its names and numbers."""
        records = list(self._records(line))
        if cut:
            whole, records = records, list(self._records(line + _CUT))
            if whole != records:
                notes.at("the last line has no end, as after a crash: the number that it ends in was ignored", number)
        for rank, record in records:
            if record is EVALUATION:
                notes.at("lines of evaluations were ignored", number)
                continue
            if record is TORN:
                notes.at("torn records were ignored", number)
            for name, sentinel in self.sentinels.items():
                if name in record and as_number(record[name]) == sentinel:
                    del record[name]
                    notes.at(f"a {name} of {sentinel:g} stands for none here, ignored", number)
            yield rank, record

    def _numbered(
        self,
        found: Iterator[tuple[str, Record, int]],
        ranks: Ranks,
        step: tuple[str, ...],
        notes: Notes,
        source: str,
    ) -> Iterator[tuple[Record, int]]:
        """The records, each with a step where the format lets them be counted."""
        counted: bool | None = None
        for rank, record, line in found:
            if record is TORN:
                ranks.number({}, rank)  # it was a step, where they are counted
                continue
            if self.unnumbered and counted is None:
                counted = not any(name in record for name in step)
                if counted:
                    notes.add(self.unnumbered)
            if counted:
                if any(name in record for name in step):
                    raise refusal(source, f"line {line} holds a step and lines before it hold none: keep one kind")
                ranks.number(record, rank)
            ranks.take(record, rank, line)
            yield record, line

    def _records(self, line: str) -> Iterator[tuple[str, Record]]:
        text = plain_text(line)
        begins = [match.start() for match in self.begins.finditer(text)]
        if not begins:
            return
        said = list(prefixes(text))
        ends = sorted({*begins, *(one.start for one in said), len(text)})
        stops = [one.stop for one in said]
        for begin in begins:
            before = bisect.bisect_right(stops, begin)
            rank = said[before - 1].rank if before else ""
            record = self.fields(text[begin : ends[bisect.bisect_right(ends, begin)]])
            if record is not None:
                yield rank, record
