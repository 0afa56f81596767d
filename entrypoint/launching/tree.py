"""Folders that legs have written to: no link is followed, and none is too deep, too large or closed to be dealt with.

Python's own `os.walk` and `shutil.rmtree` call themselves for each level in some versions, and give up at a thousand.
Here every step is relative to an open folder, of which a sweep holds at most `DEEPEST` open, and a removal two.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["DEEPEST", "LONGEST", "MOST", "Counts", "empty", "remove", "safe_name", "sweep"]

DEEPEST = 64
"""Levels below a folder that is swept; what lies deeper is removed."""
LONGEST = 1024
"""Bytes of a path below it; at 4096 the kernel takes none any more, and there is more in front."""
MOST = 1_000_000
"""Files and folders in all; the rest is removed."""

_REFUSED = frozenset('":<>|*?\\')
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_NAME = 160


@dataclass
class Counts:
    """What a sweep found.

    Attributes:
        files: that are left.
        bytes: of them.
        removed: links, pipes, sockets and devices, and what was too deep or too much.
        renamed: files and folders of names that an upload refuses.
    """

    files: int = 0
    bytes: int = 0
    removed: int = 0
    renamed: int = 0

    def __post_init__(self) -> None:
        self.kept = 0  # files and folders


@dataclass
class _Level:
    """A folder that is being swept: open, with folders in it that are still to be swept."""

    folder: int
    length: int
    below: list[str] = field(default_factory=list)


def safe_name(name: str) -> str:
    """The name, or another one where an upload or a file system elsewhere would refuse it."""
    kept = "".join("_" if c in _REFUSED or unicodedata.category(c)[0] == "C" else c for c in name)
    if kept == name:
        return name
    short = os.fsencode(kept)[:_LONGEST_NAME].decode("utf-8", "ignore")
    return f"{short}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"


def remove(path: str | Path) -> None:
    """Remove a file, a link or a whole folder; nothing is done where there is none.

    Raises:
        OSError: something is left.
    """
    path = Path(path)
    try:
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        _remove(parent, path.name)
    finally:
        os.close(parent)


def empty(top: Path, keep: Collection[str] = ()) -> None:
    """Remove everything from a folder but what has one of these names.

    Raises:
        OSError: something is left.
    """
    folder = _opened(None, str(top))
    try:
        for name in os.listdir(folder):
            if name not in keep:
                _remove(folder, name)
    finally:
        os.close(folder)


def sweep(top: Path) -> Counts:
    """Leave nothing below a folder but files and folders that an upload takes as they are.

    A link that the legs made is followed by what uploads the folder, with rights that they do not have. Folders that
    were closed to their owner are opened, as the next checkout has to remove them, and files made readable.

    Raises:
        OSError: something cannot be brought to that.
    """
    counts = Counts()
    first = _Level(_opened(None, str(top)), 0)
    levels = [first]
    try:
        _sweep_one(first, 1, counts)
        while levels:
            level = levels[-1]
            if not level.below:
                os.close(levels.pop().folder)
                continue
            name = level.below.pop()
            deeper = _Level(_opened(level.folder, name), level.length + len(os.fsencode(name)) + 1)
            levels.append(deeper)
            _sweep_one(deeper, len(levels), counts)
    finally:
        for level in levels:
            with contextlib.suppress(OSError):
                os.close(level.folder)
    return counts


def _sweep_one(level: _Level, depth: int, counts: Counts) -> None:
    """What lies in one folder itself. Names are changed after all were read, so that none is read twice."""
    refused: list[str] = []
    whole: list[str] = []
    with os.scandir(level.folder) as entries:
        for entry in entries:
            status = os.stat(entry.name, dir_fd=level.folder, follow_symlinks=False)
            is_folder = stat.S_ISDIR(status.st_mode)
            long = level.length + len(os.fsencode(entry.name)) > LONGEST
            many = counts.kept >= MOST
            if not is_folder and (long or many or not stat.S_ISREG(status.st_mode)):
                os.unlink(entry.name, dir_fd=level.folder)
                counts.removed += 1
                continue
            if is_folder and (long or many or depth >= DEEPEST):
                whole.append(entry.name)
                continue
            counts.kept += 1
            if is_folder:
                level.below.append(entry.name)
            else:
                counts.files, counts.bytes = counts.files + 1, counts.bytes + status.st_size
                if not status.st_mode & stat.S_IRUSR:
                    _add_mode(level.folder, entry.name, 0o600)
            if safe_name(entry.name) != entry.name:
                refused.append(entry.name)
    for name in whole:
        _remove(level.folder, name)
        counts.removed += 1
    for name in refused:
        other = _rename(level.folder, name)
        counts.renamed += 1
        level.below[:] = [other if one == name else one for one in level.below]


def _rename(folder: int, name: str) -> str:
    """Give a file or a folder a name that is safe, and nobody's there."""
    other = first = safe_name(name)
    number = 1
    while _exists(folder, other):
        number += 1
        other = f"{first}-{number}"
    with contextlib.suppress(PermissionError):  # a folder is written to when it is renamed, by some file systems
        os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
        return other
    _add_mode(folder, name, 0o700)
    os.rename(name, other, src_dir_fd=folder, dst_dir_fd=folder)
    return other


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(parent: int, name: str) -> None:
    """Remove whatever has this name. Folders in folders are moved up first, so that none is ever deep."""
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
            return
    except FileNotFoundError:
        return
    top = _opened(parent, name)
    try:
        number, draft = 0, os.urandom(8).hex()
        for below in _emptied(top):
            waiting = [below]
            while waiting:
                one = waiting.pop()
                inner = _opened(top, one)
                try:
                    for deeper in _emptied(inner):
                        number += 1
                        moved = f"{draft}-{number}"
                        _add_mode(inner, deeper, 0o700)
                        os.rename(deeper, moved, src_dir_fd=inner, dst_dir_fd=top)
                        waiting.append(moved)
                finally:
                    os.close(inner)
                os.rmdir(one, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _emptied(folder: int) -> list[str]:
    """Remove everything from a folder but the folders in it, which are returned."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _opened(parent: int | None, name: str) -> int:
    """Open a folder, which its owner can read, write and enter from now on."""
    _add_mode(parent, name, 0o700)
    return os.open(name, _FOLDER, dir_fd=parent)


def _add_mode(parent: int | None, name: str, mode: int) -> None:
    """Add rights, to no other file than the one of this name, whatever it has become."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode) or status.st_mode & mode == mode:
        return
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        # The kernel has no call that changes the rights of a handle of this kind, but by this name.
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(os.fstat(handle).st_mode) | mode)
    finally:
        os.close(handle)
