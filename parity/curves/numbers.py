"""Numbers as logs write them: values, steps, and how many digits were printed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.curves.curve import Resolution
from parity.curves.records import Repeated

__all__ = ["ABSENT", "LARGEST_STEP", "Cells", "as_number", "as_step", "cells", "digits", "resolution", "steps_in"]

# Where a record lacks a key, as told from a key whose value is null.
ABSENT = object()

# Beyond this, neighbouring steps are one float64: whoever wrote such a step through a float lost it.
LARGEST_STEP = 1 << 53

# Written out because float() would also take 1_000 and digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)
# With thousands separators: whole groups of three, so that a decimal comma is no number.
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
# "2/4389", the step of how many.
_STEP_OF = re.compile(r" *(\d{1,16}) */ *\d{1,16} *", re.ASCII)
# Longer strings are not printed numbers.
_NUMBER_LENGTH = 64
# 5e-324 with 17 digits has 340 decimals; an exponent in a string can claim any number.
_MOST_DECIMALS = 340
# A column of numbers as most programs print them, each followed by a newline; and what tells how finely.
_COLUMN = re.compile(r"(?:[+-]?\d{1,20}(?:\.\d{0,30})?(?:e[+-]?\d{1,3})?\n)*", re.ASCII | re.IGNORECASE)
_STEPS = re.compile(r"(?:\d{1,15}\n)*", re.ASCII)
_FRACTION = re.compile(r"\.(\d+)\n", re.ASCII)
_EXPONENT = re.compile(r"(?:\.(\d*))?[eE]([+-]?\d+)\n", re.ASCII)
_SIGNIFICANT = re.compile(r"^0*(\d+)", re.ASCII | re.MULTILINE)
_NO_DIGITS = str.maketrans("", "", "+-.")
# A value's last digit is 0 once in ten, so a thousand values without the last digit do not happen.
_SAMPLE = 1000
# The smallest values have the most decimals in a source that prints significant digits.
_SMALLEST = 16


def as_number(value: object) -> float | None:
    """`value` as float64, or None where it is not a number. Beyond float64's range: infinity."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip() if len(value) <= _NUMBER_LENGTH else ""
        if _NUMBER.fullmatch(text):
            return float(text)
        return float(text.replace(",", "")) if "," in text and _GROUPED.fullmatch(text) else None
    if isinstance(value, int):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return value if isinstance(value, float) else None


def as_step(value: object) -> int | None:
    """`value` as a step, or None where it is not a whole number from 0 to 2^53."""
    if isinstance(value, Repeated):
        steps = {as_step(one) for one in value}
        return steps.pop() if len(steps) == 1 else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if 0 <= value <= LARGEST_STEP else None
    of = _STEP_OF.fullmatch(value) if isinstance(value, str) and "/" in value else None
    number = as_number(of[1] if of else value)
    if number is None or not 0 <= number <= LARGEST_STEP or number != int(number):
        return None
    return int(number)


@dataclass(frozen=True)
class Cells:
    """One key's values over a batch of records.

    Attributes:
        rows: int64, the record of each value; a record with a repeated key comes more than once.
        values: float64, same shape.
        touched: int64, the records that hold the key at all.
        odd: records whose value is neither a number nor null.
        decimals, significant: most digits among values that were strings, which keep trailing zeros.
        texts: how many values were strings.
    """

    rows: NDArray[np.int64]
    values: NDArray[np.float64]
    touched: NDArray[np.int64]
    odd: tuple[int, ...] = ()
    decimals: int = 0
    significant: int = 0
    texts: int = 0


def cells(column: Sequence[object]) -> Cells:
    """The numbers in a column that holds whatever the records held, `ABSENT` where nothing."""
    if set(map(type, column)) <= {float, int}:
        try:
            every = np.arange(len(column))
            return Cells(every, np.array(column, dtype=np.float64), every)
        except OverflowError:
            pass  # an integer beyond float64: below, one by one
    if (printed := _printed(column)) is not None:
        return printed
    rows: list[int] = []
    values: list[float] = []
    touched: list[int] = []
    odd: list[int] = []
    decimals = significant = texts = 0
    for row, cell in enumerate(column):
        if cell is ABSENT:
            continue
        touched.append(row)
        for value in cell if isinstance(cell, Repeated) else (cell,):
            number = as_number(value)
            if number is not None:
                rows.append(row)
                values.append(number)
                if isinstance(value, str):
                    texts += 1
                    after, all_digits = digits(value)
                    decimals, significant = max(decimals, after), max(significant, all_digits)
            elif value is not None:
                odd.append(row)
    as_rows = np.array(rows, dtype=np.int64)
    as_touched = np.array(touched, dtype=np.int64)
    as_values = np.array(values, dtype=np.float64)
    return Cells(as_rows, as_values, as_touched, tuple(odd), decimals, significant, texts)


def steps_in(column: Sequence[object]) -> list[int] | None:
    """The steps of a column of texts that are nothing but digits; None where it holds anything else."""
    text = _joined(column)
    return list(map(int, text.split())) if text is not None and _STEPS.fullmatch(text) else None


def _joined(column: Sequence[object]) -> str | None:
    """The texts of a column, a newline behind each; None where it holds anything else, or a newline."""
    texts = [cell for cell in column if isinstance(cell, str)]
    text = "\n".join((*texts, ""))
    return text if len(texts) == len(column) == text.count("\n") else None


def _printed(column: Sequence[object]) -> Cells | None:
    """The numbers in a column of texts, some absent, that are all plain and finite; None where it holds others."""
    rows = [row for row, cell in enumerate(column) if cell is not ABSENT]
    there = [column[row] for row in rows]
    text = _joined(there)
    if not text or not _COLUMN.fullmatch(text):
        return None
    decimals = max(map(len, _FRACTION.findall(text)), default=0)
    small = max((len(fraction) - int(exponent) for fraction, exponent in _EXPONENT.findall(text)), default=0)
    significant = max(map(len, _SIGNIFICANT.findall(text.translate(_NO_DIGITS))))
    at = np.array(rows, dtype=np.int64)
    values = np.array(list(map(float, text.split())), dtype=np.float64)
    return Cells(at, values, at, (), min(max(decimals, small), _MOST_DECIMALS), significant, len(rows))


def digits(text: str) -> tuple[int, int]:
    """Decimals and significant digits of a printed number; (0, 0) where it is not finite."""
    mantissa, _, exponent = text.replace(",", "").strip().lower().lstrip("+-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    if not (whole + fraction).isdigit():
        return 0, 0
    decimals = len(fraction) - int(exponent or 0)
    return min(max(decimals, 0), _MOST_DECIMALS), max(len((whole + fraction).lstrip("0")), 1)


def resolution(values: NDArray[np.float64], decimals: int = 0, significant: int = 0) -> Resolution:
    """The digits that the source printed, from the values read.

    The shortest text that reads back as a value has the digits that were printed, short of trailing zeros,
    so the most digits over many values are the source's. `decimals` and `significant` are what is known
    already, from values that were strings.
    """
    finite = values[np.isfinite(values)]
    sample = finite[:: max(finite.size // _SAMPLE, 1)]
    if sample.size < finite.size:
        size = np.where(finite == 0, np.inf, np.abs(finite))
        smallest = np.argpartition(size, _SMALLEST)[:_SMALLEST]
        sample = np.concatenate([sample, finite[smallest]])
    for value in set(sample.tolist()):
        after, all_digits = digits(repr(value).removesuffix(".0"))
        decimals, significant = max(decimals, after), max(significant, all_digits)
    return Resolution(decimals, max(significant, 1))
