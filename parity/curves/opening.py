"""From a path to lines of text: the one place where a reader of curves or records touches a file."""

import codecs
import gzip
import heapq
import io
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from parity.curves.notes import Notes, refusal
from parity.curves.pieces import Piece, too_long
from parity.plain import plain
from parity.untrusted import open_regular

__all__ = ["HEAD", "Limits", "Opened", "open_lines"]

# Large enough that splitting is done in C, small enough to stay in the processor's cache until it was looked at.
CHUNK = 1 << 18
# Large enough that comparing lines is done in numpy.
PIECE = 4 << 20
# What detection sees. Launchers print banners and configurations first, some as one line of JSON: the
# longest banner among the frameworks' real logs is below 64 KiB.
HEAD = 1 << 18

# Characters of a whole document, which is in memory at once: 200,000 steps of a Trainer's state. What hostile JSON
# of that size unfolds to was 1.1 GiB.
DOCUMENT = 1 << 25

# UTF-32's little-endian mark begins with UTF-16's, so it is asked first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GZIP = b"\x1f\x8b"
# Files that people have where they look for a log, and what to do instead.
_BINARY = (
    (b":W&B", "is W&B's offline store: export the run's history as JSON lines, api.run(…).scan_history()"),
    (b"SQLite format 3", "is a database, as of MLflow: export each metric's history, client.get_metric_history(…)"),
    (b"PK\x03\x04", "is an archive or a checkpoint, not a log"),
)
# Marks the last line if it has no end; no character of a text is it, as texts with it are not read.
_END = "\0"


@dataclass(frozen=True)
class Limits:
    """How much of a source is read before it is refused.

    Attributes:
        size: bytes, both of the file and of its text once decompressed. Memory does not grow with it but for the
            curves, 8 bytes for each step and metric; time does, a second or more for each gigabyte. What a run that
            is not trusted left is held to less, by whoever judges it.
        line: characters of one line. The longest record of a known framework is below 10 KiB.
    """

    size: int = 8 << 30
    line: int = 1 << 20


