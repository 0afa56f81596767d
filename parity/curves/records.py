"""JSON objects from lines of text, whatever else the lines hold."""

import json
import re
from collections.abc import Iterator, Sequence

from parity.curves.notes import Notes

__all__ = ["Record", "Repeated", "beginning", "objects"]

Record = dict[str, object]

# Enough to convert columns in C.
BATCH = 1024
# Characters of a batch: 1024 lines of the longest allowed would be a gigabyte, and objects take more.
BATCH_SIZE = 1 << 22


class Repeated(tuple[object, ...]):
    """The values of a key that one object holds more than once, in order. JSON leaves open which counts."""

    __slots__ = ()


def _object(pairs: list[tuple[str, object]]) -> Record:
    record = dict(pairs)
    if len(record) == len(pairs):
        return record
    values: dict[str, list[object]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return {key: one[0] if len(one) == 1 else Repeated(one) for key, one in values.items()}


# One line at a time: joining lines to one document would be faster, but `{"a":1},{"a":2}` on a line, or an
# object cut in two over two lines, would then be read as if it were right. Not strict, so that a tab inside
# a string does not cost the record. NaN, Infinity and -Infinity are read, as Python writes them.
_decode = json.JSONDecoder(object_pairs_hook=_object, strict=False).raw_decode
# As a format string writes them, and C's library on Windows. A loss that is NaN must not be lost with its line.
_NOT_FINITE = re.compile(
    r"(?<=[:,\[ ])(?P<sign>[-+]?)"
    r"(?:(?P<nan>nan(?:\(\w*\))?|1\.#(?:QNAN|SNAN|IND))|inf(?:inity)?|1\.#INF)(?=\s*[,}\]])",
    re.IGNORECASE,
)


def objects(lines: Iterator[str], notes: Notes) -> Iterator[tuple[list[Record], Sequence[int]]]:
    """The JSON objects among `lines`, in batches, each with the numbers of their lines (from 1).

    A line that begins like an object but is not exactly one is ignored and noted: as torn if nothing follows
    it, else as broken. Lines that begin otherwise are counted.
    """
    number, suspect = 1, 0
    for batch in _batches(lines):
        records, numbers = _all(batch), range(number, number + len(batch))
        if records is not None:
            _broken(suspect, notes)
            suspect = 0
            yield records, numbers
        else:
            records, kept = [], []
            for at, line in zip(numbers, batch, strict=True):
                text = line.strip()
                if not text:
                    continue
                _broken(suspect, notes)
                suspect = 0
                if not text.startswith("{"):
                    notes.at("lines of other text were ignored", at)
                elif (record := _one(text)) is None:
                    suspect = at
                else:
                    records.append(record)
                    kept.append(at)
            if records:
                yield records, kept
        number += len(batch)
    if suspect:
        notes.at("the last line is torn, as after a crash, and was ignored", suspect)


def beginning(text: str) -> tuple[object, str]:
    """The JSON value that `text` begins with, and what follows it.

    Raises:
        ValueError: it begins with none, or with one that is not whole; a `JSONDecodeError` says where.
        RecursionError: it is nested too deeply.
    """
    text = text.lstrip("\ufeff \t\n\r")
    value, end = _decode(text)
    return value, text[end:].strip()


def _batches(lines: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if len(batch) == BATCH or size > BATCH_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _all(batch: list[str]) -> list[Record] | None:
    """The objects if every line is exactly one, else None."""
    try:
        parsed = [_decode(line) for line in batch]
    except (ValueError, RecursionError):
        return None
    records = [record for record, _ in parsed]
    whole = [end for _, end in parsed] == [len(line) for line in batch]
    return records if whole and set(map(type, records)) == {dict} else None


def _one(text: str) -> Record | None:
    try:
        record, end = _decode(text)
    except (ValueError, RecursionError):  # ValueError also for an integer of thousands of digits
        spelled = _NOT_FINITE.sub(_as_json, text)
        return None if spelled == text else _one(spelled)
    return record if end == len(text) and isinstance(record, dict) else None


def _as_json(found: re.Match[str]) -> str:
    return "NaN" if found["nan"] else "-Infinity" if found["sign"] == "-" else "Infinity"


def _broken(line: int, notes: Notes) -> None:
    if line:
        notes.at("not one JSON object, ignored", line)
