"""The shape of a printed record: lines that differ in nothing but digits, and what their digits mean.

What such a line says is learned from the format's own reader: each run of digits is changed, and what the reader then
reads tells which field the run belongs to, that it belongs to none, or that it must stay as it is. Lines of a shape
are found by comparing bytes, eight at a time, and their numbers are made of their digits.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parity.curves.records import Record

__all__ = ["LONGEST", "Columns", "Digits", "Shape", "learn"]

Parse = Callable[[str], Sequence[tuple[str, Record]]]

# The longest record of a known framework is below 1 KiB when printed.
LONGEST = 2048

_RUN = re.compile(rb"[0-9]+")
_PRINTED = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d+)(?:\.(?P<fraction>\d*))?(?:[eE](?P<esign>[+-]?)(?P<exponent>\d{1,3}))?", re.ASCII
)
# Whole numbers of at most 15 digits and powers of ten up to 10^22 are exact in float64, so that one division or
# multiplication rounds as reading the text would (Clinger, How to read floating point numbers accurately, 1990).
_MOST_DIGITS = 15
_POWERS = 10.0 ** np.arange(23)


@dataclass(frozen=True)
class Digits:
    """How finely a column of texts was printed: most decimals, most significant digits."""

    decimals: int
    significant: int


@dataclass(frozen=True, eq=False)
class Columns:
    """Records of one shape.

    Attributes:
        starts: int64 (n,), where each record's line begins in its text.
        values: by name, float64 (n,).
        digits: by name.
    """

    starts: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]
    digits: dict[str, Digits]


@dataclass(frozen=True)
class _Number:
    """Where a field's number stands: columns of its line."""

    name: str
    begin: int
    stop: int
    negative: bool
    mantissa: tuple[int, ...]
    fraction: int
    exponent: tuple[int, ...]
    exponent_sign: int


@dataclass(eq=False)
class Shape:
    """A line's shape and where its numbers are.

    Attributes:
        length: bytes of the line, without its end.
        before: bytes before the needle's first place in it.
        hits: how often it holds the needle.
        names: every field of its records.
        pattern, allowed, checked: uint64, eight bytes each: the line with 0 for digits that may be any; what carries
            into a byte's highest bit where it is no such digit, or not the same; and that bit, but after the line.
        numbers: where the numbers stand.
        latest: how many lines had it the last time that any had.
    """

    length: int
    before: int
    hits: int
    names: frozenset[str]
    pattern: NDArray[np.uint64]
    allowed: NDArray[np.uint64]
    checked: NDArray[np.uint64]
    numbers: tuple[_Number, ...]
    latest: int = 0
    places: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.places = np.array([at for one in self.numbers for at in (*one.mantissa, *one.exponent)], dtype=np.int64)

    def find(
        self, text: bytearray, array: NDArray[np.uint8], hits: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Columns]:
        """Which of `hits`, places of the needle in `text`, are the first in a line of this shape, and those lines.

        Args:
            array: the same as `text`.
            hits: int64, sorted.
        """
        starts = hits - self.before
        width = 8 * self.pattern.size
        chosen = np.flatnonzero((starts >= 1) & (starts + width <= array.size))
        at = starts[chosen]
        near = (array[at - 1] == 10) & (array[at + self.length] == 10)
        chosen, at = chosen[near], at[near]
        if not chosen.size:
            return chosen, Columns(at, {}, {})
        windows = np.lib.stride_tricks.sliding_window_view(array, width)
        differ = windows[at].view(np.uint64) ^ self.pattern
        # Of each byte: 0 where it must be the same, up to 9 where it may be any digit; no byte carries into another.
        wrong = ((differ | (differ + self.allowed)) & self.checked).any(axis=1)
        if wrong.any():
            good = ~wrong
            chosen, at, differ = chosen[good], at[good], differ[good]
        digits = np.ascontiguousarray(differ.view(np.uint8)[:, self.places].T)
        values: dict[str, NDArray[np.float64]] = {}
        printed: dict[str, Digits] = {}
        row = 0
        for one in self.numbers:
            after = row + len(one.mantissa)
            last = after + len(one.exponent)
            whole, exponent = _joined(digits[row:after]), _joined(digits[after:last])
            values[one.name], printed[one.name] = _numbers(one, whole, exponent, text, at)
            row = last
        return chosen, Columns(at, values, printed)


