"""The code that a leg runs, as a hash: what is committed, what is changed, and what is new."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from parity.cache.reasons import NotCacheableError

__all__ = ["MOST_BYTES", "MOST_FILES", "Code", "package"]

MOST_FILES = 20_000
MOST_BYTES = 256 << 20
"""What is read where git does not know a hash already: below that, a second."""

_PATIENCE = 60  # seconds for one command of git
_DERIVED = "__pycache__"


class Code:
    """Hashes of folders of code. Each is computed once.

    Args:
        without: files and folders that are no code, as the suite itself and the cache.
    """

    def __init__(self, without: Collection[Path] = ()) -> None:
        self._without = {path.resolve() for path in without}
        self._known: dict[Path, str] = {}

    def root(self, folder: Path) -> Path:
        """The repository that holds a folder, or the folder where there is none, or where git ignores it."""
        top = _git(folder, "rev-parse", "--show-toplevel").rstrip(b"\n")
        if not top or _git(folder, "check-ignore", str(folder.resolve())):
            return folder.resolve()
        return Path(os.fsdecode(top)).resolve()

    def of(self, folder: Path) -> str:
        """The hash of the repository that holds a folder, as it lies there: of what is committed, changed and new.

        Files that git ignores do not count; nor do run directories, virtual environments and `__pycache__`. Without
        a repository, or where git ignores the folder, it is that of every other file below it.

        Raises:
            NotCacheableError: there are more files than can be hashed in a moment, or one cannot be read.
        """
        root = self.root(folder)
        if root not in self._known:
            listed = _git(root, "ls-files", "--stage", "-z") if self._is_repository(root) else b""
            self._known[root] = self._committed(root, listed) if listed else self._walked(root)
        return self._known[root]

    def file(self, path: Path) -> str:
        """The hash of one file's content.

        Raises:
            NotCacheableError: it is too large, or cannot be read.
        """
        return _Hash(path).of_file(path)

    def _is_repository(self, root: Path) -> bool:
        return (root / ".git").exists()

    def _committed(self, root: Path, listed: bytes) -> str:
        found = _Hash(root)
        for record in listed.split(b"\0"):
            if record and not self._left_out(root, os.fsdecode(record.partition(b"\t")[2])):
                found.add(b"index", record)
        status = _git(
            root, "--no-optional-locks", "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames",
            "--ignore-submodules=none", needed=True,
        )  # fmt: skip
        for record in sorted(status.split(b"\0")):
            # `XY path`: X of the index, which is hashed already, and Y of the files.
            name = os.fsdecode(record[3:])
            if not record or record[1:2] == b" " or self._left_out(root, name):
                continue
            path = root / name
            if path.is_dir() and not path.is_symlink():
                # A submodule or another repository; or a folder where a file was, whose own files have records.
                other = self.of(path) if self.root(path) != root else ""
                found.add(b"folder", os.fsencode(name), other.encode())
            else:
                found.add_file(name, path)
        return found.done()

    def _walked(self, root: Path) -> str:
        found = _Hash(root)
        for path in self._files(root):
            found.add_file(str(path.relative_to(root)), path)
        return found.done()

    def _files(self, root: Path) -> Iterator[Path]:
        for folder, folders, files in os.walk(root):
            here = Path(folder)
            links = [name for name in folders if (here / name).is_symlink()]
            folders[:] = sorted(
                name
                for name in folders
                if name not in (".git", _DERIVED, *links)
                and (here / name) not in self._without
                and not _is_other(here / name)
            )
            yield from (path for name in sorted([*files, *links]) if (path := here / name) not in self._without)

    def _left_out(self, root: Path, name: str) -> bool:
        path = root / name
        parents = [parent for parent in path.parents if parent.is_relative_to(root) and parent != root]
        return (
            _DERIVED in path.parts
            or any(one in self._without for one in (path, *parents))
            or any(_is_other(one) for one in parents)
        )


def package(folder: Path) -> str:
    """The hash of a package's own modules.

    Raises:
        NotCacheableError: one cannot be read.
    """
    found = _Hash(folder)
    for path in sorted(folder.rglob("*.py")):
        found.add_file(str(path.relative_to(folder)), path)
    return found.done()


def _is_other(folder: Path) -> bool:
    """Whether a folder is a run directory or a virtual environment."""
    return (folder / "pyvenv.cfg").is_file() or ((folder / "suite.json").is_file() and (folder / "legs").is_dir())


class _Hash:
    def __init__(self, root: Path) -> None:
        self._root, self._hash = root, hashlib.sha256()
        self._files = self._bytes = 0

    def add(self, *parts: bytes) -> None:
        for part in parts:
            self._hash.update(len(part).to_bytes(8, "big") + part)

    def add_file(self, name: str, path: Path) -> None:
        self._files += 1
        if self._files > MOST_FILES:
            raise NotCacheableError(f"there are more than {MOST_FILES} files in {self._root} that git does not know")
        try:
            status = path.lstat()
        except FileNotFoundError:
            self.add(b"gone", os.fsencode(name))
            return
        if stat.S_ISLNK(status.st_mode):
            self.add(b"link", os.fsencode(name), os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(status.st_mode):
            mode = b"program" if status.st_mode & 0o100 else b"file"
            self.add(mode, os.fsencode(name), self.of_file(path).encode())
        else:
            self.add(b"other", os.fsencode(name))

    def of_file(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                self._bytes += os.fstat(file.fileno()).st_size
                if self._bytes > MOST_BYTES:
                    raise NotCacheableError(
                        f"there are more than {MOST_BYTES >> 20} MiB in {self._root} that git does not know"
                    )
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise NotCacheableError(f"{path} cannot be read: {error.strerror}") from None

    def done(self) -> str:
        return self._hash.hexdigest()


def _git(folder: Path, *words: str, needed: bool = False) -> bytes:
    """What git prints; nothing where there is no git, no repository, or nothing to say.

    Raises:
        NotCacheableError: it is needed, and git fails.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            # A repository may be mounted into a container, where its files have another owner.
            ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", *words],
            cwd=folder, env=env, capture_output=True, timeout=_PATIENCE, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        if needed:
            raise NotCacheableError(f"git does not tell what has changed in {folder}") from None
        return b""
