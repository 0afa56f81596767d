"""Find every process of a leg, whatever session it moved to and whoever its parent is now."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping

import psutil

from parity.launch import linux

__all__ = ["LEG", "NODE", "PLACEHOLDER", "RUN", "environment", "members", "note", "recall", "send"]

RUN = "PARITY_RUN_ID"
LEG = "PARITY_LEG"
NODE = "PARITY_NODE"  # set where something else than the run's first launcher ends the process
PLACEHOLDER = " " * 255  # holds any leg name, as this names a folder; see `linux.overwrite_environ`


def environment(run_id: str, leg: str, directory: str | os.PathLike[str]) -> dict[str, str]:
    """The variables that mark a leg's processes and tell the recorder where to write."""
    return {RUN: run_id, LEG: leg, "PARITY_RECORD_DIR": os.fspath(directory)}


def members(run_id: str, leg: str | None, roots: Iterable[psutil.Process] = ()) -> list[psutil.Process]:
    """The living processes of a leg, or of the whole run for `leg=None`; zombies left out.

    A process belongs to the leg if its environment says so (children inherit that, daemons too), if it is one of
    `roots` or in a session that one of these opened, or if it descends from one of all these. This process and the
    ones that started it are never among them, nor is a later one that has a root's id.
    """
    ids = {root.pid for root in roots if _keeps_id(root)}
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found: dict[int, psutil.Process] = {}
    children: dict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter(["ppid", "status", "environ"]):
        if process.info["status"] == psutil.STATUS_ZOMBIE or process.pid in ours:
            continue
        children[process.info["ppid"]].append(process)
        if process.pid in ids or _session(process.pid) in ids or _marked(process.info, run_id, leg):
            found[process.pid] = process
    queue = list(found)
    while queue:
        for child in children[queue.pop()]:
            if child.pid not in found:
                found[child.pid] = child
                queue.append(child.pid)
    return list(found.values())


def _marked(info: Mapping[str, object], run_id: str, leg: str | None) -> bool:
    environ = info["environ"]
    if not isinstance(environ, dict) or RUN not in environ:
        return False
    # What another machine's launcher ends is told apart, though its folder and here even its processes are seen.
    if environ[RUN] + (f".{environ[NODE]}" if NODE in environ else "") != run_id:
        return False
    return leg is None or environ.get(LEG) == leg


def _keeps_id(process: psutil.Process) -> bool:
    """Whether no later process has its id. A session's is not given away before its last process is gone."""
    try:
        return psutil.Process(process.pid) == process
    except psutil.NoSuchProcess:
        return True


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def send(processes: Iterable[psutil.Process], signum: int) -> None:
    """Signal each process that is still there, and never a later one of the same id."""
    for process in processes:
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            continue
        try:
            if process.is_running():  # then the handle is its own, and stays so
                signal.pidfd_send_signal(handle, signum)
        except OSError:
            continue
        finally:
            os.close(handle)


def note(process: psutil.Process) -> str:
    """A process in one line, for another one to `recall`.

    Raises:
        OSError: it is gone.
    """
    return f"{process.pid} {linux.start_time(process.pid)}"


def recall(line: str) -> psutil.Process | None:
    """The process of a `note`, if it is still there."""
    pid, start = map(int, line.split())
    try:
        process = psutil.Process(pid)
        return process if linux.start_time(pid) == start else None
    except (psutil.NoSuchProcess, OSError):
        return None
