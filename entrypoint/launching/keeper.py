"""The keeper: starts the legs, and outlives the launcher for as long as it takes to end what that left behind.

The runner signals one process and soon kills it. The keeper is in a session of its own, so that it hears of that only
by the end of its standard input; and it is the parent of all that the legs start, whatever group they move to.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from entrypoint.launching import tree
from entrypoint.launching.linux import become_subreaper, die_with_parent, end_descendants

__all__ = ["INTERRUPT", "KILL", "Task", "keep"]

INTERRUPT = b"i"
"""Have the legs end by themselves, and write down how far they came."""
KILL = b"k"
"""End them now. The end of the standard input means the same."""

_PATIENCE = 5.0  # seconds for SIGKILL to take effect, or for a daemon to remove a container


@dataclass(frozen=True)
class Task:
    """What to keep.

    Attributes:
        argv: the command of the legs, or that of the program which runs their container.
        cwd: where it is run.
        engine: that program; empty for processes.
        label: of the container, `key=value`.
        cidfile: where the container's id is as soon as it was made.
        home: a temporary folder to remove in the end, should the launcher be gone.
    """

    argv: list[str]
    cwd: str
    engine: str = ""
    label: str = ""
    cidfile: str = ""
    home: str = ""

    def line(self) -> bytes:
        """For the keeper's standard input. A command line of one long word would be too long for the kernel."""
        return json.dumps(asdict(self)).encode() + b"\n"


def keep() -> int:
    """Do the task that the first line of the standard input says; returns its exit code."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda *_: None)  # a handler, and not SIG_IGN, which the legs would inherit
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return 0
        line += byte
    task = Task(**json.loads(line))
    become_subreaper()
    try:
        child = subprocess.Popen(
            task.argv,
            cwd=task.cwd,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - there is one thread
        )
    except OSError as error:
        print(f"{task.argv[0]}: cannot be run: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    killed = _wait(task, child)
    code = child.poll()
    if task.engine:
        _remove_containers(task, child if killed else None)
    end_descendants(os.getpid(), _PATIENCE)
    if task.home:
        with contextlib.suppress(OSError):
            tree.remove(task.home)
    if code is None:
        code = -signal.SIGKILL
    return 128 - code if code < 0 else code


def _wait(task: Task, child: subprocess.Popen[Any]) -> bool:
    """Until the child has ended, or is to be killed; the latter is True."""
    while child.poll() is None:
        # A twentieth of a second is nothing beside a leg, and no signal can be missed.
        if not select.select([0], [], [], 0.05)[0]:
            continue
        order = os.read(0, 1)
        if order != INTERRUPT:
            return True
        if not task.engine:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGINT)
            continue
        for cid in _containers(task, running=True) or ():
            _quietly([task.engine, "kill", "--signal", "INT", cid])
    return False


def _remove_containers(task: Task, child: subprocess.Popen[Any] | None) -> None:
    """Remove the container.

    Args:
        task: what it is.
        child: the program that runs it, if it still does: it is ended first, and may have told the daemon to make a
            container that is not there yet.
    """
    expected = child is not None and not _written(task.cidfile)
    if child is not None:
        child.kill()
        child.wait()
    now = time.monotonic()
    deadline, settled = now + _PATIENCE, now + (2.0 if expected else 0.0)
    while True:
        found = _containers(task)
        if found:
            _quietly([task.engine, "rm", "--force", "--volumes", *found])
        elif found is not None and time.monotonic() >= settled:
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _written(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False


def _containers(task: Task, running: bool = False) -> list[str] | None:
    """The ids of our containers; None where the program does not tell, as a busy daemon's may for a while."""
    words = [task.engine, "ps", *([] if running else ["--all"]), "--quiet", "--no-trunc", "--filter"]
    told = _quietly([*words, f"label={task.label}"])
    return None if told is None else told.split()


def _quietly(argv: list[str]) -> str | None:
    """What a program prints; None where it fails, or has no answer in time."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=4, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("ascii", "replace") if done.returncode == 0 else None
