"""Payloads are what GitHub sends."""

from pathlib import Path

import pytest

from . import events
from .server import GitHub


def test_events_are_as_github_sends_them(github: GitHub) -> None:
    comment = github.repository.add_comment(7, "/ok to test", user="maya")
    said = events.issue_comment(github, comment).payload
    assert (said["action"], said["comment"]["id"], said["sender"]["login"]) == ("created", comment.id, "maya")
    assert "pull_request" in said["issue"]
    edited = events.issue_comment(github, comment, was="hello").payload
    assert (edited["action"], edited["changes"]) == ("edited", {"body": {"from": "hello"}})
    issue = github.repository.add_issue("A question")
    on_issue = events.issue_comment(github, github.repository.add_comment(issue.number, "x")).payload
    assert "pull_request" not in on_issue["issue"]
    pushed = events.push(github, github.pull.head_sha)
    assert (pushed.ref, pushed.payload["after"]) == ("refs/heads/pull-request/7", github.pull.head_sha)
    opened = events.pull_request(github, github.pull)
    assert opened.sha not in (github.pull.head_sha, github.pull.base_sha)
    github.pull.head_repo = None
    gone = events.pull_request(github, github.pull, "synchronize", before="1" * 40).payload
    assert gone["pull_request"]["head"]["repo"] is None
    github.pull.state, github.pull.closed_at = "closed", github.now()
    assert events.pull_request(github, github.pull, "closed").payload["pull_request"]["merged"] is False
    assert events.workflow_dispatch(github, {"suite": "x"}).payload["inputs"] == {"suite": "x"}
    assert events.schedule(github).payload["schedule"] == "0 3 * * *"


def test_event_that_github_would_not_send_is_refused(github: GitHub) -> None:
    with pytest.raises(AssertionError, match=r"pull_request\$closed is not as GitHub sends it"):
        events.pull_request(github, github.pull, "closed")


def test_environment_is_that_of_a_runner(github: GitHub, tmp_path: Path) -> None:
    env = events.environ(github, events.push(github, github.pull.head_sha), tmp_path)
    assert env["GITHUB_API_URL"] == github.url
    assert env["GITHUB_REF_NAME"] == "pull-request/7"
    assert (tmp_path / "event.json").read_text().startswith("{")
