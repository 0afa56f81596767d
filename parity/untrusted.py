"""Files in folders that a leg can write to: read as data, written to without being led elsewhere.

A leg may run code that no one has read. It can put a link, a pipe or a device where a log is expected, exchange a
folder for a link between two looks at it, and let a file grow while it is read. So what is checked here is the file
that was opened, and each folder is opened from the one above it, never looked up again by its path.
"""

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from parity.errors import UsageError
from parity.plain import plain

__all__ = [
    "MissingError",
    "StrPath",
    "copy_bounded",
    "open_folder",
    "open_regular",
    "read_bytes",
    "replacing",
    "write_whole",
]

StrPath = str | os.PathLike[str]

# Large enough that the calls cost nothing beside the copying.
CHUNK = 1 << 20

_KINDS = {
    stat.S_IFDIR: "a folder: name the file in it",
    stat.S_IFIFO: "a pipe, not a file: save what comes out of it first",
    stat.S_IFCHR: "a device, not a file",
    stat.S_IFBLK: "a device, not a file",
    stat.S_IFSOCK: "a socket, not a file",
}
_LINK = "is a link: links are not followed"


class MissingError(UsageError):
    """There is no file of that name."""


def open_regular(
    path: StrPath, *, within: StrPath | None = None, limit: int | None = None, follow: bool = False
) -> BinaryIO:
    """Open a regular file for reading, without waiting and without following links.

    Args:
        path: the file. It may not be a link, whatever it leads to.
        within: a folder above it; nothing on the way from there to the file may be a link. How the folder itself
            is reached does not matter. None: the file's folders are whatever the path leads through.
        limit: bytes that may be read. Asked of the file when it is opened, and again while it is read, as it may
            grow.
        follow: let the file be a link; for a path that a person gave. Has no effect with `within`.

    Raises:
        MissingError: there is no such file.
        UsageError: it is a link, outside of `within`, no regular file, too large, or can't be opened; reading from
            the returned file raises it too, past `limit`. One line that begins with the path.
    """
    try:
        with _place(path, within) as (folder, name):
            follow = follow and within is None
            # Asked before opening, which is an act on some devices, and again after, of the file that was opened.
            _refuse_kind(path, os.stat(name, dir_fd=folder, follow_symlinks=follow), limit)
            # Without O_NONBLOCK, opening a pipe that no one writes to would wait for ever.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
            handle = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise MissingError(_line(path, "no such file")) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise _refusal(path, f"can't be opened: {_reason(error)}") from None
    try:
        _refuse_kind(path, os.fstat(handle), limit)
        if limit is None:
            return os.fdopen(handle, "rb")
        return io.BufferedReader(_Bounded(handle, path, limit))
    except BaseException:
        os.close(handle)
        raise


def open_folder(path: StrPath, *, within: StrPath | None = None) -> int:
    """A descriptor of a folder, to list it and to open what is in it; for the caller to close.

    Args:
        within: a folder above it; nothing on the way from there may be a link, nor may the folder. None: links are
            followed.

    Raises:
        MissingError: there is no such folder.
        UsageError: it is no folder, is a link, or can't be opened. One line that begins with the path.
    """
    try:
        with _place(path, within) as (folder, name):
            if within is not None and stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise _refusal(path, _LINK)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if within is None else os.O_NOFOLLOW)
            return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        raise MissingError(_line(path, "no such folder")) from None
    except (OSError, ValueError) as error:
        raise _refusal(path, f"can't be opened: {_reason(error)}") from None


