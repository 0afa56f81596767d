"""What a launch could leave behind, and how it is found again and removed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from entrypoint.inputs import Inputs
from entrypoint.launching import tree
from entrypoint.launching.container import LABEL
from entrypoint.launching.engine import Engine, last_line
from entrypoint.launching.findings import ENVIRONMENT, LaunchError, missing
from entrypoint.launching.linux import end_descendants, started

__all__ = ["State", "job", "labels", "remove", "temporary_folder"]

_PATIENCE = 8.0
_LARGEST = 1 << 16


def job(env: Mapping[str, str]) -> str:
    """This attempt of a job, on this runner: a matrix may run the job on another runner of the same machine."""
    names = ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_JOB", "RUNNER_NAME")
    return re.sub(r"[^\w.-]", "_", "-".join(env.get(name, "") for name in names), flags=re.ASCII)[:200]


def labels(env: Mapping[str, str], launch: str) -> dict[str, str]:
    """The labels of a container."""
    return {LABEL: "1", f"{LABEL}.run": job(env), f"{LABEL}.launch": launch}


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed after the block, whatever was put there."""
    path = Path(tempfile.mkdtemp(prefix="parity-"))
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            tree.remove(path)


def _folder(env: Mapping[str, str]) -> Path:
    """Where launches of this user take down what they started; nobody else can write there.

    Raises:
        LaunchError: there is no such place.
    """
    top = env.get("RUNNER_TEMP") or tempfile.gettempdir()
    path = Path(top) / f"parity-launch-{os.geteuid()}"
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True)
        status = path.lstat()
    except OSError as error:
        raise LaunchError(missing("RUNNER_TEMP", f"{path}: cannot be made: {error.strerror}")) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise LaunchError(missing("RUNNER_TEMP", f"{path}: is not this user's folder: remove it"))
    return path


class State:
    """The note of one launch, there for as long as something of it may run.

    Args:
        env: this process's environment.
        launch: its id.
        home: its temporary folder.
    """

    def __init__(self, env: Mapping[str, str], launch: str, home: Path) -> None:
        folder = _folder(env)
        self.cidfile = str(folder / f"{launch}.cid")
        self._path = folder / f"{job(env)}.{launch}.json"
        self._home = home

    def write(self, keeper: int) -> None:
        """Take down the process that everything else descends from."""
        pids = {name: [pid, started(pid)] for name, pid in (("launcher", os.getpid()), ("keeper", keeper))}
        with contextlib.suppress(OSError):  # the keeper ends everything by itself, too
            self._path.write_text(json.dumps({**pids, "home": str(self._home), "cidfile": self.cidfile}))

    def __enter__(self) -> State:
        return self

    def __exit__(self, *exception: object) -> None:
        for path in (self.cidfile, self._path):
            with contextlib.suppress(OSError):
                os.unlink(path)


def remove(inputs: Inputs, env: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Remove what launches of this job left: processes, containers, temporary folders. Says what it removed."""
    left = 0
    for path in sorted(_folder(env).glob("*.json")):
        if path.name.rpartition(".json")[0].rpartition(".")[0] != job(env):
            continue
        note = _read(path)
        left += _end(note, say)
        home = Path(str(note.get("home", "")))
        if home.name.startswith("parity-") and home.parent == Path(tempfile.gettempdir()):
            with contextlib.suppress(OSError):
                tree.remove(home)
        for stale in (path, path.with_name(path.name.split(".")[-2] + ".cid")):
            stale.unlink(missing_ok=True)
    return ENVIRONMENT if left + _remove_containers(inputs, env, say) else 0


def _end(note: Mapping[str, Any], say: Callable[[str], None]) -> int:
    """End the processes of one launch; returns how many are left."""
    keeper = _living(note, "keeper")
    if not keeper:
        return 0
    launcher = _living(note, "launcher")
    if launcher and launcher != os.getpid():
        with contextlib.suppress(OSError):
            os.kill(launcher, signal.SIGKILL)
    # That tells the keeper to end everything.
    deadline = time.monotonic() + _PATIENCE
    while _living(note, "keeper") and time.monotonic() < deadline:
        time.sleep(0.05)
    left = []
    if _living(note, "keeper"):
        left = end_descendants(keeper, 2.0)
        with contextlib.suppress(OSError):
            os.kill(keeper, signal.SIGKILL)
    say(f"cleanup: ended the legs of process {keeper}" + (f"; {len(left)} processes are left" if left else ""))
    return len(left)


def _remove_containers(inputs: Inputs, env: Mapping[str, str], say: Callable[[str], None]) -> int:
    engine = Engine(inputs.docker, env)
    if not engine.present():
        return 0
    listed = engine.call("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}.run={job(env)}")
    found = listed.stdout.split() if not listed.returncode else []
    if not found:
        return 0
    done = engine.call("rm", "--force", "--volumes", *found)
    if done.returncode:
        say(f"cleanup: {len(found)} containers cannot be removed: {last_line(done.stderr)}")
        return len(found)
    say(f"cleanup: removed {len(found)} container{'s' if len(found) > 1 else ''}")
    return 0


def _living(note: Mapping[str, Any], name: str) -> int:
    """A process's id, if it is still the one that was taken down."""
    try:
        pid, when = note[name]
        return int(pid) if when and started(int(pid)) == when else 0
    except (LookupError, TypeError, ValueError):
        return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            found = json.loads(file.read(_LARGEST))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
