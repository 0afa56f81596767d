"""The other workflows to copy, with legs that are processes of the job unless a test says otherwise."""

import pytest

from tests.e2e.conftest import Start
from tests.github import events
from tests.github.server import GitHub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def wrong(text: str) -> str:
    """What makes the quick project's second leg deviate."""
    return text.replace("GOES_WRONG = 100", "GOES_WRONG = 4")


@pytest.mark.parametrize(
    ("isolation", "said"),
    [
        ("docker", "The legs ran in a container of parity-test, without a token"),
        ("auto", "The legs ran as processes of the job, not isolated"),
    ],
)
def test_a_branch_of_this_repository(
    start: Start, github: GitHub, request: pytest.FixtureRequest, isolation: str, said: str
) -> None:
    if isolation == "docker":
        request.getfixturevalue("image")
    project = start("parity-same-repo.yml", "quick", isolation=isolation)
    head = project.commit()
    pull = github.repository.add_pull(number=8, head_ref="mine", head_sha=head)
    run = project.run(events.pull_request(github, pull))
    assert (run.code, run.jobs) == (0, {"parity": "success"}), run.said
    (report,) = project.answers(8)
    assert "parity: pass" in report.body
    assert f"Tested commit {head}, the head of pull request 8." in report.body
    assert said in report.body
    assert project.states(head) == [("parity / parity.yml", "success")]
    assert "parity: pass" in run.summaries["parity"]
    assert run.artifacts.is_dir()


def test_a_job_for_each_leg(start: Start, github: GitHub) -> None:
    """What each leaves is judged as one run; and a leg that went wrong is found though it ran alone."""
    project = start("parity-matrix.yml", "quick")
    for change, code, verdict in ((lambda text: text, 0, "pass"), (wrong, 1, "fail")):
        head = project.commit(change, file="curve.py")
        pull = github.repository.add_pull(number=8 + code, head_ref=f"mine-{code}", head_sha=head)
        run = project.run(events.pull_request(github, pull), at=head)
        assert bool(run.code) == bool(code), run.said
        assert '{"leg": "tp2", "ranks": 2}' in run.outputs["plan"]["matrix"]
        assert sorted(path.name for path in run.artifacts.iterdir()) == ["parity-out-tp1.zip", "parity-out-tp2.zip"]
        (report,) = project.answers(8 + code)
        assert f"parity: {verdict}" in report.body
        assert f"Tested commit {head}, the head of pull request {8 + code}." in report.body


def test_a_forks_branch_is_left_to_the_gate(start: Start, github: GitHub) -> None:
    project = start("parity-same-repo.yml", "quick")
    project.push()
    run = project.run(events.pull_request(github, github.pull))
    assert "success" not in run.jobs.values(), run.said
    assert run.log == {}
    assert github.sent() == []


def test_a_push_of_copy_pr_bot(start: Start, github: GitHub) -> None:
    project = start("parity-copy-pr-bot.yml", "quick")
    head = project.push(wrong, file="curve.py")
    run = project.run(events.push(github, head), at=head)
    assert run.code != 0
    assert run.jobs == {"run": "success", "publish": "failure"}, run.said
    (report,) = project.answers(7)
    assert "parity: fail" in report.body
    assert f"Tested commit {head}, the head of pull request 7." in report.body
    assert project.states(head) == [("parity / parity.yml", "failure")]


def test_nights(start: Start, github: GitHub) -> None:
    """One issue, from the first night that does not pass on; a night that does leaves it to people to close it."""
    project = start("parity-nightly.yml", "quick")
    before = set(github.repository.issues)
    bad = project.merge(wrong, file="curve.py")
    run = project.run(events.schedule(github))
    assert run.code != 0
    assert run.jobs == {"run": "success", "publish": "failure"}, run.said
    (number,) = set(github.repository.issues) - before
    issue = github.repository.issues[number]
    assert issue.title == "parity: parity.yml does not pass"
    assert "parity: fail" in (issue.body or "")
    good = project.merge(lambda text: text.replace("= 4", "= 100"), file="curve.py")
    run = project.run(events.schedule(github))
    assert (run.code, run.jobs) == (0, {"run": "success", "publish": "success"}), run.said
    assert set(github.repository.issues) - before == {number}
    assert (issue.state, github.repository.comments_on(number)) == ("open", [])
    assert "parity: pass" in (issue.body or "")
    history = [line for line in (issue.body or "").splitlines() if line.startswith("| [`")]
    assert [f"[`{sha[:7]}`]" in line for sha, line in zip((good, bad), history, strict=True)] == [True, True]
    assert github.repository.statuses == []
