"""From records to curves: columns that grow batch by batch, settled once at the end."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from parity.curves.curve import Conflict, Curve, Resolution
from parity.curves.keys import lookup
from parity.curves.notes import Notes, refusal
from parity.curves.numbers import ABSENT, LARGEST_STEP, as_step, cells, resolution, steps_in
from parity.curves.records import Record
from parity.curves.shape import Digits
from parity.plain import plain

__all__ = ["Gather"]

Steps = NDArray[np.int64]

# About 640 MB at 64 bytes a record while curves are settled; training legs have up to 100,000.
MOST_RECORDS = 10_000_000
# One is enough to fail; a person looks at the first few.
MOST_CONFLICTS = 1000
MOST_VALUES = 16
# Formats that round keep fewer digits than this; a float64, or a float32 as float64, has 15 to 17.
FULL = 12


@dataclass
class _Column:
    steps: list[Steps] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)
    touched: list[Steps] = field(default_factory=list)
    decimals: int = 0
    significant: int = 0
    texts: int = 0


class Gather:
    """Collects the values of some keys, by step, and makes curves of them."""

    def __init__(self, source: str, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._columns: dict[str, _Column] = {}
        self._records = 0
        self._again: dict[tuple[int, int], list[str]] = {}

    def steps(
        self, records: list[Record], lines: Sequence[int], key: str
    ) -> tuple[Steps, list[Record], Sequence[int]]:
        """The steps of those records that have one, those records, and their lines; the others are noted."""
        self._count(len(records))
        column = [lookup(record, key) for record in records]
        if set(map(type, column)) == {int}:
            try:
                steps = np.array(column, dtype=np.int64)
            except OverflowError:
                pass  # below, one by one
            else:
                if steps.min() >= 0 and steps.max() <= LARGEST_STEP:
                    return steps, records, lines
        if (printed := steps_in(column)) is not None:
            return np.array(printed, dtype=np.int64), records, lines
        kept: list[int] = []
        found: list[int] = []
        for row, cell in enumerate(column):
            step = None if cell is ABSENT else as_step(cell)
            if step is not None:
                kept.append(row)
                found.append(step)
            elif cell is ABSENT or cell is None:
                self._notes.at(f'records without "{plain(key, 40)}" were ignored', lines[row])
            else:
                self._notes.at("steps that are no whole number from 0 to 2^53 were ignored", lines[row])
        steps = np.array(found, dtype=np.int64)
        return steps, [records[row] for row in kept], [lines[row] for row in kept]

    def add(
        self, steps: Steps, records: list[Record], lines: Sequence[int], keys: Iterable[str]
    ) -> NDArray[np.bool_]:
        """Take the values of `keys` from records whose steps are known.

        Returns:
            For each record, whether it has any of the keys, null or not.
        """
        known = np.zeros(len(records), dtype=np.bool_)
        for key in keys:
            if "." in key:
                column = [lookup(record, key) for record in records]
            else:
                column = [record.get(key, ABSENT) for record in records]
            found = cells(column)
            if not found.touched.size:
                continue
            known[found.touched] = True
            for row in found.odd:
                self._notes.at(f"{plain(key, 40)} is not a number, ignored", lines[row])
            grown = self._columns.setdefault(key, _Column())
            grown.steps.append(_chosen(steps, found.rows))
            grown.values.append(found.values)
            whole = found.touched is found.rows
            grown.touched.append(grown.steps[-1] if whole else _chosen(steps, found.touched))
            grown.decimals = max(grown.decimals, found.decimals)
            grown.significant = max(grown.significant, found.significant)
            grown.texts += found.texts
        return known

    def add_columns(
        self, steps: Steps, columns: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float64], Digits]]
    ) -> None:
        """Take values that were printed as text; see `Reading.take_columns`."""
        self._count(steps.size)
        for key, (rows, values, digits) in columns.items():
            grown = self._columns.setdefault(key, _Column())
            grown.steps.append(_chosen(steps, rows))
            grown.values.append(values)
            grown.touched.append(grown.steps[-1])
            grown.decimals = max(grown.decimals, digits.decimals)
            grown.significant = max(grown.significant, digits.significant)
            grown.texts += values.size

    def _count(self, more: int) -> None:
        self._records += more
        if self._records > MOST_RECORDS:
            raise refusal(self._source, f"holds more than {MOST_RECORDS:,} records: keep only those compared")

    def has(self, key: str) -> bool:
        """Whether any record had `key`, null or not."""
        return key in self._columns

    def has_number(self, key: str) -> bool:
        """Whether `key` had a number anywhere."""
        return key in self._columns and any(values.size for values in self._columns[key].values)

    def curves(self, metrics: dict[str, str]) -> dict[str, Curve]:
        """The curves of `metrics`, which gives each metric's key; those without any number are left out.

        A step is missing from a curve if a record of that step has any of these keys and none has a number
        for this one.
        """
        columns = {metric: self._columns[key] for metric, key in metrics.items() if self.has(key)}
        # Columns that every record filled share their steps: most files need one pass, and one array.
        joined: dict[tuple[int, ...], Steps] = {}
        for column in columns.values():
            for parts in (column.touched, column.steps):
                if (key := tuple(map(id, parts))) not in joined:
                    joined[key] = np.concatenate(parts)
        touched: list[Steps] = []
        for column in columns.values():
            steps = joined[tuple(map(id, column.touched))]
            if not any(steps is other or np.array_equal(steps, other) for other in touched):
                touched.append(steps)
        every = np.empty(0, dtype=np.int64)
        if touched:
            every = touched[0] if len(touched) == 1 else np.concatenate(touched)
            every = every if _is_sorted(every) else np.unique(every)
        filled = {metric: one for metric, one in columns.items() if any(values.size for values in one.values)}
        curves = {
            metric: self._settle(metric, column, joined[tuple(map(id, column.steps))], every)
            for metric, column in filled.items()
        }
        for (count, first), of in self._again.items():
            what = f"{count} step{'s' * (count > 1)} written again with the same value, first step {first}"
            self._notes.add(f"{', '.join(of)}: {what}")
        full = [c.resolution for m, c in curves.items() if not filled[m].significant and _is_full(c.resolution)]
        if full:
            finest = Resolution(max(one.decimals for one in full), max(one.significant for one in full))
            for metric, curve in curves.items():
                if not filled[metric].significant and _is_round_constant(curve):
                    curves[metric] = replace(curve, resolution=finest)
        return curves

    def _settle(self, metric: str, column: _Column, steps: Steps, every: Steps) -> Curve:
        values = np.concatenate(column.values)
        column.values = [values]
        if column.texts == values.size:
            # Text has all its digits; a value could claim more: 85.8G, as 85.8e9, would be printed to the unit.
            printed = Resolution(column.decimals, max(column.significant, 1))
        else:
            printed = resolution(values, column.decimals, column.significant)
        conflicts: tuple[Conflict, ...] = ()
        if np.any(steps[1:] <= steps[:-1]):
            if np.any(steps[1:] < steps[:-1]):
                self._notes.add(f"{plain(metric, 40)}: steps are out of order and were sorted")
            order = np.argsort(steps, kind="stable")  # the first that was written stays the first
            steps, values, conflicts = self._deduplicate(metric, steps[order], values[order])
        missing: tuple[int, ...] = ()
        if steps.size != every.size:
            missing = tuple(np.setdiff1d(every, steps, assume_unique=True).tolist())
        return Curve(metric, steps, values, printed, conflicts, missing)

    def _deduplicate(
        self, metric: str, steps: Steps, values: NDArray[np.float64]
    ) -> tuple[Steps, NDArray[np.float64], tuple[Conflict, ...]]:
        starts = np.flatnonzero(np.r_[True, steps[1:] != steps[:-1]])
        counts = np.diff(np.r_[starts, steps.size])
        first = np.repeat(values[starts], counts)
        same = (values == first) | (np.isnan(values) & np.isnan(first))
        differ = ~np.logical_and.reduceat(same, starts)
        name = plain(metric, 40)
        again = steps[starts[(counts > 1) & ~differ]]
        if again.size:
            self._again.setdefault((int(again.size), int(again[0])), []).append(name)
        conflicts = []
        for group in np.flatnonzero(differ)[:MOST_CONFLICTS]:
            start = starts[group]
            distinct: list[float] = []
            for value in values[start : start + counts[group]].tolist():
                known = any(value == other or (math.isnan(value) and math.isnan(other)) for other in distinct)
                if not known and len(distinct) < MOST_VALUES:
                    distinct.append(value)
            conflicts.append(Conflict(int(steps[start]), tuple(distinct)))
        more = int(differ.sum()) - len(conflicts)
        if more:
            self._notes.add(f"{name}: {more} more steps have several values")
        return steps[starts], values[starts], tuple(conflicts)


def _chosen(steps: Steps, rows: NDArray[np.int64]) -> Steps:
    """The steps of some rows; the same array where that is all of them, once and in order."""
    return steps if np.array_equal(rows, np.arange(steps.size)) else steps[rows]


def _is_sorted(steps: Steps) -> bool:
    return bool(np.all(steps[1:] > steps[:-1]))


def _is_full(printed: Resolution) -> bool:
    return printed.significant >= FULL


def _is_round_constant(curve: Curve) -> bool:
    """Whether the digits say nothing of how the curve was printed: a learning rate of 0.001 is 0.001 in full
    precision too. Where the source prints another metric in full, this one was, too."""
    return curve.resolution.significant <= 2 and np.unique(curve.values).size <= 3