def read_bytes(path: StrPath, *, within: StrPath | None, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        MissingError: there is no such file.
        UsageError: as `open_regular`, or the file can't be read.
    """
    with open_regular(path, within=within, limit=limit) as file:
        try:
            return file.read()
        except OSError as error:
            raise _refusal(path, f"can't be read: {_reason(error)}") from None


def copy_bounded(source: StrPath, target: StrPath, *, limit: int, within: StrPath | None = None) -> None:
    """Copy a regular file of at most `limit` bytes, whole or not at all; `target` is replaced.

    Args:
        within: a folder above `target`; see `replacing`.

    Raises:
        MissingError: there is no such source.
        UsageError: as `open_regular` says of the source, and `replacing` of the target.
    """
    with open_regular(source, limit=limit) as file, replacing(target, within=within) as out:
        while chunk := _next(file, source):
            out.write(chunk)


def write_whole(path: StrPath, text: str, *, within: StrPath | None = None) -> None:
    """Write `text` as UTF-8, whole or not at all; a file or a link of that name is replaced.

    Raises:
        UsageError: as `replacing`.
    """
    with replacing(path, within=within) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: StrPath, *, within: StrPath | None = None) -> Iterator[BinaryIO]:
    """A new file to write to, which takes the place of `path` when the block ends without an exception.

    What is written goes to a draft in the same folder, of a name that no one can have foreseen. A link at `path` is
    replaced and not written through.

    Args:
        within: a folder above the file; nothing on the way from there may be a link. None: the file's folders are
            whatever the path leads through.

    Raises:
        UsageError: the file can't be written, or its folder is reached by a link. OSErrors of the block count as
            failures to write.
    """
    draft = f".parity-{secrets.token_hex(16)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with _place(path, within) as (folder, name):
            handle = os.open(draft, flags, 0o644, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    yield file
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise
    except (OSError, ValueError) as error:
        raise _refusal(path, f"can't be written: {_reason(error)}") from None


@contextmanager
def _place(path: StrPath, within: StrPath | None) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that holds `path`, and the file's name in it."""
    if within is None:
        top, names = os.path.dirname(path) or os.curdir, [os.path.basename(path)]
    else:
        top = os.fspath(within)
        names = os.path.relpath(os.path.abspath(path), os.path.abspath(within)).split(os.sep)
        if names[0] in (os.pardir, os.curdir):
            raise _astray(path, within)
    if not names[-1]:  # "folder/": the folder itself, which its kind says
        names[-1] = os.curdir
    folder = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names[:-1]:
            try:
                below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            except NotADirectoryError:
                if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise _astray(path, within) from None
                raise
            os.close(folder)
            folder = below
        yield folder, names[-1]
    finally:
        os.close(folder)


class _Bounded(io.RawIOBase):
    """The bytes of a descriptor; raises once more than `limit` of them were read."""

    def __init__(self, handle: int, path: StrPath, limit: int) -> None:
        self._file = io.FileIO(handle, "rb")
        self._path = path
        self._limit = limit

    def readinto(self, buffer: bytearray | memoryview, /) -> int | None:  # type: ignore[override]
        count = self._file.readinto(buffer)
        if self._file.tell() > self._limit:
            raise _refusal(self._path, f"has grown beyond {_size(self._limit)}, which is the most that is read")
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def fileno(self) -> int:
        return self._file.fileno()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def _refuse_kind(path: StrPath, status: os.stat_result, limit: int | None) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _refusal(path, _LINK)
    if not stat.S_ISREG(status.st_mode):
        raise _refusal(path, "is " + _KINDS.get(stat.S_IFMT(status.st_mode), "not a regular file"))
    if limit is not None and status.st_size > limit:
        raise _refusal(path, f"is {_size(status.st_size)} large, and at most {_size(limit)} is read")


def _next(file: BinaryIO, path: StrPath) -> bytes:
    try:
        return file.read(CHUNK)
    except OSError as error:
        raise _refusal(path, f"can't be read: {_reason(error)}") from None


def _line(path: StrPath, why: str) -> str:
    return f"{plain(os.fspath(path), 1000)}: {why}"


def _refusal(path: StrPath, why: str) -> UsageError:
    return UsageError(_line(path, why))


def _astray(path: StrPath, within: StrPath | None) -> UsageError:
    return _refusal(path, f"is a link or lies outside {plain(os.fspath(within or ''))}: links are not followed")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "it is a link, or too many symbolic links lead to it"
    return plain(getattr(error, "strerror", None) or error)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count} bytes"
