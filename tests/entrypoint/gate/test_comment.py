"""`/ok to test <sha>` on a pull request: who may say it, of which commit, and what the gate answers."""

import pytest

from entrypoint.gate import parse
from tests.github import events, faults
from tests.github.server import GitHub

from .conftest import Gate, reactions

NO_FORK = "org/project"


def refused(at_gate: Gate, body: str, because: str, *, user: str = "maya", was: str | None = None) -> str:
    """Hold a comment to being refused with one reaction and one reply; return the reply."""
    code, outputs, comment = at_gate.on_comment(body, user=user, was=was)
    assert (code, outputs["ok"], outputs["sha"]) == (1, "false", "")
    assert because in outputs["reason"]
    assert reactions(comment) == ["confused"]
    (reply,) = at_gate.replies()
    assert because in reply
    assert parse(reply) is None, "a reply approves nothing, whoever posts it"
    return reply


def ignored(at_gate: Gate, body: str, because: str, *, user: str = "maya") -> None:
    """Hold a comment to being refused with one reaction, and no more: nobody makes us write who may not write."""
    code, outputs, comment = at_gate.on_comment(body, user=user)
    assert (code, outputs["ok"], outputs["sha"]) == (1, "false", "")
    assert because in outputs["reason"]
    assert reactions(comment) == ["confused"]
    assert at_gate.replies() == []
    assert at_gate.github.repository.statuses == []


def right_command(github: GitHub) -> str:
    return f"`/ok to test {github.pull.head_sha}`"


@pytest.mark.parametrize("role", ["write", "maintain", "admin"])
def test_who_may_write_approves_the_head(github: GitHub, at_gate: Gate, role: str) -> None:
    github.repository.roles["zoe"] = role
    code, outputs, comment = at_gate.on_comment(f"/ok to test {github.pull.head_sha}", user="zoe")
    assert code == 0
    assert (outputs["ok"], outputs["pr-number"], outputs["sha"]) == ("true", "7", github.pull.head_sha)
    assert reactions(comment) == ["rocket"]
    assert at_gate.replies() == []


@pytest.mark.parametrize("role", ["read", "triage", "none"])
def test_who_may_not_write_approves_nothing(github: GitHub, at_gate: Gate, role: str) -> None:
    github.repository.roles["zoe"] = role
    for body in (f"/ok to test {github.pull.head_sha}", f" /ok to test {github.pull.head_sha}", "/ok to test"):
        github.repository.comments.clear()
        ignored(at_gate, body, "may not write to this repository", user="zoe")


def test_the_author_approves_nothing_without_permission(github: GitHub, at_gate: Gate) -> None:
    ignored(at_gate, f"/ok to test {github.pull.head_sha}", "may not write", user=github.pull.user.login)


def test_who_is_unknown_to_the_repository_approves_nothing(github: GitHub, at_gate: Gate) -> None:
    github.fail(faults.answer(404, "Not Found"), "GET", "*/collaborators/*")
    ignored(at_gate, f"/ok to test {github.pull.head_sha}", "may not write")


def test_an_edited_comment_approves_nothing(github: GitHub, at_gate: Gate) -> None:
    reply = refused(at_gate, f"/ok to test {github.pull.head_sha}", "an edited comment", was="Nice work.")
    assert right_command(github) in reply


def test_a_bot_approves_nothing(github: GitHub, at_gate: Gate) -> None:
    github.repository.roles["helper[bot]"] = "admin"
    ignored(at_gate, f"/ok to test {github.pull.head_sha}", "a program's comment", user="helper[bot]")


def test_a_program_in_a_persons_name_approves_nothing(github: GitHub, at_gate: Gate) -> None:
    comment = github.repository.add_comment(7, f"/ok to test {github.pull.head_sha}", user="maya", app="assistant")
    code, outputs = at_gate.on(events.issue_comment(github, comment))
    assert (code, outputs["ok"]) == (1, "false")


def test_another_commit_is_not_run(github: GitHub, at_gate: Gate) -> None:
    reply = refused(at_gate, f"/ok to test {'ab' * 20}", "is not the commit at the head")
    assert right_command(github) in reply
    assert "ab" * 20 not in reply


def test_a_head_that_moved_since_the_comment_is_not_run(github: GitHub, at_gate: Gate) -> None:
    approved = github.pull.head_sha
    github.repository.push(github.pull, force=True)
    reply = refused(at_gate, f"/ok to test {approved}", "is not the commit at the head")
    assert right_command(github) in reply


def test_a_fork_is_approved_by_all_40_digits(github: GitHub, at_gate: Gate) -> None:
    reply = refused(at_gate, f"/ok to test {github.pull.head_sha[:39]}", "all 40 digits")
    assert right_command(github) in reply


