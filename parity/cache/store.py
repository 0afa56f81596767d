"""Entries of the cache: a file for each, named by its key, that holds what a leg left."""

import hashlib
import os
import re
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parity.errors import UsageError
from parity.untrusted import MissingError, open_regular, replacing

__all__ = ["DamagedError", "Store", "TooLargeError"]

MOST_FILES = 10_000
MOST_BYTES = 1 << 30
"""Of one leg."""
KEPT_BYTES = 2 << 30
"""Of the whole folder: what was used longest ago goes first."""
KEPT_SECONDS = 30 * 86400
"""Since an entry was last used."""

_MANIFEST = "manifest.json"
_MOST_MANIFEST = 4 << 20
_ENTRY = re.compile(r"[0-9a-f]{64}\.zip")
_DRAFT_SECONDS = 86400  # after which whoever wrote it was killed
_CHUNK = 1 << 20


class DamagedError(Exception):
    """An entry is not what was written."""


class TooLargeError(Exception):
    """A leg left more than is kept of one; the text says how much that is."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0, le=MOST_BYTES)


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    created: float
    files: dict[str, _File] = Field(max_length=MOST_FILES)


class Store:
    """The folder. Any number of processes may read and write it: an entry is there whole or not at all.

    Args:
        folder: which need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, key: str) -> bool:
        """Whether there is an entry, whole or not."""
        return self._entry(key).is_file()

    def write(self, key: str, source: Path) -> None:
        """Keep the regular files below a folder.

        Raises:
            TooLargeError: there is too much.
            UsageError: the cache cannot be written, or the files cannot be read.
        """
        files = {str(path.relative_to(source)): path for path in _regular(source)}
        if len(files) > MOST_FILES or sum(path.lstat().st_size for path in files.values()) > MOST_BYTES:
            raise TooLargeError(f"more than {MOST_BYTES >> 20} MiB or {MOST_FILES} files")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be written: {error.strerror}") from None
        with (
            replacing(self._entry(key)) as draft,
            zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out,
        ):
            told = {}
            for name, path in files.items():
                with open_regular(path, within=source, limit=MOST_BYTES) as file, out.open(name, "w") as member:
                    told[name] = _copied(file, member)
            manifest = _Manifest(key=key, created=time.time(), files=told)
            out.writestr(_MANIFEST, manifest.model_dump_json())
        self._prune()

    def read(self, key: str, target: Path) -> float | None:
        """Write an entry's files into a folder.

        Args:
            key: of the entry.
            target: a folder, in which nothing may be yet; what came of a damaged entry may be left there.

        Returns:
            When the entry was written, in seconds since the epoch; None where there is none.

        Raises:
            DamagedError: it is not what was written.
            UsageError: the folder cannot be written.
        """
        entry = self._entry(key)
        try:
            with open_regular(entry) as file, zipfile.ZipFile(file) as kept:
                manifest = _manifest(kept, key)
                for name, told in manifest.files.items():
                    path = target / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with replacing(path, within=target) as out, kept.open(name) as member:
                        if _copied(member, out, told.size) != told:
                            raise DamagedError(name)
        except MissingError:
            return None
        except (UsageError, DamagedError):
            raise
        except Exception as error:  # of a file that was changed, zipfile raises nearly anything
            raise DamagedError(str(error)) from None
        with suppress(OSError):  # it may be another's, or read-only
            os.utime(entry)
        return manifest.created

    def _entry(self, key: str) -> Path:
        return self.folder / f"{key}.zip"

    def _prune(self) -> None:
        """Remove what has not been used for long, and what is too much; others may do so at the same time."""
        now, room = time.time(), KEPT_BYTES
        found = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                status = path.lstat()
                if _ENTRY.fullmatch(path.name):
                    found.append((now - status.st_mtime, status.st_size, path))
                elif path.name.startswith(".parity-") and now - status.st_mtime > _DRAFT_SECONDS:
                    path.unlink()
        for age, size, path in sorted(found):
            room -= size
            if room < 0 or age > KEPT_SECONDS:
                with suppress(OSError):
                    path.unlink()


def _manifest(kept: zipfile.ZipFile, key: str) -> _Manifest:
    if kept.getinfo(_MANIFEST).file_size > _MOST_MANIFEST:
        raise DamagedError(_MANIFEST)
    try:
        manifest = _Manifest.model_validate_json(kept.read(_MANIFEST))
    except ValidationError:
        raise DamagedError(_MANIFEST) from None
    inside = all(_is_inside(name) for name in manifest.files)
    if manifest.key != key or not inside or sum(one.size for one in manifest.files.values()) > MOST_BYTES:
        raise DamagedError(_MANIFEST)
    return manifest


def _is_inside(name: str) -> bool:
    """Whether a name is that of a file below a folder, written in one way only."""
    path = PurePosixPath(name)
    return (
        bool(path.parts)
        and not path.is_absolute()
        and ".." not in path.parts
        and str(path) == name
        and "\0" not in name
    )


def _regular(folder: Path) -> Iterator[Path]:
    for here, _, names in os.walk(folder):
        for path in (Path(here, name) for name in sorted(names)):
            if path.is_file() and not path.is_symlink():
                yield path


def _copied(source: IO[bytes], target: IO[bytes], most: int = MOST_BYTES) -> _File:
    """What was copied. Of more than `most` bytes no more is."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        if size > most:
            raise DamagedError("longer than it was")
        digest.update(chunk)
        target.write(chunk)
    return _File(sha256=digest.hexdigest(), size=size)
