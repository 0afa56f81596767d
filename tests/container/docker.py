"""The `docker` command, and what its words say."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["BASE", "build", "docker", "inspect", "layers", "missing"]

BASE = os.environ.get("PARITY_TEST_BASE", "parity-test-base")  # made by .ci/engine


def docker(*arguments: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs it; its output is in the error where it fails."""
    done = subprocess.run(["docker", *arguments], input=stdin, capture_output=True, text=True, check=False)
    said = done.stdout[-4000:] + done.stderr[-4000:]
    assert not check or done.returncode == 0, f"docker {' '.join(arguments)}\n{said}"
    return done


def missing() -> str | None:
    """Why no container can be run here, or None."""
    if shutil.which("docker") is None:
        return "no Docker Engine: there is no docker command"
    engine = docker("info", "--format", "{{.ServerVersion}}", check=False)
    if engine.returncode != 0:
        return f"no Docker Engine: {engine.stderr.strip().splitlines()[-1]}"
    if docker("image", "inspect", BASE, check=False).returncode != 0:
        return f"no image {BASE}: .ci/engine makes it"
    return None


def build(tag: str, context: Path, *options: str, **arguments: str) -> str:
    """An image of this tag, without a network, as the base has every wheel."""
    given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    docker("build", "--network", "none", "--tag", tag, *given, *options, str(context))
    return tag


def inspect(image: str) -> Any:
    """What the image says of itself: `User`, `Labels`, `Env` and so on."""
    return json.loads(docker("image", "inspect", "--format", "{{json .Config}}", image).stdout)


def layers(image: str) -> int:
    """Bytes in all layers."""
    sizes = docker("history", "--human=false", "--format", "{{.Size}}", image).stdout
    return sum(int(size) for size in sizes.split())
