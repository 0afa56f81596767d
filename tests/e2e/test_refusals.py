"""`parity-ok-to-test.yml` where the gate refuses: nothing is run, and what can be done is said."""

import pytest

from tests.e2e.act import Run
from tests.e2e.conftest import Start
from tests.github.server import GitHub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def legs_ran(run: Run) -> bool:
    return run.artifacts.exists() or "legs: " in run.log.get("run", "")


@pytest.mark.parametrize("user", ["will", "rita"], ids=["another commit", "no permission"])
def test_nothing_is_run(start: Start, github: GitHub, user: str) -> None:
    """Who may write is told what to write; whoever may not makes nobody write comments."""
    project = start("parity-ok-to-test.yml", "quick")
    head = project.push()
    run, comment = project.approve(github.repository.branches["main"] if user == "will" else head, user=user)
    assert run.code != 0
    assert run.jobs.pop("gate") == "failure", run.said
    assert [name for name, result in run.jobs.items() if result != "skipped"] == []
    assert not legs_ran(run)
    assert [content for _, _, content in comment.reactions] == ["confused"]
    assert github.repository.statuses == []
    if user == "rita":
        assert "who commented may not write to this repository" in run.log["gate"]
        assert project.answers(7) == []
    else:
        (reply,) = project.answers(7)
        assert reply.body.startswith("Not run: that is not the commit at the head of this pull request")
        assert f"`/ok to test {head}`" in reply.body


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
    assert f"is about commit {approved}, and that one is not known to have been tested" in report.body
    assert [state for _, state in project.states(approved)] == ["error", "pending"]
    assert project.states(later) == []
