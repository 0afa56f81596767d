"""From a path to lines of text: the one place where a reader of curves or records touches a file."""

import codecs
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from parity.curves.notes import Notes, refusal
from parity.plain import plain
from parity.untrusted import open_regular

__all__ = ["Limits", "Opened", "open_lines"]

# Large enough that splitting is done in C, small enough to be nothing in memory.
CHUNK = 1 << 18
# What detection sees. Launchers print banners and configurations first, some as one line of JSON: the
# longest banner among the frameworks' real logs is below 64 KiB.
HEAD = 1 << 18

# UTF-32's little-endian mark begins with UTF-16's, so it is asked first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Limits:
    """How much of a source is read before it is refused.

    Attributes:
        size: bytes, both of the file and of its text once decompressed. 1 GiB is about ten million steps
            with four metrics, far more than any comparison needs.
        line: characters of one line. The longest record of a known framework is below 10 KiB.
    """

    size: int = 1 << 30
    line: int = 1 << 20


@dataclass(frozen=True)
class Opened:
    """An open source.

    Attributes:
        head: the first characters, for detection; line ends are newlines.
        lines: every line from the first on, without its end; readable once, while the source is open.
    """

    head: str
    lines: Iterator[str]


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
        pieces = _decoded(first, blocks, notes)
        head = next(pieces, "")
        if "\x00" in head:
            raise refusal(source, "not text (it holds NUL bytes); UTF-16 needs a byte-order mark, else save as UTF-8")
        if not head.strip():
            raise refusal(source, "is empty: the run wrote nothing")
        yield Opened(head[:HEAD], _lines(head, pieces, source, limits))


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


def _decoded(first: bytes, rest: Iterator[bytes], notes: Notes) -> Iterator[str]:
    """The text with every line end as a newline; the first piece is all of `first`."""
    codec = next((name for mark, name in _MARKS if first.startswith(mark)), "utf-8")
    replacing = codecs.getincrementaldecoder(codec)("replace")
    decoder = io.IncrementalNewlineDecoder(replacing, translate=True)
    noted = False

    def checked(text: str) -> str:
        nonlocal noted
        if not noted and "\ufffd" in text:
            noted = True
            notes.add(f"some bytes are not {codec.removesuffix('-sig').upper()} and were replaced")
        return text

    yield checked(decoder.decode(first))
    for block in rest:
        yield checked(decoder.decode(block))
    yield checked(decoder.decode(b"", final=True))


def _lines(head: str, pieces: Iterator[str], source: str, limits: Limits) -> Iterator[str]:
    number, tail = 1, head
    while True:
        # Not splitlines(): it also splits at characters that a JSON string may hold as they are.
        lines = tail.split("\n")
        tail = lines.pop()
        for at, line in enumerate((*lines, tail), start=number):
            if len(line) > limits.line:
                raise refusal(
                    source,
                    f"line {at} is longer than {limits.line} characters: this is not a log of one record a line",
                )
        number += len(lines)
        yield from lines
        piece = next(pieces, None)
        if piece is None:
            break
        tail += piece
    if tail:
        yield tail


def _reason(error: Exception) -> str:
    return plain(getattr(error, "strerror", None) or error)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count} bytes"


def _too_large(limits: Limits) -> str:
    return f"and at most {_size(limits.size)} is read: keep only the lines with metrics, or raise the limit"
