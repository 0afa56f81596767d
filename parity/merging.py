"""One run directory of several, as of jobs that each ran some legs of a suite."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from parity.errors import UsageError
from parity.rundir import RunDirectory, Snapshot, new_run_id
from parity.untrusted import copy_bounded

__all__ = ["merge"]

# What one file of a leg may weigh: a sparse one of any size takes a moment to make, and hours to copy.
_MOST_BYTES = 16 << 30


def merge(parts: Sequence[Path], out: Path) -> tuple[RunDirectory, Path | None]:
    """Copy the legs of several run directories of one suite into a new one.

    Regular files only: whatever links a leg left stay where they are. What a leg left is not changed, so the new
    directory is judged as if all legs had been run there.

    Args:
        parts: the directories.
        out: the new one; an earlier run there is moved aside.

    Returns:
        The new one, and where an earlier run was moved to, if any.

    Raises:
        UsageError: one is no run directory, or was run under another suite or on another kind of device than the
            first; or two have the same leg; or `out` is one of them, or no place for a run.
        DiskError: the disk takes nothing more.
    """
    directories = [RunDirectory(part) for part in parts]
    snapshots = [directory.read_snapshot() for directory in directories]
    first = snapshots[0]
    whose: dict[str, RunDirectory] = {}
    for directory, snapshot in zip(directories, snapshots, strict=True):
        if snapshot.suite != first.suite:
            raise UsageError(f"{directory.path}: was run under another suite than {parts[0]}")
        if snapshot.device != first.device:
            raise UsageError(f"{directory.path}: ran on {snapshot.device}, and {parts[0]} on {first.device}")
        for name in first.suite.legs:
            if not os.path.lexists(directory.leg(name) / "leg.json"):
                continue
            if name in whose:
                raise UsageError(f"{directory.path}: has the leg {name}, and so has {whose[name].path}")
            whose[name] = directory
    if out.resolve() in {part.resolve() for part in parts}:  # it would be moved aside, and its legs not found
        raise UsageError(f"{out}: is one of the runs that are put together; give another --out")
    merged, moved = RunDirectory.create(out, keep=False, legs=[])
    for name, directory in whose.items():
        for file in _files(directory.leg(name)):
            place = file.relative_to(directory.path.absolute())
            (merged.path / place).parent.mkdir(parents=True, exist_ok=True)
            copy_bounded(file, merged.path / place, limit=_MOST_BYTES, within=merged.path)
    snapshot = Snapshot(
        run_id=new_run_id(),
        reproduce=first.reproduce,
        device=first.device,
        suite=first.suite,
        merged=tuple(dict.fromkeys(run for one in snapshots for run in (*one.merged, one.run_id))),
    )
    merged.write("suite.json", snapshot.model_dump_json(indent=1) + "\n")
    return merged, moved


def _files(folder: Path) -> Iterator[Path]:
    """The regular files below a folder that is none of ours to trust."""
    if folder.is_symlink() or folder.parent.is_symlink():
        return
    for path, _, names in os.walk(folder, followlinks=False):
        for file in (Path(path, name) for name in sorted(names)):
            if file.is_file() and not file.is_symlink():
                yield file
