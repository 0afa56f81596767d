"""What this machine has room for: CPU ranks by its cores, and accelerators by their own tools and variables."""

import math
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from parity.errors import UsageError

__all__ = ["ACCELERATORS", "CUDA", "RANKS_PER_CORE", "WORDS", "Accelerator", "Device", "Slots", "cpu_slots", "found"]

# CPU ranks wait for one another much of the time, and another leg's ranks fill the gaps. Legs of 1, 3 and 4 gloo
# ranks, one OpenMP thread each, on 2 cores, seconds from the first start to the last end (medians, 2-4 runs):
#   step of the one-rank leg       2 ms    13 ms   78 ms
#   all together (4 a core)        2.8     4.7     11.3
#   4 ranks, then 1 + 3 (2 a core) 3.6     5.5     18.0
# One leg after another is slower still (4.2 s against 2.8 s at 2 ms). The embedded suite takes 3.6 s against 6.0 s.
# Four a core also lets a leg of 4 ranks run on a machine with a single core.
RANKS_PER_CORE = 4

ROOT = Path("/")


Device = Literal["cpu", "cuda", "npu", "xpu"]


@dataclass(frozen=True)
class Accelerator:
    """One make of accelerator.

    Attributes:
        make: what people call it.
        word: what one of it is called.
        device: what torch calls it.
        variables: by which a process is told its devices; those of them that are set narrow what this one may use,
            and a leg gets its own in all of them.
        hidden: their value where a process is to see none; None where there is no such value.
        list: every device there is, as the variables may name it, with its uuid or the name again.
    """

    make: str
    word: str
    device: Literal["cuda", "npu", "xpu"]
    variables: tuple[str, ...]
    hidden: str | None
    list: Callable[[Mapping[str, str]], Sequence[tuple[str, str]]]

    def visible(self, devices: Sequence[str]) -> dict[str, str]:
        """The environment in which a process sees these devices and no others; with none, no device at all.

        Empty where there are none to see and no value that says so.
        """
        value = ",".join(devices) or self.hidden
        return {} if value is None else dict.fromkeys(self.variables, value)

    def find(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The devices that this process may use, as the variables name them; by name the uuid. Never raises."""
        there = self.list(environ)
        wanted = next((environ[name] for name in self.variables if name in environ), None)
        return dict(there) if wanted is None else _narrowed(there, wanted)


def _narrowed(there: Sequence[tuple[str, str]], wanted: str) -> dict[str, str]:
    """Those of the devices that a variable's value names, in its order."""
    visible: dict[str, str] = {}
    for name in (part.strip() for part in wanted.split(",")):
        # CUDA reads the list up to the first name that it does not know, and a repeated one voids it.
        uuid = next((uuid for one, uuid in there if name and (name == one or uuid.startswith(name))), None)
        if uuid is None:
            break
        if name in visible:
            return {}
        visible[name] = uuid
    return visible


def _said(*command: str) -> str:
    """What a vendor's tool prints; nothing where there is none or it fails."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True, errors="replace"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _cuda(_environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """By `nvidia-smi -L`, since CUDA itself would have to be initialised. A split GPU (MIG) counts as its parts."""
    devices: list[tuple[str, str]] = []
    whole = re.compile(r"GPU (\d+):.*\(UUID: (GPU-[^)]+)\)")
    part = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")
    open_gpu = False  # the last one is a whole GPU, which its first part replaces
    for line in _said("nvidia-smi", "-L").splitlines():
        if match := whole.match(line):
            devices.append((match[1], match[2]))
            open_gpu = True
        elif (match := part.match(line)) and devices:
            if open_gpu:
                devices.pop()
                open_gpu = False
            devices.append((match[1], match[1]))
    return devices


def _rocm(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """By the kernel's list of compute nodes, in which a GPU is one with SIMD units.

    A node that a container was not given cannot be read. `HIP_VISIBLE_DEVICES` counts within what
    `ROCR_VISIBLE_DEVICES` leaves (ROCm documentation, GPU isolation techniques), so that one stays as it is.
    """
    gpus = 0
    for node in (ROOT / "sys/class/kfd/kfd/topology/nodes").glob("*"):
        try:
            gpus += re.search(r"^simd_count [1-9]", (node / "properties").read_text(), re.MULTILINE) is not None
        except OSError:
            continue
    if "ROCR_VISIBLE_DEVICES" in environ:
        gpus = min(gpus, len([name for name in environ["ROCR_VISIBLE_DEVICES"].split(",") if name.strip()]))
    return _numbered(gpus)


def _ascend(_environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """By their device files. `ASCEND_RT_VISIBLE_DEVICES` counts those of a container from 0."""
    return _numbered(
        sum(re.fullmatch(r"davinci\d+", file.name) is not None for file in (ROOT / "dev").glob("davinci*"))
    )


def _xpu(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """By `xpu-smi discovery --dump 1`: a column of the devices' numbers. A mask may name parts of devices."""
    table = _said("xpu-smi", "discovery", "--dump", "1")
    devices = _numbered(len(re.findall(r'^\s*"?\d+"?\s*$', table, re.MULTILINE)))
    parts = [part.strip() for part in environ.get("ZE_AFFINITY_MASK", "").split(",") if "." in part]
    return devices + [(part, part) for part in parts if (part.split(".")[0],) * 2 in devices]


def _numbered(count: int) -> list[tuple[str, str]]:
    return [(str(number), str(number)) for number in range(count)]


CUDA = Accelerator("CUDA", "GPU", "cuda", ("CUDA_VISIBLE_DEVICES",), "", _cuda)
ACCELERATORS = (
    CUDA,
    # HIP takes either variable; with the same value in both, nothing depends on which it takes.
    Accelerator("ROCm", "GPU", "cuda", ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), "-1", _rocm),
    Accelerator("Ascend", "NPU", "npu", ("ASCEND_RT_VISIBLE_DEVICES",), "", _ascend),
    # An empty mask hides nothing.
    Accelerator("XPU", "GPU", "xpu", ("ZE_AFFINITY_MASK",), None, _xpu),
)

