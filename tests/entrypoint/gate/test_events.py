"""Events other than comments, and the second look after checkout."""

import subprocess
from pathlib import Path

import pytest

from tests.github import events, faults
from tests.github.server import GitHub

from .conftest import Gate


def test_a_push_of_copy_pr_bot_passes_if_it_is_the_head(github: GitHub, at_gate: Gate) -> None:
    code, outputs = at_gate.on(events.push(github, github.pull.head_sha))
    assert (code, outputs["ok"], outputs["pr-number"], outputs["sha"]) == (0, "true", "7", github.pull.head_sha)


def test_a_push_that_is_no_longer_the_head_is_refused(github: GitHub, at_gate: Gate) -> None:
    pushed = github.pull.head_sha
    github.repository.push(github.pull)
    code, outputs = at_gate.on(events.push(github, pushed))
    assert (code, outputs["ok"], outputs["sha"]) == (1, "false", "")
    assert "moved" in outputs["reason"]
    assert at_gate.replies() == []


def test_github_may_be_late_to_know_the_head(github: GitHub, at_gate: Gate) -> None:
    pushed = github.repository.add_commit().sha
    github.after(lambda _: setattr(github.pull, "head_sha", pushed), "GET", "*/pulls/7")
    code, outputs = at_gate.on(events.push(github, pushed))
    assert (code, outputs["sha"]) == (0, pushed)


def test_a_push_elsewhere_has_no_pull_request(github: GitHub, at_gate: Gate) -> None:
    sha = github.repository.branches["main"]
    code, outputs = at_gate.on(events.push(github, sha, "refs/heads/main"))
    assert (code, outputs["ok"], outputs["pr-number"], outputs["sha"]) == (0, "true", "", sha)


def test_a_branch_that_was_deleted_is_no_commit(github: GitHub, at_gate: Gate) -> None:
    code, outputs = at_gate.on(events.push(github, events.NOTHING))
    assert (code, outputs["ok"]) == (1, "false")


def test_a_pull_request_from_this_repository_passes(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = "org/project"
    code, outputs = at_gate.on(events.pull_request(github, github.pull))
    assert (code, outputs["ok"], outputs["pr-number"], outputs["sha"]) == (0, "true", "7", github.pull.head_sha)


def test_a_pull_request_from_a_fork_waits(github: GitHub, at_gate: Gate) -> None:
    code, outputs = at_gate.on(events.pull_request(github, github.pull))
    assert (code, outputs["ok"], outputs["sha"]) == (0, "false", "")


@pytest.mark.parametrize("make", [events.schedule, events.workflow_dispatch])
def test_an_event_of_the_repository_itself_passes(github: GitHub, at_gate: Gate, make: object) -> None:
    assert callable(make)
    code, outputs = at_gate.on(make(github))
    assert (code, outputs["ok"], outputs["pr-number"]) == (0, "true", "")
    assert outputs["sha"] == github.repository.branches["main"]


def test_an_event_that_the_gate_does_not_know_is_refused(github: GitHub, at_gate: Gate) -> None:
    event = events.pull_request(github, github.pull)
    code, outputs = at_gate.on(events.Event("pull_request_target", event.payload, event.ref, event.sha))
    assert (code, outputs["ok"], outputs["sha"]) == (1, "false", "")


def test_a_push_is_refused_while_github_is_unwell(github: GitHub, at_gate: Gate) -> None:
    github.fail(faults.server_error(), "GET", "*", times=None)
    code, outputs = at_gate.on(events.push(github, github.pull.head_sha))
    assert (code, outputs["ok"]) == (4, "false")


@pytest.fixture
def checkout(github: GitHub, tmp_path: Path) -> str:
    """A repository in the workspace whose one commit is made the head of the pull request."""
    folder = tmp_path / "workspace"
    who = ["-c", "user.name=x", "-c", "user.email=x@github.test", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], [*who, "commit", "--quiet", "--allow-empty", "--message", "One"]):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", *command], cwd=folder, check=True)
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    sha = found.stdout.strip()
    github.repository.push(github.pull, sha=sha)
    return sha


