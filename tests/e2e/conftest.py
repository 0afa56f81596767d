"""What a workflow needs to be run: the action, the image, and the packages that its trusted steps install."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint.trusted import requirements
from tests.container.conftest import checkout as checkout
from tests.container.conftest import engine as engine
from tests.container.conftest import image as image
from tests.e2e.project import Project
from tests.github.fixtures import github as github
from tests.github.server import GitHub
from tests.workflows.files import ROOT, load

IMAGE = "parity-test"  # the tag of the fixture `image`

Start = Callable[..., Project]


@pytest.fixture(scope="session")
def actions(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The action, by where it runs legs unless told. Else it is as it is, but for the image, which was built here.

    Starters leave `isolation` at `auto`, and what that takes depends on the machine: it may itself be a container.
    """
    found = {}
    for isolation in ("auto", "docker"):
        found[isolation] = tmp_path_factory.mktemp("action") / isolation
        shutil.copytree(checkout, found[isolation])
        file = found[isolation] / "action.yml"
        text = file.read_text()
        for name, default in (("image", IMAGE), ("isolation", isolation)):
            text = re.sub(rf"(?ms)(^  {name}:$.*?^    default: )[^\n]+$", rf"\g<1>{default}", text, count=1)
        file.write_text(text)
        inputs = load(file)["inputs"]
        assert (inputs["image"]["default"], inputs["isolation"]["default"]) == (IMAGE, isolation)
    return found


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each job of a run would download again."""
    folder = tmp_path_factory.mktemp("wheels")
    listed = folder / "requirements.txt"
    listed.write_text(requirements((ROOT / "requirements.lock").read_text()))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    pip += ["--only-binary=:all:", "-r", str(listed), "--dest", str(folder)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def start(github: GitHub, actions: dict[str, Path], wheels: Path, tmp_path: Path) -> Start:
    """Make a project with one workflow: `start("parity-ok-to-test.yml", "embedded", isolation="docker")`.

    Without `isolation` its legs run as processes, as the runner is said to be a pod.
    """
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}

    def make(workflow: str, kind: str, *, isolation: str = "auto") -> Project:
        env = pip if isolation == "docker" else {**pip, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
        path = ROOT / "workflows" / workflow
        return Project(github, path, kind, action=actions[isolation], folder=tmp_path, env=env)

    return make
