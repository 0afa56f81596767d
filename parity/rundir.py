"""A run directory: what a run leaves on disk, and what can be judged again on any machine."""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parity.errors import DiskError, UsageError
from parity.plain import plain
from parity.result import LegResult
from parity.schedule import Device
from parity.suite import Leg, Suite
from parity.untrusted import MissingError, open_regular, read_bytes, replacing, write_whole

__all__ = [
    "REPORTS",
    "RESERVE",
    "RunDirectory",
    "Snapshot",
    "last_lines",
    "log_lines",
    "new_run_id",
    "placeholders",
]

_ModelT = TypeVar("_ModelT", bound=BaseModel)

REPORTS = ("result.json", "report.md", "report.html", "junit.xml", "curves.csv")
"""What is made of a run, or of logs, and can be made again."""

RESERVE = 16 << 20
"""Bytes held while legs run, so that what became of them can be written though they fill the disk."""

_RESERVED = ".parity-reserve"

_MOST_JSON = 16 << 20
_LONGEST_LINE = 10_000
# What is searched of a log for evidence; frameworks say which layout they applied in their first lines.
_MOST_LOG = 1 << 30


class Snapshot(BaseModel):
    """The suite as it was run: `suite.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["parity.suite/1"] = "parity.suite/1"
    run_id: str
    reproduce: str
    device: Device
    suite: Suite
    merged: tuple[str, ...] = Field(default=(), description="The runs that this one was put together of.")


def new_run_id() -> str:
    """A name for this run that no other run has: UTC time and eight random hex digits."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"


def placeholders(suite: Suite, name: str, leg: Leg, out: Path, run_id: str, suite_dir: Path) -> dict[str, object]:
    """The values that a leg's command, working folder and source may name."""
    return {
        "nproc": leg.ranks // suite.launcher_of(leg).nodes(leg.ranks),
        "steps": suite.steps,
        "seed": suite.seed,
        "out": out,
        "leg": name,
        "run_id": run_id,
        "suite_dir": suite_dir,
        **leg.sizes().sizes(),
    }


@dataclass(frozen=True)
class RunDirectory:
    """Paths and files of one run.

    Attributes:
        path: the directory, `parity-out` by default.
        lock: held while a run writes there; -1 without one.
    """

    path: Path
    lock: int = -1

    @classmethod
    def create(cls, path: Path, keep: bool, legs: Sequence[str]) -> tuple["RunDirectory", Path | None]:
        """Make room for a run; an earlier one is moved aside and never lost.

        Args:
            path: where.
            keep: leave an earlier run's other legs in place, because only some are run again.
            legs: those that are; whatever is left of them goes, so that it cannot be taken for this run's.

        Returns:
            The directory, and where an earlier run was moved to, if any.

        Raises:
            UsageError: the path is a file, cannot be written, holds something that is no run, or another run writes
                there now.
        """
        moved = None
        try:
            if path.is_symlink():  # an earlier run is moved aside where it lies, and the link stays
                path = Path(os.path.realpath(path))
                if path.is_symlink():
                    raise UsageError(f"{path}: is a link that leads to itself; give another --out")
            lock = _locked(path)
            if any(path.iterdir()) and not _only_begun(path):
                if not (path / "suite.json").exists():
                    raise UsageError(f"{path}: holds files that are not from a run; give another --out")
                if not keep:
                    moved = next(
                        free for n in range(1, 1 << 30) if not (free := path.with_name(f"{path.name}.{n}")).exists()
                    )
                    path.rename(moved)
                    lock = _locked(path)
            if (path / "legs").is_symlink():
                raise UsageError(f"{path / 'legs'}: is a link; give another --out")
            (path / "legs").mkdir(exist_ok=True)
            for stale in (*(path / name for name in REPORTS), *(path / "legs" / name for name in legs)):
                if stale.is_dir() and not stale.is_symlink():
                    shutil.rmtree(stale)
                else:
                    stale.unlink(missing_ok=True)
        except (NotADirectoryError, FileExistsError):
            raise UsageError(f"{path}: is a file; give a folder with --out") from None
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
        return cls(path, lock), moved

    @classmethod
    def for_report(cls, path: Path) -> "RunDirectory":
        """A folder for the report on logs, which is no run.

        Raises:
            UsageError: it is a run's, holds other files, or cannot be made.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            others = {one.name for one in path.iterdir()} - {*REPORTS}
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
        if others:
            raise UsageError(f"{path}: holds other files, such as {plain(min(others))}; give another --out")
        return cls(path)

    def reserve(self) -> None:
        """Hold some room on the disk, where there is any; `release` gives it back."""
        with contextlib.suppress(UsageError), replacing(self.path / _RESERVED) as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE)

    def release(self) -> None:
        """Give back what `reserve` held."""
        with contextlib.suppress(OSError):
            (self.path / _RESERVED).unlink()

    def leg(self, name: str) -> Path:
        """A leg's folder, absolute."""
        return (self.path / "legs" / name).absolute()

    def write(self, name: str, content: str) -> Path:
        """Write a file whole or not at all, and nowhere else, whatever links a leg may have left.

        Raises:
            DiskError: it cannot be written.
        """
        target = self.path / name
        try:
            for folder in reversed(target.relative_to(self.path).parents[:-1]):
                if (self.path / folder).is_symlink():
                    raise DiskError(f"{self.path / folder}: is a link")
                (self.path / folder).mkdir(exist_ok=True)
            write_whole(target, content, within=self.path)
        except OSError as error:
            raise DiskError(f"{target}: cannot be written: {error.strerror}") from None
        except DiskError:
            raise
        except UsageError as error:
            raise DiskError(*error.lines) from None
        return target

    def write_leg(self, leg: LegResult) -> None:
        """Write a leg's `leg.json`."""
        self.write(f"legs/{leg.name}/leg.json", leg.model_dump_json(indent=1) + "\n")

    def read_leg(self, name: str) -> LegResult | None:
        """A leg's `leg.json`, or None if the leg was never run.

        Raises:
            UsageError: the file is there but is none of ours.
        """
        path = self.leg(name) / "leg.json"
        try:
            leg = _validated(LegResult, path, self.path)
        except MissingError:
            return None
        if leg.name != name:
            raise UsageError(f"{path}: is that of another leg")
        for file in filter(None, (leg.source, *leg.logs)):  # the leg may have written all this
            if Path(file).parts[:2] != ("legs", name) or ".." in Path(file).parts:
                raise UsageError(f"{path}: names {plain(file)}, which is not below the leg's own folder")
        return leg

    def read_snapshot(self) -> Snapshot:
        """The suite that was run here.

        Raises:
            UsageError: this is no run directory, or its `suite.json` is none of ours.
        """
        try:
            return _validated(Snapshot, self.path / "suite.json", self.path)
        except MissingError:
            raise UsageError(
                f"{self.path}: no run directory, for it has no suite.json; `parity run` makes one"
            ) from None


