"""`parity-ok-to-test.yml` where the gate refuses: nothing is run, and one reply says what to do."""

import pytest

from tests.e2e.act import Run
from tests.e2e.conftest import Start
from tests.github.server import GitHub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def legs_ran(run: Run) -> bool:
    return run.artifacts.exists() or "legs: " in run.log.get("run", "")


@pytest.mark.parametrize(
    ("user", "stale", "reason"),
    [
        ("will", True, "that is not the commit at the head of this pull request"),
        ("rita", False, "who commented may not write to this repository"),
    ],
    ids=["another commit", "no permission"],
)
def test_nothing_is_run(start: Start, github: GitHub, user: str, stale: bool, reason: str) -> None:
    project = start("parity-ok-to-test.yml", "quick")
    head = project.push()
    run, comment = project.approve(github.repository.branches["main"] if stale else head, user=user)
    assert run.code != 0
    assert run.jobs.pop("gate") == "failure", run.said
    assert [name for name, result in run.jobs.items() if result != "skipped"] == []
    assert not legs_ran(run)
    assert [content for _, _, content in comment.reactions] == ["confused"]
    (reply,) = project.answers(7)
    assert reply.body.startswith(f"Not run: {reason}")
    assert f"`/ok to test {head}`" in reply.body
    assert github.repository.statuses == []


def test_a_head_that_moves_while_the_runner_is_awaited(start: Start, github: GitHub) -> None:
    project = start("parity-ok-to-test.yml", "quick")
    approved, later = project.push(), project.commit(lambda text: f"{text}# sneaked in\n")
    # The gate reacts last, when it has let the commit through.
    github.after(lambda _: github.repository.push(github.pull, sha=later, force=True), "POST", "*/reactions")
    run, _ = project.approve(approved)
    assert run.code != 0
    assert run.jobs == {"gate": "success", "run": "failure", "publish": "failure"}, run.said
    assert "the head of the pull request moved" in run.log["run"]
    assert not legs_ran(run)
    reply, report = project.answers(7)
    assert reply.body.startswith("Not run: the head of the pull request moved.")
    assert f"`/ok to test {later}`" in reply.body
    assert "parity: error" in report.body
    assert f"Tested commit {approved}. The head of pull request 7 has moved to {later} since" in report.body
    assert project.states(approved) == [("parity / parity.yml", "error")]
    assert project.states(later) == []
