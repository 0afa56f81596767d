"""The issue of nightly runs, on the stand-in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from entrypoint import issue
from entrypoint.body import marker, parse, render
from entrypoint.comment import Posted
from entrypoint.github import Client
from entrypoint.publish import main
from entrypoint.runs import Links, Run
from parity.report.sections import Chapter
from parity.result import VerdictName
from tests.github import events, faults
from tests.github.fixtures import github as github
from tests.github.server import GitHub
from tests.github.state import Issue

KEY = "nightly / parity.yml"


def night(github: GitHub, number: int, verdict: VerdictName) -> Posted:
    run = Run(sha="ab" * 20, verdict=verdict, run=number, attempt=1, time="2026-01-01T03:00:00Z")
    client = Client(github.url, github.token.text, sleep=lambda _: None)
    links = Links(github.server_url, "org/project")
    return issue.post(
        client,
        "org/project",
        key=KEY,
        title="parity: parity.yml does not pass",
        run=run,
        body=lambda runs: render(KEY, runs, [Chapter("", "", ("a report\n",))], links),
    )


def issues(github: GitHub) -> list[Issue]:
    numbers = github.repository.issues.keys() - github.repository.pulls.keys()
    return [github.repository.issues[number] for number in sorted(numbers)]


def test_a_night_that_passes_opens_nothing(github: GitHub) -> None:
    assert night(github, 1, "pass") == Posted(None)
    assert issues(github) == []


def test_nights_that_do_not_pass_share_one_issue(github: GitHub) -> None:
    night(github, 1, "fail")
    posted = night(github, 2, "error")
    (made,) = issues(github)
    assert made.title == "parity: parity.yml does not pass"
    assert posted.url is not None
    assert posted.url.endswith(f"/issues/{made.number}")
    assert [(run.run, run.verdict) for run in parse(made.body or "")] == [(2, "error"), (1, "fail")]


def test_a_night_that_passes_again_is_told_and_closes_nothing(github: GitHub) -> None:
    night(github, 1, "fail")
    night(github, 2, "pass")
    (made,) = issues(github)
    assert made.state == "open"
    assert parse(made.body or "")[0].verdict == "pass"


def test_a_closed_issue_stays_closed(github: GitHub) -> None:
    night(github, 1, "fail")
    issues(github)[0].state = "closed"
    night(github, 2, "fail")
    assert [one.state for one in issues(github)] == ["closed", "open"]


@pytest.mark.parametrize("body", [marker(KEY), "Nothing of ours"])
def test_an_issue_of_somebody_else_is_left_alone(github: GitHub, body: str) -> None:
    github.repository.add_issue("parity: parity.yml does not pass", body, user="alice")
    night(github, 1, "fail")
    theirs, _ = issues(github)
    assert theirs.body == body


def test_a_pull_request_is_no_issue(github: GitHub) -> None:
    pull = github.repository.add_pull(user="github-actions[bot]")
    pull.body = marker(KEY)
    night(github, 1, "fail")
    assert pull.body == marker(KEY)
    assert len(issues(github)) == 1


def test_a_run_again_is_the_same_night(github: GitHub) -> None:
    night(github, 1, "fail")
    night(github, 1, "fail")
    assert len(parse(issues(github)[0].body or "")) == 1


def test_where_issues_are_disabled_it_is_a_notice(github: GitHub) -> None:
    github.fail(faults.gone("Issues has been disabled in this repository."), "GET", "*/issues")
    posted = night(github, 1, "fail")
    assert posted.url is None
    assert "disabled" in (posted.notice or "")


@pytest.mark.parametrize("make", [events.schedule, events.workflow_dispatch])
def test_a_nightly_run_without_legs_opens_the_issue(
    github: GitHub, tmp_path: Path, make: Callable[[GitHub], events.Event]
) -> None:
    token = github.add_installation_token("github-actions[bot]", "org/project", permissions={"issues": "write"})
    env = events.environ(github, make(github), tmp_path, token)
    env |= {"INPUT_TOKEN": env.pop("GITHUB_TOKEN"), "INPUT_STATUS": "false", "INPUT_MODE": "publish"}
    env |= {"GITHUB_WORKSPACE": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output")}
    assert main(env) == 4
    (made,) = issues(github)
    assert parse(made.body or "")[0].verdict == "error"
    assert f"/issues/{made.number}" in (tmp_path / "output").read_text()