def _locked(path: Path) -> int:
    """A lock on a folder, which is made if need be; it is let go when the process ends.

    Raises:
        UsageError: another process holds it.

    Where the file system has no locks, nothing is held; over a network they may count on this machine alone.
    """
    path.mkdir(parents=True, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(f"{path}: another run writes there now; give another --out") from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL):
            raise
    return lock


def _only_begun(path: Path) -> bool:
    """Whether a run came no further here than to make its folders, as where the disk was full already."""
    legs = path / "legs"
    return [*path.iterdir()] == [legs] and legs.is_dir() and not legs.is_symlink() and not any(legs.iterdir())


def _validated(kind: type[_ModelT], path: Path, within: Path) -> _ModelT:
    """Read one of our JSON files as the untrusted data that it is."""
    data = read_bytes(path, within=within, limit=_MOST_JSON)
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = plain(".".join(map(str, first["loc"])) or "file")
        raise UsageError(f"{path}: {where}: {plain(first['msg'])}") from None


def log_lines(path: Path, within: Path) -> Iterator[str]:
    """Lines of a leg's log, undecodable bytes replaced, each cut at a length that patterns can take. Of a log of more
    than a gigabyte, those of the first.

    Raises:
        UsageError: the file is missing, lies outside of the run directory, or is no file.
    """
    with open_regular(path, within=within) as file:
        while file.tell() < _MOST_LOG and (line := file.readline(_LONGEST_LINE)):
            yield line.decode(errors="replace").rstrip("\n")


def last_lines(path: Path, within: Path, count: int) -> list[str]:
    """The last lines of a leg's log, however long that is, as `log_lines` gives them.

    Raises:
        UsageError: as `log_lines`.
    """
    with open_regular(path, within=within) as file:
        start = max(0, os.fstat(file.fileno()).st_size - count * _LONGEST_LINE)
        file.seek(start)
        lines = file.read(count * _LONGEST_LINE).decode(errors="replace").removesuffix("\n").split("\n")
    return [line[:_LONGEST_LINE] for line in (lines[1:] if start and len(lines) > 1 else lines)[-count:]]
