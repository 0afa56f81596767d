"""The image: parity on top of any base, for any user, on a read-only root."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from parity import __version__
from tests.container.conftest import ROOT
from tests.container.docker import docker, inspect, layers

# Building installs torch, which is most of a minute, or several on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SUITE = ("run", "embedded/tensor-parallel", "--steps", "5")


def shell(image: str, script: str) -> str:
    """What the script prints in a new container."""
    return docker("run", "--rm", "--entrypoint", "sh", image, "-ec", script).stdout.strip()


def test_help_is_what_it_does_when_not_told(image: str) -> None:
    assert docker("run", "--rm", image).stdout == docker("run", "--rm", image, "--help").stdout
    assert "Does a model trained under a parallel layout" in docker("run", "--rm", image).stdout


def test_the_embedded_suite_runs_by_itself(image: str) -> None:
    assert "parity: pass" in docker("run", "--rm", image, *SUITE).stdout


def test_an_unknown_user_needs_one_writable_folder_and_nothing_else(image: str, tmp_path: Path) -> None:
    """No root, no network, no capability, and nothing to write to but the mount."""
    uid = os.getuid() or 54321  # whoever deletes `tmp_path` must be allowed to
    tmp_path.chmod(0o777)
    confined = ["--read-only", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    docker("run", "--rm", f"--user={uid}:{uid}", *confined, f"--volume={tmp_path}:/work", image, *SUITE)
    assert json.loads((tmp_path / "parity-out/result.json").read_text())["verdict"] == "pass"
    assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {uid}


def test_no_compiler_is_left(image: str) -> None:
    found = shell(image, "for name in gcc cc g++ c++ clang ld make; do command -v $name || true; done")
    assert found == ""


def test_the_user_is_not_root(image: str) -> None:
    assert shell(image, "id -u") == "1000"
    assert shell(image, "find /opt/parity -writable -not -type l") == ""


def test_labels(image: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    labels = {
        name.removeprefix("org.opencontainers.image."): value for name, value in inspect(image)["Labels"].items()
    }
    assert labels["version"] == __version__
    assert labels["licenses"] == project["license"]
    assert labels["description"] == project["description"]
    assert labels["source"].startswith("https://")


def test_all_but_base_and_torch_stays_under_150_megabytes(image: str, bare: str) -> None:
    assert layers(image) - layers(bare) < 150e6


def test_entrypoint_comes_along(image: str) -> None:
    """What publishes a report, by parity's Python."""
    assert shell(image, "/opt/parity/bin/python -c 'import entrypoint; print(entrypoint.__name__)'") == "entrypoint"


def test_recipes_and_starters_come_along(image: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    begin = ("init", "--recipe", "deepspeed/autotp-uneven", "--workflow", "ok-to-test")
    docker("run", "--rm", f"--volume={tmp_path}:/work", image, *begin)
    assert (tmp_path / ".github" / "workflows" / "parity.yml").exists()
    assert (tmp_path / "parity-recipes" / "deepspeed" / "train.py").exists()


def test_only_what_the_image_is_made_of_is_sent_to_the_build(engine: str, checkout: Path) -> None:
    (checkout / "parity/__pycache__").mkdir(exist_ok=True)
    (checkout / "parity/__pycache__/stale.pyc").touch()
    (checkout / ".env").touch()
    recipe = f"FROM {engine}\nCOPY . /sent\n"
    docker("build", "--tag", "parity-test-sent", "--file", "-", str(checkout), stdin=recipe)
    sent = shell("parity-test-sent", "cd /sent; ls -A; find . -name '*.pyc'").split()
    assert sent == [
        "LICENSE",
        "README.md",
        "entrypoint",
        "parity",
        "pyproject.toml",
        "requirements.lock",
        "workflows",
    ]


def test_a_frameworks_image_carries_it_with_its_own_torch(framework_image: str) -> None:
    assert "parity: pass" in docker("run", "--rm", framework_image, *SUITE).stdout
    where = shell(framework_image, "/opt/parity/bin/python -c 'import torch; print(torch.__file__)'")
    assert where.startswith("/opt/framework/")


def test_a_leg_has_the_frameworks_python_and_packages_beside_the_recorder(framework_image: str) -> None:
    """Nothing that parity imports shadows what is tested, and nothing is there that was not."""
    found = shell(
        framework_image,
        "command -v python; command -v torchrun\n"
        "python -W error -c 'import parity.record, click; print(click.framework)'\n"
        "python -c 'import pydantic' 2>&1 | tail -n 1",
    )
    assert found.splitlines() == [
        "/opt/framework/bin/python",
        "/opt/framework/bin/torchrun",
        "True",
        "ModuleNotFoundError: No module named 'pydantic'",
    ]
