"""Which waiting legs start now. Pure, except for the two functions that look at the machine."""

import math
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from parity.errors import DeviceError

__all__ = ["Grant", "Need", "Slots", "check_room", "cpu_slots", "gpu_slots", "start_now"]

# CPU ranks wait for one another much of the time, and another leg's ranks fill the gaps. Legs of 1, 3 and 4 gloo
# ranks, one OpenMP thread each, on 2 cores, seconds from the first start to the last end (medians, 2-4 runs):
#   step of the one-rank leg       2 ms    13 ms   78 ms
#   all together (4 a core)        2.8     4.7     11.3
#   4 ranks, then 1 + 3 (2 a core) 3.6     5.5     18.0
# One leg after another is slower still (4.2 s against 2.8 s at 2 ms). The embedded suite takes 3.6 s against 6.0 s.
# Four a core also lets a leg of 4 ranks run on a machine with a single core.
RANKS_PER_CORE = 4


@dataclass(frozen=True)
class Slots:
    """Places for ranks.

    Attributes:
        cpu: ranks that may share the processor cores at the same time.
        gpus: devices as `CUDA_VISIBLE_DEVICES` names them; one rank each.
    """

    cpu: int
    gpus: tuple[str, ...] = ()

    @classmethod
    def here(cls, cpu: int | None = None) -> "Slots":
        """What this process may use of this machine; `cpu` ranks at a time, if that is given."""
        return cls(cpu_slots() if cpu is None else cpu, gpu_slots())


@dataclass(frozen=True)
class Need:
    """What one leg takes.

    Attributes:
        name: the leg.
        ranks: its world size, and so the slots it takes.
        cuda: whether these are GPUs.
    """

    name: str
    ranks: int
    cuda: bool = False


@dataclass(frozen=True)
class Grant:
    """A leg that starts now.

    Attributes:
        name: the leg.
        ranks: slots it takes.
        gpus: the devices it gets; empty for a leg on the CPU.
    """

    name: str
    ranks: int
    gpus: tuple[str, ...] = ()


def check_room(needs: Iterable[Need], slots: Slots) -> None:
    """Raise before anything starts when a leg could never start.

    Raises:
        DeviceError: one line for each leg that needs more slots than there are.
    """
    lines = []
    for need in needs:
        if need.cuda and need.ranks > len(slots.gpus):
            lines.append(
                f"legs.{need.name}: needs {need.ranks} GPUs, this machine has {len(slots.gpus)}; "
                "take a smaller layout, a machine with more GPUs, or run the leg on the CPU"
            )
        elif not need.cuda and need.ranks > slots.cpu:
            lines.append(
                f"legs.{need.name}: needs {need.ranks} ranks, this machine has room for {slots.cpu} "
                f"({RANKS_PER_CORE} a core); take a smaller layout or a machine with more cores"
            )
    if lines:
        raise DeviceError(*lines)


def start_now(waiting: Sequence[Need], free: Slots) -> list[Grant]:
    """The legs that start now, largest first, and smaller ones in the room that is left.

    Legs of equal size start in the order given. A suite has a finite number of legs, so a large
    one that smaller ones overtake still gets its turn.
    """
    grants = []
    for need in sorted(waiting, key=lambda need: -need.ranks):
        if need.cuda and need.ranks <= len(free.gpus):
            grants.append(Grant(need.name, need.ranks, free.gpus[: need.ranks]))
            free = replace(free, gpus=free.gpus[need.ranks :])
        elif not need.cuda and need.ranks <= free.cpu:
            grants.append(Grant(need.name, need.ranks))
            free = replace(free, cpu=free.cpu - need.ranks)
    return grants


def cpu_slots(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """How many CPU ranks run at the same time here: cores this process may use, times `RANKS_PER_CORE`.

    A container's quota counts: a process sees all cores of the machine and gets the time of a few.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _cpu_quota(cgroup)
    if quota is not None:
        cores = min(cores, max(1, math.ceil(quota)))
    return cores * RANKS_PER_CORE


def _cpu_quota(cgroup: Path) -> float | None:
    """Cores' worth of time that the control group grants, version 2 or 1; None without a limit."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        cores = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such group, or "max"
        return None
    return cores if cores > 0 else None  # version 1 says -1 for "no limit"


def gpu_slots(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The GPUs this process may use, as `CUDA_VISIBLE_DEVICES` names them. Never raises.

    Asks `nvidia-smi`, since CUDA itself would have to be initialised. A GPU that is split (MIG) counts
    as its parts.
    """
    environ = os.environ if environ is None else environ
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True, errors="replace"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return _visible(listing, environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(listing: str, wanted: str | None) -> tuple[str, ...]:
    """Devices in the output of `nvidia-smi -L`, narrowed to `wanted` (a value of `CUDA_VISIBLE_DEVICES`)."""
    names: list[str] = []
    uuids: list[str] = []
    whole = re.compile(r"GPU (\d+):.*\(UUID: (GPU-[^)]+)\)")
    part = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")
    open_gpu = False  # the last name is a whole GPU, which its first part replaces
    for line in listing.splitlines():
        if found := whole.match(line):
            names.append(found[1])
            uuids.append(found[2])
            open_gpu = True
        elif (found := part.match(line)) and names:
            if open_gpu:
                names.pop()
                uuids.pop()
                open_gpu = False
            names.append(found[1])
            uuids.append(found[1])
    if wanted is None:
        return tuple(names)
    visible: list[str] = []
    for name in (part.strip() for part in wanted.split(",")):
        # CUDA reads the list up to the first name that it does not know, and a repeated one voids it.
        if not name or not (name in names or any(uuid.startswith(name) for uuid in uuids)):
            break
        if name in visible:
            return ()
        visible.append(name)
    return tuple(visible)
