"""Have torchrun keep every rank's output apart, and read what it says of a failure.

torchrun takes each option that its command line does not give from a variable `PET_<OPTION>`, so the command
need not change. Its workers' output still reaches the command's own output, as a pipe behind it may want that.
"""

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from parity.errors import UsageError
from parity.untrusted import open_regular, replacing

__all__ = ["FOLDER", "collect_logs", "failures", "lowest_rank", "variables"]

FOLDER = "torchrun"  # in the leg's directory
_CHUNK = 1 << 20
RANK = re.compile(r"[0-9]{1,9}")  # longer names of folders are not torchrun's

# Nothing in it reaches over more than one line's end: `\s*` at a line's start takes minutes on a log of empty lines.
FAILURE = re.compile(
    r"^[ \t]*rank[ \t]*:[ \t]*(?P<rank>\d{1,9}) \(local_rank: (?P<local>\d{1,9})\)[ \t]*\n"
    r"[ \t]*exitcode[ \t]*:[ \t]*(?P<code>-?\d{1,9})\b",
    re.MULTILINE,
)


def variables(directory: Path, run_id: str, port: int) -> dict[str, str]:
    """The environment that turns these options on. `--standalone` picks a port and an id of its own.

    Args:
        directory: the leg's.
        run_id: no other leg has it: an agent that comes to another one's store finds no one to meet there.
        port: of the store.
    """
    return {
        "PET_LOG_DIR": str(directory / FOLDER),
        "PET_TEE": "3",  # both streams of every rank: into files, and on
        "PET_MASTER_PORT": str(port),
        "PET_RDZV_ID": re.sub(r"[^\w.-]", "_", run_id),  # becomes part of a folder's name
    }


def collect_logs(directory: Path, folder: str = FOLDER, first: int = 0) -> list[int]:
    """Write each rank's output, standard output first, into `rank-<r>.log`; returns the ranks found.

    Order between the two streams is lost: torchrun writes two files. Restarted attempts follow one another.

    Args:
        directory: the leg's.
        folder: torchrun's, relative to that.
        first: the rank of the first process there.
    """
    ranks: dict[int, list[Path]] = {}
    for path in sorted((directory / folder).glob("*/attempt_*/*/std*.log"), key=_order):
        if RANK.fullmatch(path.parent.name):
            ranks.setdefault(first + int(path.parent.name), []).append(path)
    for rank, parts in ranks.items():
        _join(parts, directory / f"rank-{rank}.log", directory)
    return sorted(ranks)


def _order(path: Path) -> tuple[int, str]:
    attempt = path.parent.parent.name.removeprefix("attempt_")
    return (int(attempt) if RANK.fullmatch(attempt) else 0, "01"[path.name == "stderr.log"])


def _join(parts: list[Path], target: Path, directory: Path) -> None:
    """Put files one after another; what is no file of the leg's own is left out."""
    with replacing(target, within=directory) as out:
        last = b"\n"
        for part in parts:
            try:
                file = open_regular(part, within=directory)
            except UsageError:
                continue
            with file:
                size = os.fstat(file.fileno()).st_size
                if size and last != b"\n":  # the stream before stopped mid-line
                    out.write(b"\n")
                if size:
                    _append(file.fileno(), size, out)
                    last = os.pread(file.fileno(), 1, size - 1)


def _append(source: int, size: int, out: BinaryIO) -> None:
    """Copy a file to the end of another, holes as holes: one of any size is made in a moment, and read for hours."""
    begin, at = out.tell(), 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # which says that nothing but a hole is left
                raise
            break
        end = min(size, os.lseek(source, at, os.SEEK_HOLE))
        out.seek(begin + at)
        while at < end and (chunk := os.pread(source, min(_CHUNK, end - at), at)):
            out.write(chunk)
            at += len(chunk)
    out.seek(begin + size)
    out.truncate()


def failures(output: str) -> Mapping[int, int]:
    """Exit code by rank, the one that torchrun saw first in front, from the report that it prints."""
    _, _, report = output.rpartition("Root Cause (first observed failure)")
    codes: dict[int, int] = {}
    for found in (*FAILURE.finditer(report), *FAILURE.finditer(output)):
        codes.setdefault(int(found["rank"]), int(found["code"]))
    return codes


def lowest_rank(output: str) -> int | None:
    """The rank of the first process on a node, by the report that its torchrun prints of failures there."""
    found = FAILURE.search(output)
    return None if found is None else int(found["rank"]) - int(found["local"])
