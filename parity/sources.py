"""A leg's metrics: found where its trainer writes them, and taken into the run directory."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from parity.errors import UsageError
from parity.placeholders import fill
from parity.rundir import RunDirectory, Snapshot, placeholders
from parity.untrusted import copy_bounded

__all__ = ["LegSource"]

# What a source may weigh to be taken into the run directory; a reader refuses larger ones as well.
_MOST_BYTES = 1 << 30
# Two logs of different runs differ in their first megabyte, if only in a time.
_COMPARED = 1 << 20


@dataclass(frozen=True)
class _State:
    """A file before its leg starts: what shows later whether the leg wrote it, or only added to it."""

    size: int
    changed: int
    head: str

    @classmethod
    def of(cls, path: Path) -> "_State | None":
        try:
            status = path.stat()
            return cls(status.st_size, status.st_mtime_ns, _head(path, status.st_size) if path.is_file() else "")
        except OSError:
            return None


def _head(path: Path, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(min(size, _COMPARED))).hexdigest()


class LegSource:
    """The file that a leg's metrics are expected in, or a folder of them below the leg's own.

    Made before the leg starts, collected after it ended.

    Args:
        directory: the run.
        snapshot: the suite as run.
        name: the leg.
        cwd: the leg's working folder, which a relative path is relative to.
        suite_dir: the folder that the suite file lies in.
    """

    def __init__(self, directory: RunDirectory, snapshot: Snapshot, name: str, cwd: Path, suite_dir: Path) -> None:
        leg = snapshot.suite.legs[name]
        source = leg.source or snapshot.suite.source
        self._directory, self._name, self._out = directory, name, directory.leg(name)
        self.path: Path | None = None
        if source is not None:
            values = placeholders(snapshot.suite, name, leg, self._out, snapshot.run_id, suite_dir)
            self.path = cwd / fill(source.file, values)
        self._before = None if self.path is None else _State.of(self.path)

    def collect(self) -> tuple[str | None, str | None]:
        """Find what the leg wrote; elsewhere than in its folder, it is copied there, so that the run can be moved.

        Returns:
            The file or folder, relative to the run directory; and why there is nothing to judge, or None.
        """
        if self.path is None:
            return f"legs/{self._name}/rank-0.jsonl", None
        if not os.path.lexists(self.path):
            return None, f"{self.path}: the leg wrote no such file; is `source` right?"
        problem = self._not_this_run()
        if problem:
            return None, f"{self.path}: {problem}"
        try:
            inside = Path(os.path.abspath(self.path))
            if inside.is_relative_to(self._out):
                return f"legs/{self._name}/{inside.relative_to(self._out)}", None
            if self.path.is_dir():
                return (
                    None,
                    f"{self.path}: is a folder outside of the leg's own: let the trainer write it below {{out}}",
                )
            copy = f"legs/{self._name}/source.{self.path.name}"
            target = self._directory.path / copy
            copy_bounded(self.path.resolve(), target, limit=_MOST_BYTES, within=self._directory.path)
        except OSError as error:
            return None, f"{self.path}: cannot be read: {error.strerror}"
        except UsageError as error:
            return None, str(error)
        return copy, None

    def _not_this_run(self) -> str:
        """Why the file is not, or not only, this run's; empty if it is."""
        assert self.path is not None
        before, now = self._before, _State.of(self.path)
        if before is None or now is None or not before.size:
            return ""
        if self.path.is_dir():  # what is below may have changed without a trace in the folder itself
            return "is a folder that was there before the leg started: remove it first, or let `source` name {out}"
        if (before.size, before.changed) == (now.size, now.changed):
            return "was there before the leg started, which did not write to it"
        if now.size > before.size and _head(self.path, before.size) == before.head:
            return "was there before the leg started, which added to it: remove it first, or let `source` name {out}"
        return ""
