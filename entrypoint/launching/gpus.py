"""Which GPUs the legs get, and by what arguments of the program that runs containers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from entrypoint.launching.engine import Engine
from entrypoint.launching.findings import Finding, missing, one_line, warning

__all__ = ["Gpu", "Gpus", "busy", "choose", "listed", "wanted"]

_CDI = "nvidia.com/gpu"
_LARGEST_SPEC = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """A device as `nvidia-smi` names it."""

    index: str
    uuid: str


@dataclass(frozen=True)
class Gpus:
    """What the legs get.

    Attributes:
        asked: the input, narrowed to what the runner may use.
        devices: `all`, or names; empty for none.
        method: `cdi` or `gpus`; `process` where they are not put into a container; empty for none.
    """

    asked: str
    devices: tuple[str, ...] = ()
    method: str = ""

    def argv(self) -> list[str]:
        """Arguments of `docker run`."""
        if self.method == "cdi":
            # The runtime would else add what the image's environment asks for, which is all of them.
            devices = [word for name in self.devices for word in ("--device", f"{_CDI}={name}")]
            return [*devices, "--env", "NVIDIA_VISIBLE_DEVICES=void"]
        if self.method == "gpus":
            # The value is read as a line of CSV, so that a list of devices must stand in quotes of its own.
            value = "all" if self.devices == ("all",) else f'"device={",".join(self.devices)}"'
            return ["--gpus", value, "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
        return ["--env", "NVIDIA_VISIBLE_DEVICES=void"]


def wanted(gpus: str, env: Mapping[str, str]) -> str:
    """The input, where `auto` and `all` mean those that the runner was given (`NVIDIA_VISIBLE_DEVICES`)."""
    given = env.get("NVIDIA_VISIBLE_DEVICES", "all").strip()
    if gpus not in ("auto", "all") or given == "all":
        return gpus
    if given in ("", "none", "void"):
        return "none"
    return given if re.fullmatch(r"[A-Za-z0-9:-]+(,[A-Za-z0-9:-]+)*", given) else gpus


def choose(gpus: str, engine: Engine, env: Mapping[str, str]) -> tuple[Gpus, list[Finding]]:
    """What a container gets, and what is missing for it.

    Args:
        gpus: the input.
        engine: what runs the container.
        env: this process's environment.
    """
    asked = wanted(gpus, env)
    if asked == "none":
        return Gpus(asked), []
    cdi = _has_cdi(engine.cdi_folders)
    there, problem = listed(env)
    if gpus == "auto" and asked == "auto" and not there and not cdi:
        return Gpus(asked), []
    if problem and not cdi:
        return Gpus(asked), [missing("gpus", problem)]
    devices = ("all",) if asked in ("auto", "all") else tuple(asked.split(","))
    if cdi:
        return Gpus(asked, devices, "cdi"), _unknown(devices, there)
    if not engine.podman and (engine.nvidia_runtime or _which("nvidia-container-runtime-hook", env)):
        return Gpus(asked, devices, "gpus"), _unknown(devices, there)
    text = _without_toolkit(engine, env)
    if gpus == "auto":
        return Gpus(asked), [warning("gpus", f"{text}; until then the legs run without the {len(there)} GPUs here")]
    return Gpus(asked), [missing("gpus", text)]


def _without_toolkit(engine: Engine, env: Mapping[str, str]) -> str:
    if not _which("nvidia-ctk", env):
        return (
            "containers can be given no GPU here: install the NVIDIA Container Toolkit"
            " (package nvidia-container-toolkit)"
        )
    if engine.podman:
        return (
            "the NVIDIA Container Toolkit is installed and has described no device:"
            " `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
        )
    return (
        "the NVIDIA Container Toolkit is installed and Docker does not know it:"
        " `sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
    )


def _unknown(devices: Iterable[str], there: Sequence[Gpu]) -> list[Finding]:
    known = {name for gpu in there for name in (gpu.index, gpu.uuid)}
    unknown = [name for name in devices if name.isdigit() and name not in known] if there else []
    if not unknown:
        return []
    return [missing("gpus", f"no GPU {', '.join(unknown)} here; there is {', '.join(gpu.index for gpu in there)}")]


def listed(env: Mapping[str, str]) -> tuple[list[Gpu], str]:
    """The GPUs that the driver sees, and what is wrong if it does not."""
    if not _which("nvidia-smi", env):
        return [], "nvidia-smi is missing: install the NVIDIA driver, or say gpus: none"
    done = _smi(env, "--query-gpu=index,uuid", "--format=csv,noheader")
    if done is None or done.returncode:
        said = "no answer" if done is None else one_line(done.stdout.strip() or done.stderr.strip())
        return [], f"nvidia-smi fails ({said}): the NVIDIA driver is not loaded or is broken"
    rows = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
    found = [Gpu(row[0], row[1]) for row in rows if len(row) == 2 and row[0].isdigit()]
    return found, "" if found else "nvidia-smi lists no GPU: none is there, or the runner's container was given none"


def busy(gpus: Gpus, env: Mapping[str, str]) -> list[Finding]:
    """A warning for each process that computes on a GPU that the legs get."""
    if not gpus.method:
        return []
    there, _ = listed(env)
    names = {gpu.uuid: gpu.index for gpu in there}
    done = _smi(env, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader")
    found = []
    for line in done.stdout.splitlines() if done is not None and not done.returncode else ():
        row = [part.strip() for part in line.split(",")]
        if len(row) != 4 or not {"all", row[0], names.get(row[0])} & set(gpus.devices):
            continue
        found.append(
            warning(
                "gpus",
                f"GPU {names.get(row[0], row[0])} is in use by process {row[1]} ({os.path.basename(row[2])},"
                f" {row[3]}): legs may run out of memory; end it, or give other gpus",
            )
        )
    return found


def _smi(env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str] | None:
    path = _which("nvidia-smi", env)
    try:
        return path and subprocess.run(  # type: ignore[return-value]
            [path, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            env={name: env[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in env},
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _has_cdi(folders: Iterable[str]) -> bool:
    for folder in folders:
        for path in sorted(Path(folder).glob("*")):
            try:
                if path.suffix in (".json", ".yaml", ".yml") and _CDI in path.read_text()[:_LARGEST_SPEC]:
                    return True
            except (OSError, UnicodeDecodeError):
                continue
    return False


def _which(name: str, env: Mapping[str, str]) -> str | None:
    return shutil.which(name, path=env.get("PATH"))
