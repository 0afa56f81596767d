"""Whole lines of a source as bytes, many at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.curves.notes import refusal
from parity.errors import UsageError

__all__ = ["Numbers", "Piece", "too_long"]

# Signs that stand in few lines which are no records.
_RARE = "|%"
_NEWLINE = 10
# Compared where the processor's cache still holds it.
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Piece:
    """Some lines of a source.

    Attributes:
        text: them, each with its end, and more behind. It holds others as soon as the next piece is asked for.
        end: of the last.
        number: of the first.
        cut: they are what follows the last end of a line, as after a crash.
        source: for messages.
        longest: characters that a line may have.
    """

    text: bytearray
    end: int
    number: int
    cut: bool
    source: str
    longest: int

    @property
    def lines(self) -> int:
        """How many there are, by newlines alone."""
        array = np.frombuffer(self.text, dtype=np.uint8)[: self.end]
        return sum(int(np.count_nonzero(array[at : at + _CHUNK] == _NEWLINE)) for at in range(0, array.size, _CHUNK))

    def places(self, needle: bytes) -> NDArray[np.int64]:
        """Where `needle` begins, from left to right."""
        # A short text of common letters is found slowly; a sign that other lines hardly have is found by numpy.
        sign = next((at for at, byte in enumerate(needle) if chr(byte) in _RARE), None)
        if sign is None:
            return self._found(needle)
        array = np.frombuffer(self.text, dtype=np.uint8)[: self.end]
        begins = np.flatnonzero(array == needle[sign]) - sign
        begins = begins[(begins >= 0) & (begins <= self.end - len(needle))]
        for at, byte in enumerate(needle):
            begins = begins[array[begins + at] == byte]
        return begins

    def _found(self, needle: bytes) -> NDArray[np.int64]:
        found: list[int] = []
        at, size, end = self.text.find(needle, 0, self.end), len(needle), self.end
        while at >= 0:
            found.append(at)
            at = self.text.find(needle, at + size, end)
        return np.array(found, dtype=np.int64)

    def line(self, at: int, after: int) -> tuple[int, int]:
        """Where the line that holds `at` begins and ends; it begins no earlier than `after`."""
        start = max(self.text.rfind(b"\n", after, at), after - 1)
        start = max(self.text.rfind(b"\r", start + 1, at), start) + 1
        newline = self.text.find(b"\n", at, self.end)
        stop = self.end if newline < 0 else newline
        carriage_return = self.text.find(b"\r", at, stop)
        stop = stop if carriage_return < 0 else carriage_return
        if stop - start > self.longest:
            raise too_long(self.source, self.number + self.text.count(b"\n", 0, start), self.longest)
        return start, stop

    def numbers(self, places: NDArray[np.int64]) -> "Numbers":
        """The numbers of the lines that begin at `places`, counted when they are asked for."""
        return Numbers(self, places)


class Numbers(Sequence[int]):
    """Numbers of lines."""

    def __init__(self, piece: Piece, places: NDArray[np.int64]) -> None:
        self._piece, self._places = piece, places

    def __len__(self) -> int:
        return self._places.size

    def __getitem__(self, row: int) -> int:  # type: ignore[override]
        return self._piece.number + self._piece.text.count(b"\n", 0, int(self._places[row]))


def too_long(source: str, line: int, longest: int) -> UsageError:
    """The error for a line that is no record."""
    return refusal(source, f"line {line} is longer than {longest} characters: this is not a log of one record a line")
