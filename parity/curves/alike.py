"""Printed records that look alike, digit for digit, read in columns: a log repeats one line with other numbers.

All other lines are left to the format's own reader.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.curves.pieces import Piece
from parity.curves.ranks import Ranks
from parity.curves.reading import MARKS, Reading
from parity.curves.records import Record
from parity.curves.shape import LONGEST, Columns, Digits, Shape, learn

__all__ = ["Alike"]

# What is learned of hostile logs, of which each line has another shape, is bounded: a shape costs a millisecond.
_MOST_SHAPES = 64
_MOST_TRIED = 128
_MOST_SEEN = 4096
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")

Said = Sequence[tuple[str, Record]]


@dataclass(frozen=True, eq=False)
class _Table:
    """Records of several shapes, in order: all arrays of shape (n,), but those by name, which only some may have."""

    starts: NDArray[np.int64]
    steps: NDArray[np.int64]
    columns: dict[str, tuple[NDArray[np.int64], NDArray[np.float64], Digits]]


class Alike:
    """The shapes that one log's lines have.

    Args:
        needle: what every record holds.
        parse: a line's records, each with who printed it.
        step, metrics: the fields whose numbers are needed.
        never: by field, a value that the reader has to see.
    """

    def __init__(
        self,
        needle: str,
        parse: Callable[[str], Said],
        step: str,
        metrics: Sequence[str],
        never: dict[str, float],
    ) -> None:
        self._needle, self._parse, self._step, self._metrics, self._never = (
            needle.encode(),
            parse,
            step,
            metrics,
            never,
        )
        self._shapes: list[Shape] = []
        self._seen: dict[bytes, bool] = {}
        self._tried = 0

    def read(
        self,
        pieces: Iterator[Piece],
        others: Callable[[bytes, int, bool], Said],
        reading: Reading,
        ranks: Ranks,
    ) -> None:
        """Take every record.

        Args:
            pieces: the log.
            others: the records of a line that is of no known shape; it is given the line, its number, and whether
                it is the last and has no end.
        """
        for piece in pieces:
            lines, found = self._sort(piece)
            table = self._table(found)
            done = 0
            batch: list[tuple[Record, int]] = []
            for start, number, line in lines:
                to = int(np.searchsorted(table.starts, start)) if table else 0
                if table and to > done:
                    _flush(batch, reading)
                    _take(table, done, to, piece, reading, ranks)
                    done = to
                for rank, record in others(line, number, piece.cut):
                    ranks.take(record, rank, number)
                    batch.append((record, number))
            _flush(batch, reading)
            if table and done < table.starts.size:
                _take(table, done, table.starts.size, piece, reading, ranks)

    def _sort(self, piece: Piece) -> tuple[list[tuple[int, int, bytes]], list[tuple[Shape, Columns]]]:
        """The lines that hold the needle: those to be read, with place and number, and those of known shapes."""
        hits, found = self._find(piece.text, piece.places(self._needle), self._shapes)
        lines: list[tuple[int, int, bytes]] = []
        at, stop, number, counted = 0, 0, piece.number, 0
        while at < hits.size:
            hit = int(hits[at])
            at += 1
            if hit < stop:
                continue
            start, stop = piece.line(hit, stop)
            number += piece.text.count(b"\n", counted, start)
            counted = start
            line = bytes(piece.text[start:stop])
            lines.append((start, number, line))
            shape = None if piece.cut else self._meet(line)
            if shape is not None:
                hits, more = self._find(piece.text, hits[at:], [shape])
                found += more
                at = 0
        return lines, found

    def _meet(self, line: bytes) -> Shape | None:
        """Take note of a line that the reader has to read, and learn its shape if it is the second such."""
        if self._tried >= _MOST_TRIED or len(self._shapes) >= _MOST_SHAPES or len(line) > LONGEST:
            return None
        zeros = line.translate(_AS_ZERO)
        learnt = self._seen.get(zeros)
        if learnt is None and len(self._seen) < _MOST_SEEN:
            self._seen[zeros] = False
        if learnt is not False:
            return None
        self._seen[zeros] = True
        self._tried += 1
        shape = learn(line, self._needle, self._parse, (self._step, *self._metrics))
        if shape is None or not self._is_plain(shape):
            return None
        self._shapes.append(shape)
        return shape

    def _is_plain(self, shape: Shape) -> bool:
        """Whether the reader would take all such records in the same way, whatever their numbers."""
        named = {one.name for one in shape.numbers}
        return self._step in named and len(named) > 1 and shape.names.isdisjoint(MARKS)

    def _find(
        self, text: bytearray, hits: NDArray[np.int64], shapes: Sequence[Shape]
    ) -> tuple[NDArray[np.int64], list[tuple[Shape, Columns]]]:
        """The lines of the given shapes, and the places of the needle that are in none of them."""
        array = np.frombuffer(text, dtype=np.uint8)
        found: list[tuple[Shape, Columns]] = []
        for one in sorted(shapes, key=lambda shape: -shape.latest):
            if not hits.size:
                break
            mine, columns = one.find(text, array, hits)
            never = [columns.values[name] == value for name, value in self._never.items() if name in columns.values]
            if not mine.size or any(bad.any() for bad in never):
                continue
            found.append((one, columns))
            one.latest = mine.size
            covered = np.zeros(hits.size, dtype=np.bool_)
            for place in range(one.hits):
                covered[np.minimum(mine + place, hits.size - 1)] = True
            hits = hits[~covered]
        return hits, found

    def _table(self, found: list[tuple[Shape, Columns]]) -> _Table | None:
        if not found:
            return None
        starts = np.concatenate([columns.starts for _, columns in found])
        order = np.argsort(starts, kind="stable")
        steps = np.concatenate([columns.values[self._step] for _, columns in found])[order].astype(np.int64)
        by_name: dict[str, tuple[NDArray[np.int64], NDArray[np.float64], Digits]] = {}
        for name in self._metrics:
            has = [name in columns.values for _, columns in found]
            if not any(has):
                continue
            parts = [columns for one, (_, columns) in zip(has, found, strict=True) if one]
            decimals = max(columns.digits[name].decimals for columns in parts)
            significant = max(columns.digits[name].significant for columns in parts)
            whole = np.concatenate(
                [
                    columns.values[name] if one else np.full(columns.starts.size, np.nan)
                    for one, (_, columns) in zip(has, found, strict=True)
                ]
            )[order]
            if all(has):
                rows = np.arange(starts.size)
            else:
                there = np.concatenate(
                    [np.full(columns.starts.size, one) for one, (_, columns) in zip(has, found, strict=True)]
                )
                rows = np.flatnonzero(there[order])
                whole = whole[rows]
            by_name[name] = (rows, whole, Digits(decimals, significant))
        return _Table(starts[order], steps, by_name)


def _flush(batch: list[tuple[Record, int]], reading: Reading) -> None:
    if batch:
        reading.take([record for record, _ in batch], [number for _, number in batch])
        batch.clear()


def _take(table: _Table, begin: int, stop: int, piece: Piece, reading: Reading, ranks: Ranks) -> None:
    lines = piece.numbers(table.starts[begin:stop])
    ranks.take_steps(table.steps[begin:stop], lines)
    columns: dict[str, tuple[NDArray[np.int64], NDArray[np.float64], Digits]] = {}
    for name, (rows, values, digits) in table.columns.items():
        a, b = np.searchsorted(rows, (begin, stop))
        if b > a:
            columns[name] = (rows[a:b] - begin, values[a:b], digits)
    reading.take_columns(table.steps[begin:stop], columns)
