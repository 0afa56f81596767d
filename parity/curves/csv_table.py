"""CSV with a header: plain tables, Lightning's `metrics.csv`, and single files of DeepSpeed's CSV monitor."""

import csv
import itertools
import os
import re
from collections.abc import Iterator, Sequence

from parity.curves.curve import LegCurves
from parity.curves.keys import Keys, chosen, listed
from parity.curves.notes import Notes, refusal
from parity.curves.numbers import as_number
from parity.curves.opening import Opened
from parity.curves.reading import Reading
from parity.curves.records import Record
from parity.curves.scalars import NAMES, SAMPLES_FILE, by_samples
from parity.plain import plain

__all__ = ["FORMAT", "Csv"]

BATCH = 1024
# By what stands between names: numbers have decimal commas or thousands, names have neither.
_DELIMITERS = (",", ";", "\t")
# A name, not a number, a sentence or JSON.
_NAME = re.compile(r"[A-Za-z_][\w ./%()\[\]@|:#-]{0,99}")
# More columns than this are a table of something else.
_MOST_COLUMNS = 1000
_OURS = re.compile(r"step|iter|loss|epoch", re.IGNORECASE)
# What an evaluation's row has beside its own values.
_ALWAYS = {"step", "global_step", "iteration", "epoch", "time", "timestamp", "wall_time", "created_at"}
_STEPS = ("step", "Step", "global_step", "iteration", "trainer/global_step")


class Csv:
    """The format `csv`."""

    name = "csv"
    generic = True

    def matches(self, head: str) -> str | None:
        """The columns, if the first line names some and the second has as many, a number among them."""
        header, delimiter = _header(head)
        if not any(map(_OURS.search, header)):
            return None
        rows = csv.reader((line for line in head.split("\n") if line.strip()), delimiter=delimiter)
        try:
            several = [row for row in itertools.islice(rows, 1, 20) if row != header]
        except csv.Error:
            return None
        good = several and len(several[0]) == len(header) and any(as_number(c) is not None for c in several[0])
        return f"a header of {len(header)} columns, with {listed(header[:6])}" if good else None

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`. A row is a step's or part of it; empty cells are nothing, and the last line counts
        only if it has an end."""
        header, delimiter = _header(opened.head)
        if not header:
            raise refusal(source, "has no header: its first line must name the columns, and two at least")
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise refusal(source, f"has several columns of one name, {listed(twice)}: rename all but one")
        reading = Reading(source, keys, {**NAMES, "step": _STEPS}, records="row of a table")
        metrics = {name for several in (*NAMES.values(), *chosen(keys).values()) for name in several} - _ALWAYS
        rows = _rows(opened, source, header, delimiter, reading.notes)
        while batch := list(itertools.islice(rows, BATCH)):
            records = [_record(source, line, header, cells, metrics, delimiter) for line, cells in batch]
            reading.take(records, [number for number, _ in batch])
        leg = reading.leg(self.name)
        return by_samples(leg) if SAMPLES_FILE in os.path.basename(source) else leg


def _header(head: str) -> tuple[list[str], str]:
    """The names of the columns and what stands between them; no names where the first line is no header."""
    first = next((line for line in head.split("\n") if line.strip()), "")
    for delimiter in _DELIMITERS:
        try:
            names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
        except csv.Error:
            continue
        # pandas writes its index in a column without a name.
        if 1 < len(names) <= _MOST_COLUMNS and all(_NAME.fullmatch(name) for name in names[names[0] == "" :]):
            return names, delimiter
    return [], ""


def _rows(
    opened: Opened, source: str, header: Sequence[str], delimiter: str, notes: Notes
) -> Iterator[tuple[int, list[str]]]:
    """The rows behind the header that have its columns, each with its line."""
    reader = csv.reader(opened.lines(), delimiter=delimiter)
    held: tuple[int, list[str]] | None = None
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise refusal(source, f"is no CSV at line {reader.line_num}: {plain(error)}") from None
        if cells is None:
            break
        if held is not None:
            yield held
            held = None
        stripped = [cell.strip() for cell in cells]
        if not any(stripped):
            continue
        if stripped == header:
            if reader.line_num > 1:
                notes.at("the header again, as of another start", reader.line_num)
        elif len(cells) != len(header):
            notes.at("rows of another number of columns were ignored", reader.line_num)
        else:
            held = reader.line_num, stripped
    if held is not None and opened.ended:
        yield held
    elif held is not None:
        notes.at("the last line has no end, so its numbers may be cut, and was ignored", held[0])


def _record(
    source: str, line: int, header: Sequence[str], cells: Sequence[str], metrics: set[str], delimiter: str
) -> Record:
    """A row as a record. An empty cell is left out where the row has values of other metrics, as where Lightning
    gives each logger's values a row; else it is a value that is missing."""
    others = any(cell and name not in _ALWAYS for name, cell in zip(header, cells, strict=True))
    record: Record = {}
    for name, cell in zip(header, cells, strict=True):
        if cell:
            if delimiter != "," and "," in cell and name in metrics:
                raise refusal(
                    source, f"has {plain(cell, 20)!r} at line {line}: thousands or decimals? Use points alone"
                )
            record[name] = cell
        elif name in metrics and not others:
            record[name] = None
    return record


FORMAT = Csv()