class Opened:
    """An open source: its beginning, and once, while it is open, everything in it.

    Attributes:
        head: the first characters, for detection; line ends are newlines.
        cut: whether the line that `holding` handed out just now is the last and has no end, as after a crash.
    """

    def __init__(self, first: bytes, blocks: Iterator[bytes], source: str, limits: Limits, notes: Notes) -> None:
        self._codec = next((name for mark, name in _MARKS if first.startswith(mark)), "utf-8")
        self._blocks = itertools.chain([first], blocks)
        self._source, self._limits, self._notes = source, limits, notes
        self.ended = True
        self.head = next(self._decoded(iter([first])))[:HEAD]
        self.cut = False

    def lines(self) -> Iterator[str]:
        """Every line from the first on, without its end."""
        return _lines(self._decoded(self._blocks), self._source, self._limits)

    def text(self) -> str:
        """Everything at once.

        Raises:
            UsageError: it is longer than 32 Mi characters.
        """
        pieces: list[str] = []
        size = 0
        for piece in self._decoded(self._blocks):
            size += len(piece)
            if size > DOCUMENT:
                raise refusal(self._source, "is one document of more than 32 MiB: keep only what holds the metrics")
            pieces.append(piece)
        return "".join(pieces)

    def holding(self, needles: Sequence[str]) -> Iterator[tuple[int, str]]:
        """The lines that hold any of `needles`, each with its number, counted from 1 by newlines alone.

        Other lines cost what it takes to search bytes: nothing of them is decoded.
        """
        if self._codec in ("utf-8", "utf-8-sig"):
            sought = [needle.encode() for needle in needles]
            for number, line, cut in _searched(self._blocks, sought, self._source, self._limits):
                self.cut = cut
                yield number, self.decoded(line)
        else:
            pieces = itertools.chain(self._decoded(self._blocks), [_END])
            for number, marked in enumerate(_lines(pieces, self._source, self._limits), start=1):
                text = marked.removesuffix(_END)
                if any(needle in text for needle in needles):
                    self.cut = text != marked
                    yield number, text

    def decoded(self, line: bytes) -> str:
        """A line of UTF-8 as text."""
        return self._check(line.decode("utf-8", "replace"))

    def pieces(self) -> Iterator[Piece] | None:
        """Everything as bytes, in pieces of whole lines; None where the text is in no UTF-8."""
        return self._cut_into_pieces() if self._codec in ("utf-8", "utf-8-sig") else None

    def _cut_into_pieces(self) -> Iterator[Piece]:
        # In one buffer: fresh memory for each piece would take as long as searching it.
        buffer = bytearray(PIECE)
        number, filled, enough = 1, 0, 1
        # What is left at last is a piece of its own, whose line has no end: it is given one.
        blocks = ((block, False) for block in self._blocks)
        for more, is_last in itertools.chain(blocks, ((b"", False), (b"\n", True))):
            if is_last and not filled:
                return
            if filled + len(more) > len(buffer):
                buffer = buffer[:filled] + bytearray(filled + len(more))
            buffer[filled : filled + len(more)] = more
            filled += len(more)
            if more and not is_last and filled < enough:
                continue
            end = max(buffer.rfind(b"\n", 0, filled), buffer.rfind(b"\r", 0, filled)) + 1
            if filled - end > self._limits.line:
                raise too_long(self._source, number + buffer.count(b"\n", 0, filled), self._limits.line)
            piece = Piece(buffer, end, number, is_last, self._source, self._limits.line)
            yield piece
            number += piece.lines
            buffer[: filled - end] = buffer[end:filled]
            filled -= end
            enough = PIECE - CHUNK

    def _decoded(self, blocks: Iterator[bytes]) -> Iterator[str]:
        """The text with every line end as a newline, a piece for each block."""
        replacing = codecs.getincrementaldecoder(self._codec)("replace")
        decoder = io.IncrementalNewlineDecoder(replacing, translate=True)
        for block in blocks:
            yield self._check(decoder.decode(block))
        yield self._check(decoder.decode(b"", final=True))

    def _check(self, text: str) -> str:
        self.ended = text.endswith("\n") if text else self.ended
        if "\ufffd" in text:
            self._notes.add(f"some bytes are not {self._codec.removesuffix('-sig').upper()} and were replaced")
        return text


@contextmanager
def open_lines(
    path: str | os.PathLike[str],
    notes: Notes,
    *,
    limits: Limits | None = None,
    within: str | os.PathLike[str] | None = None,
) -> Iterator[Opened]:
    """Open `path` as lines of text, in constant memory.

    Gzip is told by its first bytes; UTF-8 (with or without a byte-order mark) is assumed unless a mark says
    UTF-16 or UTF-32; lines end in LF, CRLF or CR. What was odd goes to `notes`.

    Args:
        within: the folder that the file must lie in without any link on the way from there: for folders
            that untrusted code wrote. Links are followed when it is not given.

    Raises:
        UsageError: the file can't be opened, isn't a regular file, is empty, is not text or is too large;
            `Opened.lines` raises it too, for what shows only further on.
    """
    source, limits = os.fspath(path), limits or Limits()
    with _open(source, limits, within) as file:
        blocks = _blocks(file, source, limits, notes)
        first = b""
        while len(first) < HEAD and (block := next(blocks, b"")):
            first += block
        for mark, why in _BINARY:
            if first.startswith(mark):
                raise refusal(source, why)
        opened = Opened(first, blocks, source, limits, notes)
        if "\x00" in opened.head:
            raise refusal(source, "not text (it holds NUL bytes); UTF-16 needs a byte-order mark, else save as UTF-8")
        if not opened.head.strip():
            raise refusal(source, "is empty: the run wrote nothing")
        yield opened


