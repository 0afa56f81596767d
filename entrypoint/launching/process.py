"""The legs as processes of this job, where there is no Docker or the job itself runs in a container.

That isolates nothing: the legs run as this user, and can read and change what it can. They get no token in their
environment, and nothing of theirs is left running; all else is up to the machine, as a pod that serves one job.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from entrypoint.launching.findings import LaunchError, missing, wrong
from entrypoint.launching.setup import with_setup

__all__ = ["environment", "interpreter", "legs"]

_PASSED_ON = (
    "CI",
    "PARITY_SKETCH_STEPS",
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    # Where an image keeps its libraries and packages.
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "SSL_CERT_FILE",
    # By which the runner ends at the end of a job what nothing else has.
    "RUNNER_TRACKING_ID",
)


def environment(env: Mapping[str, str], home: Path, gpus: str) -> dict[str, str]:
    """What the legs get of the environment: variables by name, and a home of their own.

    Args:
        env: this process's.
        home: an empty folder.
        gpus: the input; a list and `none` narrow what CUDA shows.
    """
    narrowed = {} if gpus in ("auto", "all") else {"CUDA_VISIBLE_DEVICES": "" if gpus == "none" else gpus}
    return {
        "PATH": os.defpath,
        **{name: env[name] for name in _PASSED_ON if name in env},
        **narrowed,
        "HOME": str(home),
        "TMPDIR": str(home),
        "USER": "parity",
        "LOGNAME": "parity",
        "PYTHONUNBUFFERED": "1",
    }


def interpreter(env: Mapping[str, str], stripped: Mapping[str, str], cwd: Path) -> str:
    """A Python that can import parity.

    Args:
        env: this process's environment; `PARITY_PYTHON` names one.
        stripped: the legs' environment.
        cwd: a folder without modules.

    Raises:
        LaunchError: there is none.
    """
    named = env.get("PARITY_PYTHON", "")
    tried = []
    for name in [named] if named else ["python3", "python"]:
        path = shutil.which(name, path=env.get("PATH"))
        if path is None or path in tried:
            continue
        tried.append(path)
        try:
            done = subprocess.run(
                [path, "-P", "-c", "import parity.cli"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env=dict(stripped),
                timeout=120,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return path
    root = Path(__file__).resolve().parents[2]
    install = f"with Python 3.11 or newer, as in `{tried[0] if tried else 'python3'} -m pip install {root}`"
    if named:
        raise LaunchError(wrong("PARITY_PYTHON", f"{named} cannot import parity: install it there, {install}"))
    raise LaunchError(
        missing("python", f"no python3 here can import parity: install it {install}, or name one in PARITY_PYTHON")
    )


def legs(python: str, words: list[str], run: Path, setup: str, home: Path) -> list[str]:
    """The command line of the legs; `words` are the suite, and perhaps which of them."""
    command = [python, "-P", "-m", "parity", "run", *words, "--out", str(run)]
    if not setup:
        return command
    return ["sh", *with_setup(setup, command, str(home / "setup"))]
