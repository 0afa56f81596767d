"""A run directory: what a run leaves on disk, and what can be judged again on any machine."""

import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from parity.errors import UsageError
from parity.result import LegResult
from parity.suite import Leg, Source, Suite, fill

__all__ = ["RunDirectory", "Snapshot", "new_run_id", "placeholders"]

_ModelT = TypeVar("_ModelT", bound=BaseModel)

# What a source may weigh to be taken into the run directory; a reader refuses larger ones as well.
_MOST_BYTES = 1 << 30
_MOST_JSON = 16 << 20


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
    def create(cls, path: Path, keep: bool) -> tuple["RunDirectory", Path | None]:
        """Make room for a run; an earlier one is moved aside and never lost.

        Args:
            path: where.
            keep: leave an earlier run's legs in place, because only some are run again.

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
        except NotADirectoryError:
            raise UsageError(f"{path}: is a file; give a folder with --out") from None
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
        return cls(path), moved

    def leg(self, name: str) -> Path:
        """A leg's folder, absolute."""
        return (self.path / "legs" / name).absolute()

    def write(self, name: str, content: str) -> Path:
        """Write a file whole or not at all."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_text(content, encoding="utf-8")
        draft.replace(target)
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
        if not path.exists():
            return None
        return _validated(LegResult, path)

    def read_snapshot(self) -> Snapshot:
        """The suite that was run here.

        Raises:
            UsageError: this is no run directory, or its `suite.json` is none of ours.
        """
        path = self.path / "suite.json"
        if not path.exists():
            raise UsageError(f"{self.path}: no run directory, for it has no suite.json; `parity run` makes one")
        return _validated(Snapshot, path)

    def source(self, snapshot: Snapshot, name: str) -> tuple[Path, Source]:
        """Where a leg's metrics are: the copy in the run directory if there is one."""
        leg = snapshot.suite.legs[name]
        out = self.leg(name)
        source = leg.source or snapshot.suite.source or Source(file="{out}/rank-0.jsonl")
        copy = next(out.glob("source.*"), None)
        if copy is not None:
            return copy, source
        filled = Path(fill(source.file, placeholders(snapshot.suite, name, leg, out, snapshot.run_id)))
        return out / filled, source

    def collect_source(self, snapshot: Snapshot, name: str, cwd: Path, started: float) -> str | None:
        """Copy a leg's metrics into its folder, if they were written elsewhere, so that the run can be moved.

        Args:
            snapshot: the suite as run.
            name: the leg.
            cwd: the leg's working folder, which a relative path is relative to.
            started: when the leg began, seconds since the epoch.

        Returns:
            Why there is nothing to judge, or None.
        """
        leg = snapshot.suite.legs[name]
        source = leg.source or snapshot.suite.source
        if source is None:
            return None
        out = self.leg(name)
        path = cwd / fill(source.file, placeholders(snapshot.suite, name, leg, out, snapshot.run_id))
        try:
            found = path.stat()
            # File systems keep whole seconds at worst.
            if found.st_mtime < started - 2:
                return f"{path}: not written by this run; is it another run's?"
            if found.st_size > _MOST_BYTES:
                return f"{path}: {found.st_size / 2**30:.1f} GiB, more than the 1 GiB a curve is read from"
            if path.resolve().is_relative_to(out.resolve()):
                return None
            shutil.copyfile(path, out / f"source.{path.name}")
        except FileNotFoundError:
            return f"{path}: the leg wrote no such file; is `source` right?"
        except OSError as error:
            return f"{path}: cannot be read: {error.strerror}"
        return None


def _validated(kind: type[_ModelT], path: Path) -> _ModelT:
    """Read one of our JSON files as the untrusted data that it is."""
    try:
        if path.stat().st_size > _MOST_JSON:
            raise UsageError(f"{path}: larger than {_MOST_JSON >> 20} MiB, so none of ours")
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise UsageError(f"{path}: {where}: {first['msg']}") from None
