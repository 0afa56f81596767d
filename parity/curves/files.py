"""A source that is no text: one binary file, or a folder of files, as event files and tracking stores are."""

import os
from dataclasses import dataclass
from typing import BinaryIO

from parity.curves.notes import refusal
from parity.curves.opening import Limits
from parity.untrusted import StrPath, open_folder, open_regular

__all__ = ["Files", "find_files"]

# A run's folder has some ten files, one of MLflow's a hundred; checkpoints beside them a few thousand.
MOST_ENTRIES = 10_000
# From an output folder: mlruns/<experiment>/<run>/metrics/<group>/<name>; event files lie less deep.
DEEPEST = 6
_HEAD = 64


@dataclass
class Files:
    """The files of a source, none of them opened yet.

    Attributes:
        source: the path, as given.
        names: of its files, sorted, relative to it; an empty one where the source is itself a file.
        within: see `read`.
        limits: see `read`. They hold for all files together.
        opened: bytes of the files that were opened so far.
    """

    source: str
    names: tuple[str, ...]
    within: StrPath | None
    limits: Limits
    opened: int = 0

    @property
    def is_folder(self) -> bool:
        """Whether the source is a folder."""
        return self.names != ("",)

    def open(self, name: str) -> BinaryIO:
        """One of the files. Links in a folder are not followed.

        Raises:
            UsageError: it can't be opened, is no regular file, or holds more than is read, alone or with those before
                it; reading raises it where the file grows.
        """
        path = os.path.join(self.source, name) if name else self.source
        within = self.within or (self.source if name else None)
        file = open_regular(path, within=within, limit=self.limits.size, follow=not name)
        self.opened += os.fstat(file.fileno()).st_size
        if self.opened > self.limits.size:
            file.close()
            raise refusal(
                self.source, f"holds more than {self.limits.size:,} bytes in all: name the folder of one run"
            )
        return file

    def head(self) -> bytes:
        """The first 64 bytes of a source that is a file, however large it is; of a folder none."""
        if self.is_folder:
            return b""
        with open_regular(self.source, within=self.within, follow=True) as file:
            try:
                return file.read(_HEAD)
            except OSError as error:
                raise refusal(self.source, f"can't be read: {error.strerror}") from None


def find_files(path: StrPath, *, within: StrPath | None = None, limits: Limits | None = None) -> Files:
    """The source at `path`: itself, or if it is a folder, the files in it, down to six folders deep.

    Raises:
        UsageError: it is a folder that can't be listed, holds more than 10,000 entries, or is reached by a link
            from `within`.
    """
    source = os.fspath(path)
    names: tuple[str, ...] = ("",)
    if os.path.isdir(source):
        folder = open_folder(source, within=within)
        try:
            found: list[str] = []
            count = _list(folder, "", DEEPEST, found, 0)
        except OSError as error:
            raise refusal(source, f"can't be listed: {error.strerror}") from None
        finally:
            os.close(folder)
        if count > MOST_ENTRIES:
            raise refusal(source, f"holds more than {MOST_ENTRIES:,} files: name the folder of one run, or a file")
        names = tuple(sorted(found))
    return Files(source, names, within, limits or Limits())


def _list(folder: int, prefix: str, depth: int, found: list[str], count: int) -> int:
    """Add the names of what is in an open folder, and return how many entries were seen with it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            count += 1
            if count > MOST_ENTRIES:
                break
            if not entry.is_dir(follow_symlinks=False):
                found.append(prefix + entry.name)
            elif depth:
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                below = os.open(entry.name, flags, dir_fd=folder)
                try:
                    count = _list(below, f"{prefix}{entry.name}/", depth - 1, found, count)
                finally:
                    os.close(below)
    return count
