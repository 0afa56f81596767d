"""The machine that legs run on, as far as their numbers depend on it."""

import os
import platform
import re
import subprocess
from pathlib import Path

from parity.cache.reasons import NotCacheableError
from parity.schedule import Slots

__all__ = ["machine"]

_CPUINFO = Path("/proc/cpuinfo")
# Of the first processor: its model and its instructions, for x86 and Arm; clocks and numbers change by themselves.
_MODEL = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip


def machine(device: str, slots: Slots) -> dict[str, object]:
    """The processor, its number of cores, which is that of threads, and the model of the accelerators.

    Raises:
        NotCacheableError: the model of the accelerators is not known, or they are of several.
    """
    told: dict[str, object] = {
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
    }
    if device != "cpu":
        told["accelerators"] = _accelerators(slots)
    return told


def _processor() -> list[str]:
    try:
        first = _CPUINFO.read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return [platform.processor()]
    fields = dict(line.partition(":")[::2] for line in first.splitlines())
    fields = {name.strip(): value.strip() for name, value in fields.items()}
    return [fields.get(name, "") for name in _MODEL]


def _accelerators(slots: Slots) -> list[str]:
    """`NVIDIA H200`, or the part of one, and the driver's version."""
    if slots.accelerator.make != "CUDA":
        raise NotCacheableError(f"which model the {slots.accelerator.make} devices are, nobody tells")
    said = [_said("nvidia-smi", "-L"), _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")]
    models = [
        *{*re.findall(r"^GPU \d+: (.*?) \(UUID", said[0], re.M)},
        *{*re.findall(r"^\s+(MIG \S+)", said[0], re.M)},
    ]
    if not models:
        raise NotCacheableError("nvidia-smi does not tell which model the GPUs are")
    if len(models) > 2 or (len(models) == 2 and not models[1].startswith("MIG ")):
        raise NotCacheableError(f"the GPUs are of several models: {', '.join(sorted(models))}")
    return [*models, *sorted({*said[1].split()})]


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
