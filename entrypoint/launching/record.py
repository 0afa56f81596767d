"""`launch.json`: how the legs were run. By the launcher alone; legs in a container cannot write to where it is."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from entrypoint.launching.findings import Finding

__all__ = ["FORMAT", "Launch", "has_run"]

FORMAT = "parity.launch/1"


@dataclass
class Launch:
    """What `launch.json` says. Nothing in it is secret.

    Attributes:
        suite: the suite, as `parity run` was given it.
        isolation: `docker` or `process`; None if it did not come to that.
        why: how that was decided.
        tested_sha: the commit that was checked out; None if it could not be told.
        image: its `name`, `id` and `digest` (None for one that no registry knows); None without a container.
        argv: the command line of the legs.
        user: `uid:gid` in the container.
        network: the container's.
        shm_size: the container's.
        gpus: what was `asked` for, the `devices` that were given, and the `method`: `cdi`, `gpus`, `process` or none.
        started: in UTC, ISO 8601.
        ended: likewise.
        seconds: how long the legs ran, with their setup command.
        timeout: how long they might have.
        how: `finished`, `timed out`, `interrupted` or `not started`.
        exit_code: that of `parity run`, or of what failed instead; None if it was killed or not started.
        error: one line that says why there is nothing to judge; None where there is.
        preflight: what the preflight found, each with `level`, `name` and `text`.
        runner: its `os` and `arch`.
        engine: the `name` and `version` of what runs containers; None without.
        output: how many `files` and `bytes` the legs left, and how many links and the like were `removed`, and
            how many were `renamed`, as an upload refuses such names.
        run_id: of the workflow run, as GitHub numbers it; empty outside of one.
        run_attempt: which attempt of it; likewise.
    """

    suite: str
    isolation: str | None = None
    why: str = ""
    tested_sha: str | None = None
    image: dict[str, str | None] | None = None
    argv: list[str] = field(default_factory=list)
    user: str | None = None
    network: str | None = None
    shm_size: str | None = None
    gpus: dict[str, Any] | None = None
    started: str = ""
    ended: str = ""
    seconds: float = 0.0
    timeout: float = 0.0
    how: str = "not started"
    exit_code: int | None = None
    error: str | None = None
    preflight: list[dict[str, str]] = field(default_factory=list)
    runner: dict[str, str] = field(default_factory=dict)
    engine: dict[str, str] | None = None
    output: dict[str, Any] | None = None
    run_id: str = ""
    run_attempt: str = ""

    def found(self, findings: list[Finding]) -> None:
        """Take down what the preflight found."""
        self.preflight = [{"level": one.level, "name": one.name, "text": one.text} for one in findings]

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all; a link of that name is replaced.

        Raises:
            OSError: it cannot be written.
        """
        draft = folder / f".launch-{os.urandom(8).hex()}"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                json.dump({"format": FORMAT, **asdict(self)}, file, indent=1)
                file.write("\n")
            os.replace(draft, folder / "launch.json")
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise


def now() -> str:
    """The time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def has_run(run: Path) -> bool:
    """Whether the legs left something to judge."""
    for name in ("suite.json", "result.json"):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.lstat(run / name).st_mode):
                return True
    return False