WORDS: Mapping[str, str] = {one.device: one.word for one in ACCELERATORS}
"""What one accelerator is called, by what torch calls its make."""


def found(environ: Mapping[str, str] | None = None) -> tuple[Accelerator, dict[str, str]]:
    """The first make of which this process may use a device, and those devices, by name their uuids; CUDA and none
    where there is none."""
    environ = os.environ if environ is None else environ
    for accelerator in ACCELERATORS:
        if devices := accelerator.find(environ):
            return accelerator, devices
    return CUDA, {}


@dataclass(frozen=True)
class Slots:
    """Places for ranks.

    Attributes:
        cpu: ranks that may share the processor cores at the same time.
        gpus: devices as the accelerator's variables name them; one rank each.
        accelerator: their make.
        identities: by device, what it is called on the machine as a whole, where other runs are to be kept off it.
    """

    cpu: int
    gpus: tuple[str, ...] = ()
    accelerator: Accelerator = CUDA
    identities: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def here(cls, cpu: int | None = None, devices: Sequence[str] | None = None) -> "Slots":
        """What this process may use of this machine; `cpu` ranks at a time, and these devices, where they are given.

        Raises:
            UsageError: a device that is given is not there, or is given twice. Where no tool tells what is there,
                they are taken for CUDA's.
        """
        accelerator, there = found()
        gpus = tuple(there)
        if devices is not None:
            known = gpus or any(one.list(os.environ) for one in ACCELERATORS)
            unknown = [name for name in devices if known and name not in gpus]
            if unknown:
                raise UsageError(f"--devices {unknown[0]}: no such device; there is {', '.join(gpus) or 'none'}")
            if len(set(devices)) < len(devices):
                raise UsageError(f"--devices {','.join(devices)}: names a device twice")
            gpus = tuple(devices)
        identities = {gpu: f"{accelerator.make}-{there.get(gpu, gpu)}" for gpu in gpus}
        return cls(cpu_slots() if cpu is None else cpu, gpus, accelerator, identities)


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
