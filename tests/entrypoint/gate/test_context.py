"""What is read from the environment and the payload of an event."""

import json
from pathlib import Path

import pytest

from entrypoint.event import EventError, find_pull, read
from entrypoint.github import Client
from entrypoint.inputs import Inputs
from tests.github import events
from tests.github.server import GitHub

SHA, OTHER = "ab" * 20, "cd" * 20
ENV = {
    "GITHUB_REPOSITORY": "org/project",
    "GITHUB_SERVER_URL": "https://ghe.test",
    "GITHUB_API_URL": "https://ghe.test/api/v3/",
    "GITHUB_SHA": OTHER,
}


def written(tmp_path: Path, payload: object) -> dict[str, str]:
    path = tmp_path / "event.json"
    path.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    return {**ENV, "GITHUB_EVENT_PATH": str(path)}


def test_a_push(github: GitHub, tmp_path: Path) -> None:
    context = read(events.environ(github, events.push(github, SHA), tmp_path))
    assert (context.event_name, context.repository, context.action) == ("push", "org/project", "")
    assert (context.pr_number, context.head_sha, context.run_id, context.run_attempt) == (7, SHA, 5001, 1)
    assert context.run_url == f"{github.server_url}/org/project/actions/runs/5001"


def test_a_pull_request_is_its_head_and_not_the_merge_commit(github: GitHub, tmp_path: Path) -> None:
    context = read(events.environ(github, events.pull_request(github, github.pull), tmp_path))
    assert (context.action, context.pr_number, context.head_sha) == ("opened", 7, github.pull.head_sha)


def test_a_comment_tells_no_commit(github: GitHub, tmp_path: Path) -> None:
    comment = github.repository.add_comment(7, "Hello")
    env = events.environ(github, events.issue_comment(github, comment), tmp_path)
    assert (read(env).pr_number, read(env).head_sha) == (7, "")
    assert read({**env, "INPUT_SHA": SHA.upper()}).head_sha == SHA


def test_a_comment_on_an_issue_is_on_no_pull_request(github: GitHub, tmp_path: Path) -> None:
    issue = github.repository.add_issue("A question")
    event = events.issue_comment(github, github.repository.add_comment(issue.number, "Hello"))
    assert read(events.environ(github, event, tmp_path)).pr_number is None


@pytest.mark.parametrize(
    ("ref", "number"),
    [
        ("refs/heads/pull-request/12", 12),
        ("refs/pull/12/merge", 12),
        ("refs/pull/12/head", 12),
        ("refs/heads/pull-request/12x", None),
        ("refs/heads/pull-request/0", None),
        ("refs/heads/x/pull-request/12", None),
        ("refs/tags/pull-request/12", None),
        ("refs/heads/pull-request/１２", None),
    ],
)
def test_a_ref_tells_the_number(ref: str, number: int | None) -> None:
    assert read({**ENV, "GITHUB_REF": ref}).pr_number == number


def test_an_enterprise_server_is_where_the_variables_say() -> None:
    context = read(ENV)
    assert (context.api_url, context.server_url) == ("https://ghe.test/api/v3", "https://ghe.test")


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"pull_request": None},
        {"pull_request": {"head": [], "number": "7"}},
        {"issue": {"number": 7}},
        {"after": 1},
    ],
)
def test_a_payload_may_lack_anything(tmp_path: Path, payload: object) -> None:
    context = read({**written(tmp_path, payload), "GITHUB_EVENT_NAME": "push"})
    assert (context.pr_number, context.head_sha) == (None, OTHER)


@pytest.mark.parametrize(
    ("payload", "line"),
    [("{", "is no JSON"), ("[" * 100_000, "is no JSON"), ("[]", "is no JSON object"), (" " * 2**25 + "1", "larger")],
)
def test_a_payload_that_is_none(tmp_path: Path, payload: str, line: str) -> None:
    with pytest.raises(EventError, match=line) as caught:
        read(written(tmp_path, payload))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["GITHUB_REPOSITORY", "GITHUB_API_URL", "GITHUB_SERVER_URL"])
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(EventError, match=f"{name} is not set"):
        read({key: value for key, value in ENV.items() if key != name})


def find(github: GitHub, tmp_path: Path, event: events.Event, **inputs: int) -> int | None:
    context = read(events.environ(github, event, tmp_path))
    return find_pull(context, Client(github.url, github.token.text), Inputs(**inputs))  # type: ignore[arg-type]


def test_the_input_comes_before_the_event(github: GitHub, tmp_path: Path) -> None:
    assert find(github, tmp_path, events.pull_request(github, github.pull), pr_number=9) == 9


def test_the_event_comes_before_the_ref(github: GitHub, tmp_path: Path) -> None:
    event = events.pull_request(github, github.pull)
    event = events.Event(event.name, event.payload, "refs/pull/9/merge", event.sha)
    assert find(github, tmp_path, event) == 7


def test_the_ref_comes_before_the_commit(github: GitHub, tmp_path: Path) -> None:
    assert find(github, tmp_path, events.push(github, github.pull.head_sha, "refs/heads/pull-request/9")) == 9
    assert github.log == []


def test_the_commit_tells_of_which_open_pull_request_it_is_the_head(github: GitHub, tmp_path: Path) -> None:
    head = github.pull.head_sha
    closed = github.repository.add_pull(number=3, head_sha=head)
    closed.state = "closed"
    github.repository.add_pull(number=11, head_sha=head)
    moved = github.repository.add_pull(number=5, head_sha=head)
    github.repository.push(moved)
    assert find(github, tmp_path, events.push(github, head, "refs/heads/some")) == 7


def test_a_commit_may_be_of_no_pull_request(github: GitHub, tmp_path: Path) -> None:
    sha = github.repository.branches["main"]
    assert find(github, tmp_path, events.push(github, sha, "refs/heads/main")) is None


def test_a_scheduled_run_is_about_no_pull_request(github: GitHub, tmp_path: Path) -> None:
    github.repository.add_pull(number=11, head_sha=github.repository.branches["main"])
    assert find(github, tmp_path, events.schedule(github)) is None
    assert github.log == []


def test_a_nightly_workflow_that_somebody_starts_is_about_no_pull_request(github: GitHub, tmp_path: Path) -> None:
    github.repository.add_pull(number=11, head_sha=github.repository.branches["main"])
    event = events.workflow_dispatch(github)
    assert event.ref == "refs/heads/main"
    assert find(github, tmp_path, event) is None
    assert github.log == []
    assert find(github, tmp_path, events.Event(event.name, event.payload, "refs/heads/x", event.sha)) == 11
    assert find(github, tmp_path, event, pr_number=7) == 7