def _joined(digits: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Numbers from their digits, uint8 (digits, n): float64 (n,), exact up to 15 digits."""
    # Not by a matrix product, for which BLAS starts threads.
    whole = np.zeros(digits.shape[1])
    for row in digits:
        whole *= 10.0
        whole += row
    return whole


def _numbers(
    one: _Number,
    mantissa: NDArray[np.float64],
    exponent: NDArray[np.float64],
    text: bytearray,
    starts: NDArray[np.int64],
) -> tuple[NDArray[np.float64], Digits]:
    if not one.exponent:
        values = mantissa / _POWERS[one.fraction]
        decimals = one.fraction
    else:
        power = one.exponent_sign * exponent.astype(np.int64) - one.fraction
        within = np.minimum(np.abs(power), _POWERS.size - 1)
        values = np.where(power < 0, mantissa / _POWERS[within], mantissa * _POWERS[within])
        for row in np.flatnonzero(np.abs(power) >= _POWERS.size):
            values[row] = abs(float(text[starts[row] + one.begin : starts[row] + one.stop]))
        decimals = int(-power.min(initial=0)) if power.size else 0
    significant = len(str(int(mantissa.max(initial=0.0))))
    return (-values if one.negative else values), Digits(min(max(decimals, 0), 340), significant)


def learn(line: bytes, needle: bytes, parse: Parse, wanted: Iterable[str]) -> Shape | None:
    """The shape of a line that holds one record, or None where its fields can't be told from each other by digits.

    Args:
        line: without its end; ASCII.
        needle: is in it.
        parse: a line's records, each with who printed it.
        wanted: the fields whose numbers are needed.
    """
    if len(line) > LONGEST or not line.isascii() or b"\r" in line or needle not in line:
        return None
    said = parse(line.decode())
    if len(said) != 1 or said[0][0]:
        return None
    record = said[0][1]
    if not record or not all(isinstance(value, str) for value in record.values()):
        return None
    free, spans = _probe(line, parse, record)
    if free is None:
        return None
    numbers = []
    for name in dict.fromkeys(wanted):
        if name in record:
            one = _number(name, str(record[name]), spans.get(name), free)
            if one is None:
                return None
            numbers.append(one)
    width = (len(line) + 1 + 7) // 8 * 8
    pattern = np.frombuffer(line + b"\n".ljust(width - len(line), b"\0"), np.uint8).copy()
    allowed, checked = np.full(width, 0x7F, np.uint8), np.zeros(width, np.uint8)
    places = np.array(sorted(free), dtype=np.int64)
    pattern[places], allowed[places] = ord("0"), 0x76
    checked[: len(line) + 1] = 0x80
    allowed[len(line) + 1 :] = 0
    count, at = 0, line.find(needle)
    while at >= 0:
        count, at = count + 1, line.find(needle, at + len(needle))
    return Shape(
        length=len(line),
        before=line.find(needle),
        hits=count,
        names=frozenset(record),
        pattern=pattern.view(np.uint64),
        allowed=allowed.view(np.uint64),
        checked=checked.view(np.uint64),
        numbers=tuple(numbers),
    )


def _probe(line: bytes, parse: Parse, record: Record) -> tuple[set[int] | None, dict[str, int]]:
    """Columns whose digits may be any, None where there is no telling; and by field where its value begins."""
    free: set[int] = set()
    begins: dict[str, int] = {}
    for run in _RUN.finditer(line):
        told = [_changed(line, run, digit, parse, record) for digit in (b"0", b"1", b"7", b"9")]
        if any(one != told[0] for one in told) or isinstance(told[0], bool):
            continue  # not any digits: the run must be the same
        if told[0] is not None:
            name, begin = told[0]
            if begins.setdefault(name, begin) != begin:
                return None, {}
        free.update(range(*run.span()))
    return free, begins


def _changed(
    line: bytes, run: re.Match[bytes], digit: bytes, parse: Parse, record: Record
) -> tuple[str, int] | bool | None:
    """What a run of other digits changes: the field, and where its value begins; None: nothing. False: more."""
    begin, stop = run.span()
    other = digit * (stop - begin)
    if other == run[0]:
        other = b"8" * (stop - begin)
    said = parse((line[:begin] + other + line[stop:]).decode())
    if len(said) != 1 or said[0][0] or said[0][1].keys() != record.keys():
        return False
    changed = [name for name, value in said[0][1].items() if value != record[name]]
    if not changed:
        return None
    if len(changed) > 1:
        return False
    (name,) = changed
    before, after = str(record[name]), str(said[0][1][name])
    if len(before) != len(after):
        return False
    # Only where exactly the run's digits are the value's, at one place.
    places = [
        at
        for at in range(len(before) - (stop - begin) + 1)
        if before[:at] + other.decode() + before[at + stop - begin :] == after
        and before[at : at + stop - begin] == run[0].decode()
        and line[begin - at : begin - at + len(before)] == before.encode()
    ]
    return (name, begin - places[0]) if len(places) == 1 else False


def _number(name: str, value: str, begin: int | None, free: set[int]) -> _Number | None:
    """Where the digits of a value stand; None where it is no plain number whose every digit may be any."""
    match = _PRINTED.fullmatch(value)
    if match is None or begin is None:
        return None

    def run(group: str) -> tuple[int, ...]:
        return tuple(range(begin + match.start(group), begin + match.end(group))) if match[group] else ()

    mantissa = run("whole") + run("fraction")
    exponent = run("exponent")
    if len(mantissa) > _MOST_DIGITS or not free.issuperset(mantissa + exponent):
        return None
    sign = -1 if match["esign"] == "-" else 1
    fraction = len(match["fraction"] or "")
    return _Number(name, begin, begin + len(value), match["sign"] == "-", mantissa, fraction, exponent, sign)
