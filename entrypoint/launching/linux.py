"""Processes as the kernel tells of them, and the calls that Python has no function for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

__all__ = ["become_subreaper", "die_with_parent", "end_descendants", "hide_environment", "started"]

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Have orphaned descendants become this process's children rather than init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have this process killed when the one that started it is gone."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def hide_environment() -> None:
    """Keep other processes of this user from reading this one's environment, which may hold a token."""
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def started(pid: int) -> str:
    """When a process started, in the kernel's ticks: with its id, which process it is. Empty if it is gone."""
    fields = _fields(pid)
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def end_descendants(of: int, seconds: float, spared: Iterable[int] = ()) -> list[int]:
    """Kill everything that descends from a process, until nothing is left; returns what is left all the same.

    Children of this process that end are waited for.
    """
    deadline = time.monotonic() + seconds
    spared = set(spared)
    while True:
        left = [pid for pid in _descendants(of) if pid not in spared]
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(OSError):  # not a child of this process
                os.waitpid(pid, os.WNOHANG)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def _descendants(of: int) -> list[int]:
    """Living processes below one, the nearest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = _fields(int(name))
        if fields and (fields[0] not in "ZX" or int(fields[1]) == os.getpid()):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = list(children.get(of, ()))
    for pid in found:  # grows while it is walked through
        found += children.get(pid, ())
    return found


def _fields(pid: int) -> list[str]:
    """`/proc/<pid>/stat` from the state on; the name before it may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
