"""Keep track of whose every process is, while parents tell.

A process that leaves its session, clears its environment and loses its parent is known by having been seen before.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

from parity.launch.leg import Leg

__all__ = ["adopted", "trace"]


def trace(legs: Sequence[Leg], others: set[int]) -> list[psutil.Process]:
    """Add to each leg's `kin` what descends from it.

    Args:
        legs: those that run.
        others: ids of children of ours that are no leg's.

    Returns:
        All legs' processes, and those that came to us when their parent died, whosoever's they were.
    """
    owners: dict[int, Leg] = {}
    for leg in legs:
        leg.kin = {one for one in leg.kin if one.is_running()}
        owners |= {one.pid: leg for one in (*leg.roots(), *leg.kin)}
    found = []
    for one in psutil.Process().children(recursive=True):  # parents before their children
        with suppress(psutil.NoSuchProcess, OSError):
            owner = owners.get(one.pid) or owners.get(one.ppid())
            if owner is not None:
                owners[one.pid] = owner
                owner.kin.add(one)
                found.append(one)
            elif one.pid not in others and _is_orphan(one):
                found.append(one)
    return found


def adopted(others: Iterable[int]) -> list[psutil.Process]:
    """Orphans that became our children; dead ones are reaped in passing."""
    found = []
    for child in psutil.Process().children():
        with suppress(OSError, psutil.NoSuchProcess):
            if child.pid in others or not _is_orphan(child):
                continue
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
            else:
                os.waitpid(child.pid, os.WNOHANG)
    return found


def _is_orphan(process: psutil.Process) -> bool:
    """Whether it is a child of ours in a session other than ours."""
    return process.ppid() == os.getpid() and os.getsid(process.pid) != os.getsid(0)
