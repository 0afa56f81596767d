"""`parity-ok-to-test.yml` from a comment to the comment that answers it, with a real container in between."""

import json
import zipfile

import pytest

from tests.container.docker import docker
from tests.e2e.act import Run
from tests.e2e.conftest import Start
from tests.e2e.project import Project
from tests.github.server import GitHub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STATUS = "parity / parity.yml"


def uploaded(run: Run, name: str) -> str:
    with zipfile.ZipFile(run.artifacts / "parity-out.zip") as archive:
        return archive.read(name).decode()


def test_a_commit_is_tested_and_then_another(start: Start, image: str, github: GitHub) -> None:
    project = start("parity-ok-to-test.yml", "embedded", isolation="docker")
    good = project.push()
    run, comment = project.approve(good)
    assert (run.code, run.jobs) == (0, dict.fromkeys(("gate", "run", "publish"), "success")), run.said
    assert [content for _, _, content in comment.reactions] == ["rocket"]
    (answer,) = project.answers(7)
    assert "parity: pass" in answer.body
    assert f"Tested commit {good}, the head of pull request 7." in answer.body
    assert f"The legs ran in a container of {image}, without a token" in answer.body
    assert "tp2 against tp1" in answer.body
    assert project.states(good) == [(STATUS, "success"), (STATUS, "pending")]
    assert "parity: pass" in run.summaries["publish"]
    hold_to_the_container(project, run)

    worse = project.push(lambda text: text.replace("{tp: 2}}", "{tp: 2}, trainer: {fault: heads-cut-through}}"))
    run, comment = project.approve(worse)
    assert run.code != 0
    assert run.jobs == {"gate": "success", "run": "success", "publish": "failure"}, run.said
    assert [one.id for one in project.answers(7)] == [answer.id]
    assert "parity: fail" in answer.body
    assert f"Tested commit {worse}, the head of pull request 7." in answer.body
    history = [line for line in answer.body.splitlines() if line.startswith("| [`")]
    assert [f"[`{sha[:7]}`]" in line for sha, line in zip((worse, good), history, strict=True)] == [True, True]
    assert "| ✅ pass |" in history[1]
    said = run.outputs["publish"]
    assert (said["verdict"], said["tested-sha"]) == ("fail", worse)
    assert said["comment-url"].endswith(f"#issuecomment-{answer.id}")
    assert f"| ❌ fail | {said['worst-step']} |" in history[0]
    for metric in json.loads(uploaded(run, "run/result.json"))["comparisons"][0]["metrics"]:
        assert f"**{metric['metric']}**, worst at step {metric['worst_step']}" in answer.body
    assert project.states(worse) == [(STATUS, "failure"), (STATUS, "pending")]
    assert project.states(good)[0] == (STATUS, "success")
    assert "parity: fail" in run.summaries["publish"]
    assert project.runner not in docker("ps", "--all", "--no-trunc", "--format", "{{.Labels}}").stdout


def hold_to_the_container(project: Project, run: Run) -> None:
    """What the leg that looked for a way out has seen."""
    seen = json.loads(uploaded(run, "run/legs/spy/command.log").splitlines()[0])
    # No token, no input, nothing of the runner: in no environment that could be read, and in no file of the run.
    words = ("GITHUB_", "INPUT_", "RUNNER_", "ACTIONS_", "DOCKER_", "PIP_", "PARITY_TEST", project.token)
    everything = "\0".join([*seen["environment"], *seen["environment"].values(), *seen["environments"]])
    assert len(seen["environments"]) > 1
    assert [word for word in words if word in everything] == []
    assert "extraheader" not in seen["git"]
    with zipfile.ZipFile(run.artifacts / "parity-out.zip") as archive:
        assert [name for name in archive.namelist() if project.token.encode() in archive.read(name)] == []
    # Of the runner's folders, the repository to read, and one to write to.
    host = {path: how for path, how in seen["mounts"].items() if not path.startswith(("/proc", "/sys", "/dev"))}
    own = {"/", "/tmp", "/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}
    assert {path for path in host if not path.endswith("/docker-init")} - own == {"/src", "/out"}
    assert [path for path in ("/", "/src") if not host[path].startswith("ro")] == []
    assert [path for path, said in seen["written"].items() if "Read-only" not in said] == []
    # No way out.
    assert seen["interfaces"] == ["lo"]
    assert len(seen["reached"]) == 2
    assert [target for target, said in seen["reached"].items() if said == "done"] == []
    assert seen["resolved"].startswith("gaierror")
    assert seen["docker"].startswith("FileNotFoundError")
    assert seen["sockets"] == []
    assert "0" not in seen["user"]
    assert int(seen["capabilities"], 16) == 0
    assert seen["privileges"] == "1"
