"""Why a leg ended as it did, as far as what it said tells."""

import re
from pathlib import Path
from typing import Literal

__all__ = ["Cause", "cause_of", "oom_kills"]

Cause = Literal[
    "crashed",
    "out of memory",
    "device busy",
    "timed out",
    "hung in a collective",
    "hung at teardown",
    "cancelled",
]

MEMORY = re.compile(
    r"\bout of memory\b|OutOfMemoryError|\bMemoryError\b|\bbad_alloc\b|can(?:not|'t) allocate memory"
    r"|not enough memory|ALLOC_FAILED|RESOURCE_EXHAUSTED",
    re.IGNORECASE,
)
# CUDA's errors 46 and 3 in exclusive mode, and EBUSY of a device file.
BUSY = re.compile(r"\bbusy or unavailable\b|\bdevice (?:or resource )?(?:is )?busy\b", re.IGNORECASE)
# Who holds a GPU's memory, as torch tells it when there is none left (c10/cuda/CUDACachingAllocator.cpp).
OTHERS = re.compile(r"\bProcess \d+ has (\d+(?:\.\d+)?) ([MG]iB) memory in use")
OWN = re.compile(r"\bthis process has (\d+(?:\.\d+)?) ([MG]iB) memory in use")
# What a rank says when it has waited for others in vain and none of them is gone.
WAITED = re.compile(
    r"timed out (?:after \d+ \w+ )?waiting|wait timeout|application timeout caused pair closure"
    r"|watchdog caught collective operation timeout|monitoredBarrier",
    re.IGNORECASE,
)


def cause_of(said: str) -> Cause:
    """What the error that a rank reported comes to."""
    if BUSY.search(said):
        return "device busy"
    if MEMORY.search(said):
        return "device busy" if _held(OTHERS, said) > _held(OWN, said) else "out of memory"
    return "hung in a collective" if WAITED.search(said) else "crashed"


def _held(pattern: re.Pattern[str], said: str) -> float:
    return sum(float(size) * (1024 if unit == "GiB" else 1) for size, unit in pattern.findall(said))


def oom_kills() -> int | None:
    """How many processes the kernel has killed for want of memory since it started, on the whole machine and in every
    control group; None where it does not tell.
    """
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
