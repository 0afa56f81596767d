"""Where legs are kept for another run: a folder for each commit, of which a container sees that of its own alone.

Whoever wrote the code under test can write into it what nobody computed. Whatever that is, only runs of the very same
commit read it, and these compute what that code wants them to in any case.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from entrypoint.launching import tree
from entrypoint.launching.findings import LaunchError, missing, wrong
from entrypoint.launching.source import Source

__all__ = ["MOST_BYTES", "MOST_COMMITS", "close", "prepare"]

MOST_COMMITS = 20
"""That are kept; those that were tested longest ago go first."""
MOST_BYTES = 4 << 30
"""Of one commit: parity keeps to half of that, and whoever does not keeps nothing."""

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def prepare(folder: Path, commit: str, source: Source, owner: int | None) -> Path:
    """Make the commit's folder.

    Args:
        folder: the input `cache`.
        commit: that is checked out.
        source: the repository.
        owner: the user that the legs run as, if it is not this one.

    Raises:
        LaunchError: the input leads into the repository, or cannot be written.
    """
    # As it is written, too: a link in the repository leads wherever its author likes.
    ways = (Path(os.path.abspath(folder)), folder.resolve())
    if not folder.is_absolute() or any(way.is_relative_to(top) for way in ways for top in _tops(source)):
        raise LaunchError(
            wrong("cache", f"{folder}: give the full path of a folder elsewhere than in the repository")
        )
    own = folder / commit
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if own.is_symlink():
            own.unlink()
        own.mkdir(mode=0o755, exist_ok=True)
        if owner is not None:
            os.chown(own, owner, owner)
        os.utime(own)
    except OSError as error:
        raise LaunchError(missing("cache", f"{own}: cannot be written ({error.strerror})")) from None
    return own


def _tops(source: Source) -> tuple[Path, Path]:
    return source.path, source.path.resolve()


def close(own: Path) -> None:
    """Leave only regular files of a commit, not too much of it, and not too many commits."""
    try:
        fits = tree.sweep(own).bytes <= MOST_BYTES
    except OSError:
        fits = False
    if not fits:
        with contextlib.suppress(OSError):
            tree.remove(own)
    with contextlib.suppress(OSError):
        found = [path for path in own.parent.iterdir() if _COMMIT.fullmatch(path.name) and not path.is_symlink()]
        for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)[MOST_COMMITS:]:
            tree.remove(path)
