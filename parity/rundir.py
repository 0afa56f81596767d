"""A run directory: what a run leaves on disk, and what can be judged again on any machine."""

import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from parity.errors import UsageError
from parity.plain import plain
from parity.result import LegResult
from parity.suite import Leg, Suite, fill
from parity.untrusted import MissingError, copy_bounded, open_regular, read_bytes, write_whole

__all__ = ["RunDirectory", "Snapshot", "log_lines", "new_run_id", "placeholders"]

_ModelT = TypeVar("_ModelT", bound=BaseModel)

# What a source may weigh to be taken into the run directory; a reader refuses larger ones as well.
_MOST_BYTES = 1 << 30
_MOST_JSON = 16 << 20
_LONGEST_LINE = 10_000


class Snapshot(BaseModel):
    """The suite as it was run: `suite.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["parity.suite/1"] = "parity.suite/1"
    run_id: str
    reproduce: str
    device: Literal["cpu", "cuda"]
    suite: Suite


def new_run_id() -> str:
    """A name for this run that no other run has: UTC time and eight random hex digits."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"


def placeholders(suite: Suite, name: str, leg: Leg, out: Path, run_id: str) -> dict[str, object]:
    """The values that a leg's command, working folder and source may name."""
    return {
        "nproc": leg.ranks,
        "steps": suite.steps,
        "seed": suite.seed,
        "out": out,
        "leg": name,
        "run_id": run_id,
        **leg.sizes().sizes(),
    }


@dataclass(frozen=True)
class RunDirectory:
    """Paths and files of one run.

    Attributes:
        path: the directory, `parity-out` by default.
    """

    path: Path

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
            UsageError: the path is a file, cannot be written, or holds something that is no run.
        """
        moved = None
        try:
            if path.exists() and any(path.iterdir()):
                if not (path / "suite.json").exists():
                    raise UsageError(f"{path}: holds files that are not from a run; give another --out")
                if not keep:
                    moved = next(
                        free for n in range(1, 1 << 30) if not (free := path.with_name(f"{path.name}.{n}")).exists()
                    )
                    path.rename(moved)
            (path / "legs").mkdir(parents=True, exist_ok=True)
            for stale in (path / "result.json", path / "report.md", *(path / "legs" / name for name in legs)):
                if stale.is_dir() and not stale.is_symlink():
                    shutil.rmtree(stale)
                else:
                    stale.unlink(missing_ok=True)
        except NotADirectoryError:
            raise UsageError(f"{path}: is a file; give a folder with --out") from None
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
        return cls(path), moved

    def leg(self, name: str) -> Path:
        """A leg's folder, absolute."""
        return (self.path / "legs" / name).absolute()

    def write(self, name: str, content: str) -> Path:
        """Write a file whole or not at all, and nowhere else, whatever links a leg may have left."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, content, within=self.path)
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

    def collect_source(
        self, snapshot: Snapshot, name: str, cwd: Path, started: float
    ) -> tuple[str | None, str | None]:
        """Find a leg's metrics; written elsewhere, they are copied into its folder, so that the run can be moved.

        Args:
            snapshot: the suite as run.
            name: the leg.
            cwd: the leg's working folder, which a relative path is relative to.
            started: when the leg began, seconds since the epoch.

        Returns:
            The file, relative to the run directory; and why there is nothing to judge, or None.
        """
        leg = snapshot.suite.legs[name]
        source = leg.source or snapshot.suite.source
        out = self.leg(name)
        if source is None:
            return f"legs/{name}/rank-0.jsonl", None
        path = cwd / fill(source.file, placeholders(snapshot.suite, name, leg, out, snapshot.run_id))
        if not path.exists():
            return None, f"{path}: the leg wrote no such file; is `source` right?"
        try:
            # File systems keep whole seconds at worst.
            if path.stat().st_mtime < started - 2:
                return None, f"{path}: not written by this run; is it another run's?"
            if path.resolve().is_relative_to(out.resolve()):
                return f"legs/{name}/{path.resolve().relative_to(out.resolve())}", None
            copy_bounded(path, out / f"source.{path.name}", limit=_MOST_BYTES)
        except OSError as error:
            return None, f"{path}: cannot be read: {error.strerror}"
        except UsageError as error:
            return None, str(error)
        return f"legs/{name}/source.{path.name}", None


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
    """Lines of a leg's log, undecodable bytes replaced, each cut at a length that patterns can take.

    Raises:
        UsageError: the file is missing, lies outside of the run directory, or is no file.
    """
    with open_regular(path, within=within) as file:
        while line := file.readline(_LONGEST_LINE):
            yield line.decode(errors="replace").rstrip("\n")