def test_a_deleted_fork_is_a_fork(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = None
    refused(at_gate, f"/ok to test {github.pull.head_sha[:12]}", "all 40 digits")


def test_a_deleted_fork_can_be_approved(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = None
    code, outputs, _ = at_gate.on_comment(f"/ok to test {github.pull.head_sha}")
    assert (code, outputs["sha"]) == (0, github.pull.head_sha)


def test_the_parent_of_this_repository_is_a_fork_to_it(github: GitHub, at_gate: Gate) -> None:
    github.repository.fork_of = "upstream/project"
    github.add_repository("upstream/project")
    github.pull.head_repo = "upstream/project"
    refused(at_gate, f"/ok to test {github.pull.head_sha[:12]}", "all 40 digits")


def test_a_branch_is_approved_by_7_digits(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = NO_FORK
    code, outputs, _ = at_gate.on_comment(f"/ok to test {github.pull.head_sha[:7].upper()}")
    assert (code, outputs["sha"]) == (0, github.pull.head_sha)


def test_6_digits_are_too_few(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = NO_FORK
    reply = refused(at_gate, f"/ok to test {github.pull.head_sha[:6]}", "the sha of one commit")
    assert right_command(github) in reply


def test_digits_that_two_commits_begin_with_are_ambiguous(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = NO_FORK
    github.repository.push(github.pull, sha="abcdef0" + "1" * 33)
    github.repository.push(github.pull, sha="abcdef0" + "2" * 33)
    reply = refused(at_gate, "/ok to test abcdef0", "several commits")
    assert right_command(github) in reply


def test_digits_of_an_earlier_commit_are_not_the_head(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = NO_FORK
    earlier = github.pull.head_sha
    github.repository.push(github.pull)
    refused(at_gate, f"/ok to test {earlier[:7]}", "is not the commit at the head")


def test_beyond_what_is_listed_digits_must_be_all_40(github: GitHub, at_gate: Gate) -> None:
    github.pull.head_repo = NO_FORK
    for _ in range(250):
        github.repository.push(github.pull)
    refused(at_gate, f"/ok to test {github.pull.head_sha[:7]}", "all 40 digits")


def test_a_closed_pull_request_is_not_run(github: GitHub, at_gate: Gate) -> None:
    github.pull.state = "closed"
    reply = refused(at_gate, f"/ok to test {github.pull.head_sha}", "is not open")
    assert "/ok" not in reply


@pytest.mark.parametrize(
    "body",
    [
        "Looks good, but the third layer?",
        "> /ok to test {sha}",
        "please /ok to test {sha}",
        "`/ok to test {sha}`",
        "/ok to testify {sha}",
        "/ok-to-test {sha}",
        "No.\u2028/ok to test {sha}",
        "No.\x0b/ok to test {sha}",
        "To approve, write\n\n```\n/ok to test {sha}\n```",
        "```\n/ok to test {sha}\n```",
        "~~~~ text\n~~~\n/ok to test {sha}\n~~~~",
        "<!--\n/ok to test {sha}\n-->",
        "<!-- \n\n/ok to test {sha}",
    ],
)
def test_a_comment_without_a_command_is_ignored(github: GitHub, at_gate: Gate, body: str) -> None:
    code, outputs, comment = at_gate.on_comment(body.format(sha=github.pull.head_sha))
    assert (code, outputs["ok"], outputs["sha"]) == (0, "false", "")
    assert github.log == []
    assert reactions(comment) == []


def test_a_comment_on_an_issue_is_ignored(github: GitHub, at_gate: Gate) -> None:
    issue = github.repository.add_issue("A question")
    comment = github.repository.add_comment(issue.number, f"/ok to test {github.pull.head_sha}", user="maya")
    code, outputs = at_gate.on(events.issue_comment(github, comment))
    assert (code, outputs["ok"], github.log) == (0, "false", [])


@pytest.mark.parametrize(
    "body", ["\r\n \t\r\n/ok to test {sha}\r\nThanks!", "/ok to test {sha} \t", "\n\n/ok to test \t{sha}\n"]
)
def test_the_rest_of_the_comment_is_ignored(github: GitHub, at_gate: Gate, body: str) -> None:
    code, outputs, _ = at_gate.on_comment(body.format(sha=github.pull.head_sha))
    assert (code, outputs["sha"]) == (0, github.pull.head_sha)


@pytest.mark.parametrize("rest", ["", " ", " HEAD", " {sha} please", " {sha}\u00a0", " {sha}0", " {sha} {sha}"])
def test_a_command_is_followed_by_one_sha(github: GitHub, at_gate: Gate, rest: str) -> None:
    reply = refused(at_gate, "/ok to test" + rest.format(sha=github.pull.head_sha), "the sha of one commit")
    assert right_command(github) in reply


def test_one_command_a_comment(github: GitHub, at_gate: Gate) -> None:
    refused(at_gate, f"/ok to test {github.pull.head_sha}\n" * 2, "more than one")


@pytest.mark.parametrize(
    "body",
    [
        "Fine.\n/ok to test {sha}",
        "No, please do not.\n\nOn Monday alice wrote:\n/ok to test {sha}",
        "\u200b\n/ok to test {sha}",
        "```\nx\n```\n/ok to test {sha}",
        "<!-- -->\n/ok to test {sha}",
    ],
)
def test_the_command_is_the_first_line(github: GitHub, at_gate: Gate, body: str) -> None:
    reply = refused(at_gate, body.format(sha=github.pull.head_sha), "has to be the first line")
    assert right_command(github) in reply


@pytest.mark.parametrize(
    "body",
    [
        " /ok to test {sha}",
        "\u00a0/ok to test {sha}",
        "\ufeff/ok to test {sha}",
        "/ok to test\u00a0{sha}",
        "/ok to test: {sha}",
        "/OK to test {sha}",
        "\u2028/ok to test {sha}",
    ],
)
def test_what_is_almost_a_command_gets_a_hint(github: GitHub, at_gate: Gate, body: str) -> None:
    reply = refused(at_gate, body.format(sha=github.pull.head_sha), "begins its line")
    assert right_command(github) in reply


@pytest.mark.parametrize("number", [1, None, "maya"])
def test_a_name_that_is_another_s_now_approves_nothing(github: GitHub, at_gate: Gate, number: object) -> None:
    comment = github.repository.add_comment(7, f"/ok to test {github.pull.head_sha}", user="maya")
    event = events.issue_comment(github, comment)
    event.payload["comment"]["user"]["id"] = number
    code, outputs = at_gate.on(event)
    assert (code, outputs["ok"], outputs["reason"]) == (1, "false", "who commented is not who has that name now")
    assert at_gate.replies() == []


def test_a_commit_that_is_let_through_is_pending(github: GitHub, at_gate: Gate) -> None:
    at_gate.on_comment(f"/ok to test {github.pull.head_sha}")
    (status,) = github.repository.statuses_of(github.pull.head_sha)
    assert (status.state, status.context) == ("pending", "parity / parity.yml")
    assert status.target_url == f"{github.server_url}/org/project/actions/runs/5001"


def test_the_status_has_the_name_of_the_report_s(github: GitHub, at_gate: Gate) -> None:
    event = events.push(github, github.pull.head_sha)
    at_gate.on(event, suite="a.yml")
    at_gate.on(event, suite="a.yml", key="b")
    at_gate.on(event, status="false")
    assert {one.context for one in github.repository.statuses} == {"parity / a.yml", "parity / b"}


def test_a_gate_that_may_set_no_status_says_so(
    github: GitHub, at_gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    github.fail(faults.not_accessible(), "POST", "*/statuses/*", times=None)
    code, outputs, _ = at_gate.on_comment(f"/ok to test {github.pull.head_sha}")
    assert (code, outputs["ok"]) == (0, "true")
    assert "::notice::The commit status could not be set: " in capsys.readouterr().out


def test_nothing_that_a_stranger_wrote_is_repeated(github: GitHub, at_gate: Gate) -> None:
    github.pull.title = github.pull.head_ref = "@org/everyone ](x)"
    ignored(at_gate, "/ok to test @org/everyone ![](//evil)", "may not write", user="alice")
    reply = refused(at_gate, "/ok to test @org/everyone ![](//evil)", "the sha of one commit")
    assert "@" not in reply
    assert "evil" not in reply


@pytest.mark.parametrize("path", ["*/pulls/7", "*/collaborators/*", "*/pulls/7/commits"])
def test_nothing_passes_while_github_is_unwell(github: GitHub, at_gate: Gate, path: str) -> None:
    github.pull.head_repo = NO_FORK
    github.fail(faults.server_error(), "GET", path, times=None)
    code, outputs, comment = at_gate.on_comment(f"/ok to test {github.pull.head_sha[:10]}")
    assert (code, outputs["ok"], outputs["sha"]) == (4, "false", "")
    assert reactions(comment) == ["confused"]
    # Who may write is asked first: before that is known, nothing is written.
    assert ["GitHub did not answer" in one for one in at_gate.replies()] == [True] * ("collaborators" not in path)


def test_a_passing_fault_is_waited_out(github: GitHub, at_gate: Gate) -> None:
    github.fail(faults.server_error(), "GET", "*/pulls/7")
    code, outputs, _ = at_gate.on_comment(f"/ok to test {github.pull.head_sha}")
    assert (code, outputs["ok"]) == (0, "true")
    assert at_gate.waited


def test_an_answer_that_names_no_permission_passes_nobody(github: GitHub, at_gate: Gate) -> None:
    github.fail(faults.Fault("odd", 200, body=b'["admin"]'), "GET", "*/collaborators/*")
    ignored(at_gate, f"/ok to test {github.pull.head_sha}", "may not write")


def test_what_cannot_be_answered_changes_no_decision(
    github: GitHub, at_gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    github.fail(faults.not_accessible(), "POST", "*", times=None)
    code, outputs, _ = at_gate.on_comment(f"/ok to test {github.pull.head_sha}")
    assert (code, outputs["ok"]) == (0, "true")
    code, outputs, _ = at_gate.on_comment("/ok to test")
    assert (code, outputs["ok"]) == (1, "false")
    assert capsys.readouterr().out.count("::notice") == 4