def comment(github: GitHub, sha: str) -> events.Event:
    return events.issue_comment(github, github.repository.add_comment(7, f"/ok to test {sha}", user="maya"))


@pytest.mark.parametrize("detached", [True, False])
def test_what_is_checked_out_is_what_was_approved(
    github: GitHub, at_gate: Gate, checkout: str, detached: bool, tmp_path: Path
) -> None:
    if detached:
        subprocess.run(["git", "checkout", "--quiet", checkout], cwd=tmp_path / "workspace", check=True)
    code, outputs = at_gate.on(comment(github, checkout), sha=checkout)
    assert (code, outputs["ok"], outputs["pr-number"], outputs["sha"]) == (0, "true", "7", checkout)
    assert github.sent("POST") == []


def test_a_push_is_checked_again_without_inputs(github: GitHub, at_gate: Gate, checkout: str) -> None:
    code, outputs = at_gate.on(events.push(github, checkout), "recheck")
    assert (code, outputs["ok"], outputs["sha"]) == (0, "true", checkout)


def test_another_commit_is_checked_out(github: GitHub, at_gate: Gate, checkout: str) -> None:
    head = github.repository.push(github.pull)
    code, outputs = at_gate.on(comment(github, head), sha=head)
    assert (code, outputs["ok"]) == (1, "false")
    assert "checked out" in outputs["reason"]


def test_nothing_is_checked_out(github: GitHub, at_gate: Gate) -> None:
    code, outputs = at_gate.on(comment(github, github.pull.head_sha), sha=github.pull.head_sha)
    assert (code, outputs["ok"]) == (1, "false")
    assert "checked out" in outputs["reason"]


def test_the_head_moved_after_checkout(github: GitHub, at_gate: Gate, checkout: str) -> None:
    head = github.repository.push(github.pull)
    code, outputs = at_gate.on(comment(github, checkout), sha=checkout)
    assert (code, outputs["ok"], outputs["sha"]) == (1, "false", "")
    assert "moved" in outputs["reason"]
    (reply,) = at_gate.replies()
    assert f"`/ok to test {head}`" in reply


def test_a_comment_without_a_sha_cannot_be_checked_again(github: GitHub, at_gate: Gate, checkout: str) -> None:
    code, outputs = at_gate.on(comment(github, checkout), "recheck")
    assert (code, outputs["ok"]) == (1, "false")


def test_a_second_look_is_refused_while_github_is_unwell(github: GitHub, at_gate: Gate, checkout: str) -> None:
    github.fail(faults.server_error(), "GET", "*", times=None)
    code, outputs = at_gate.on(comment(github, checkout), sha=checkout)
    assert (code, outputs["ok"]) == (4, "false")


def test_a_dispatch_for_a_pull_request_is_held_to_its_head(github: GitHub, at_gate: Gate, checkout: str) -> None:
    event = events.workflow_dispatch(github)
    code, outputs = at_gate.on(event, sha=checkout, pr_number="7")
    assert (code, outputs["pr-number"], outputs["sha"]) == (0, "7", checkout)
    github.repository.push(github.pull)
    assert at_gate.on(event, sha=checkout, pr_number="7")[0] == 1


@pytest.mark.parametrize(
    ("inputs", "line"), [({"sha": "main"}, "sha:"), ({"token": ""}, "token:"), ({"pr_number": "x"}, "pr-number:")]
)
def test_wrong_usage_is_one_line(
    github: GitHub, at_gate: Gate, capsys: pytest.CaptureFixture[str], inputs: dict[str, str], line: str
) -> None:
    event = events.push(github, github.pull.head_sha)
    if "token" in inputs:
        github.token.text = ""
    assert at_gate.on(event, **inputs)[0] == 2
    assert capsys.readouterr().out.startswith(f"::error::{line}")