def _open(source: str, limits: Limits, within: str | os.PathLike[str] | None) -> BinaryIO:
    file = open_regular(source, within=within, follow=True)
    # The limit is this module's own: it holds for decompressed text too, and the error says how to raise it.
    size = os.fstat(file.fileno()).st_size
    if 0 < size <= limits.size:
        return file
    file.close()
    if size == 0:
        raise refusal(source, "is empty: the run wrote nothing")
    raise refusal(source, f"is {_size(size)} large, {_too_large(limits)}")


def _blocks(file: BinaryIO, source: str, limits: Limits, notes: Notes) -> Iterator[bytes]:
    """The bytes of the file, decompressed."""
    total = 0
    try:
        packed = file.read(2) == _GZIP
        file.seek(0)
        # read1: what was decompressed before the end of a cut file is handed out before the error is raised.
        read = gzip.GzipFile(fileobj=file).read1 if packed else file.read
        while block := read(CHUNK):
            total += len(block)
            # Also for plain files: one that is still being written grows past the size it was opened with.
            if total > limits.size:
                raise refusal(source, f"holds more text than {_size(limits.size)}, {_too_large(limits)}")
            yield block
    except EOFError:
        notes.add("the gzip data ends early, as after a crash: what could be read was kept")
    except (gzip.BadGzipFile, zlib.error) as error:
        # A wrong checksum means wrong numbers: there is nothing to keep.
        raise refusal(source, f"is damaged gzip data: {plain(error)}") from None
    except OSError as error:
        raise refusal(source, f"can't be read: {_reason(error)}") from None


def _lines(pieces: Iterator[str], source: str, limits: Limits) -> Iterator[str]:
    number, tail = 1, ""
    for piece in pieces:
        tail += piece
        # Not splitlines(): it also splits at characters that a JSON string may hold as they are.
        lines = tail.split("\n")
        tail = lines.pop()
        for at, line in enumerate((*lines, tail), start=number):
            if len(line) > limits.line:
                raise too_long(source, at, limits.line)
        number += len(lines)
        yield from lines
    if tail:
        yield tail


def _searched(
    blocks: Iterator[bytes], needles: Sequence[bytes], source: str, limits: Limits
) -> Iterator[tuple[int, bytes, bool]]:
    """The lines, ended by LF or CR, that hold any of `needles`; numbered by LF; and whether one has no end."""
    number, carried = 1, b""
    for block in itertools.chain(blocks, [b""]):
        text = carried + (block or b"\n")
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        carried = text[end:]
        if len(carried) > limits.line:
            raise too_long(source, number + text.count(b"\n"), limits.line)
        counted = 0
        for at in _places(text, needles, end):
            if at < counted:
                continue
            start = max(text.rfind(b"\n", counted, at), counted - 1)
            start = max(text.rfind(b"\r", start + 1, at), start) + 1
            newline = text.find(b"\n", at, end)
            carriage_return = text.find(b"\r", at, end if newline < 0 else newline)
            stop = newline if carriage_return < 0 else carriage_return
            if stop - start > limits.line:
                raise too_long(source, number, limits.line)
            number += text.count(b"\n", counted, start)
            yield number, text[start:stop], not block
            counted = stop
        number += text.count(b"\n", counted, end)


def _places(text: bytes, needles: Sequence[bytes], end: int) -> Iterator[int]:
    """Where each of `needles` begins in `text[:end]`, in order."""
    return heapq.merge(*(_found(text, needle, end) for needle in needles))


def _found(text: bytes, needle: bytes, end: int) -> Iterator[int]:
    at = text.find(needle, 0, end)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1, end)


def _reason(error: Exception) -> str:
    return plain(getattr(error, "strerror", None) or error)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count} bytes"


def _too_large(limits: Limits) -> str:
    return f"and at most {_size(limits.size)} is read: keep only the lines with metrics, or raise the limit"
