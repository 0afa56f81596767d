"""One comment, whoever publishes at the same time, and whatever GitHub does."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from entrypoint.body import marker, parse, render
from entrypoint.comment import Posted, post
from entrypoint.github import Client
from entrypoint.runs import Links, Run
from parity.report.sections import Chapter
from tests.entrypoint.publish.waiting import Clock, client
from tests.github import faults
from tests.github.exchanges import Exchange
from tests.github.server import GitHub
from tests.github.state import Comment

KEY = "CI / parity.yml"
COMMENTS = "/repos/org/project/issues/7/comments"
ONE = "/repos/org/project/issues/comments/*"


def run(github: GitHub, number: int = 100, **more: Any) -> Run:
    given = {"sha": github.pull.head_sha, "verdict": "pass", "run": number, "attempt": 1, "step": 3}
    return Run.model_validate({**given, "time": f"2026-01-01T00:{number % 60:02}:00Z", **more})


def text(links: Links, word: str, runs: Sequence[Run]) -> str:
    return render(KEY, runs, [Chapter("", f"# parity: {runs[0].verdict}\n", (f"\n{word} {runs[0].run}\n",))], links)


def publish(github: GitHub, one: Run, asked: Client | None = None, word: str = "run", **more: Any) -> Posted:
    links = Links(github.server_url, "org/project")
    given: dict[str, Any] = {"key": KEY, "head": github.pull.head_sha, "body": partial(text, links, word), **more}
    return post(asked or client(github), "org/project", 7, run=one, **given)


def ours(github: GitHub) -> list[Comment]:
    return [one for one in github.repository.comments_on(7) if one.user.login == "github-actions[bot]"]


def shown(github: GitHub) -> list[int]:
    """The runs that the one comment knows."""
    (comment,) = ours(github)
    return [one.run for one in parse(comment.body)]


def test_the_first_run_makes_the_comment_and_later_ones_change_it(github: GitHub) -> None:
    first = publish(github, run(github, 1))
    assert first == Posted(f"{github.server_url}/org/project/pull/7#issuecomment-{ours(github)[0].id}")
    for number in range(2, 8):
        assert publish(github, run(github, number)).url == first.url
    assert shown(github) == [7, 6, 5, 4, 3]
    assert "run 7" in ours(github)[0].body
    assert len(github.sent("POST", COMMENTS)) == 1


def test_it_is_found_among_hundreds(github: GitHub) -> None:
    for number in range(130):
        github.repository.add_comment(7, f"comment {number}")
    publish(github, run(github, 1))
    for number in range(130):
        github.repository.add_comment(7, f"comment {number}")
    publish(github, run(github, 2))
    assert shown(github) == [2, 1]


@pytest.mark.parametrize("body", [f"{marker(KEY)}\nforged", f"> {marker(KEY)}"])
def test_another_persons_comment_with_our_marker_is_left_alone(github: GitHub, body: str) -> None:
    forged = github.repository.add_comment(7, body, user="alice")
    publish(github, run(github))
    assert forged.body == body
    assert shown(github) == [100]


def test_our_own_comment_that_quotes_the_marker_is_not_it(github: GitHub) -> None:
    other = github.repository.add_comment(7, f"text\n{marker(KEY)}", user="github-actions[bot]")
    publish(github, run(github))
    assert other.body == f"text\n{marker(KEY)}"


def test_each_key_has_its_comment(github: GitHub) -> None:
    links = Links(github.server_url, "org/project")
    for key in ("one", "one two", "one -- two"):
        body = partial(render, key, report=[Chapter("", f"# {key}\n", ())], links=links)
        post(client(github), "org/project", 7, key=key, run=run(github), head=None, body=body)
    assert len(ours(github)) == 3
    assert all("--" not in one.body.split("\n")[0][4:-3] for one in ours(github))


def test_doubles_are_removed_and_what_they_knew_is_kept(github: GitHub) -> None:
    links = Links(github.server_url, "org/project")
    for number in (5, 7, 6):
        body = text(links, "run", [run(github, number)])
        github.repository.add_comment(7, body, user="github-actions[bot]")
    first = ours(github)[0].id
    publish(github, run(github, 8))
    assert shown(github) == [8, 7, 6, 5]
    assert ours(github)[0].id == first


def test_a_double_that_knows_a_newer_run_is_not_removed_by_an_older_one(github: GitHub) -> None:
    links = Links(github.server_url, "org/project")
    for number in (5, 9):
        github.repository.add_comment(7, text(links, "run", [run(github, number)]), user="github-actions[bot]")
    assert "run 9 already" in str(publish(github, run(github, 8)).notice)
    assert len(ours(github)) == 2


def test_the_same_again_is_no_edit(github: GitHub) -> None:
    publish(github, run(github))
    again = publish(github, run(github, time="2026-02-02T00:00:00Z"))
    assert again.url
    assert github.sent("PATCH") == []
    # GitHub may keep line ends as browsers write them.
    github.repository.edit_comment(ours(github)[0], ours(github)[0].body.replace("\n", "\r\n"))
    publish(github, run(github))
    assert github.sent("PATCH") == []


def test_an_older_run_does_not_overwrite_a_newer_one(github: GitHub) -> None:
    publish(github, run(github, 200))
    publish(github, run(github, 200, attempt=2))
    for late in (run(github, 199), run(github, 200, attempt=1)):
        assert (
            publish(github, late).notice == "The comment shows run 200 already, which is newer; it is left as it is."
        )
    assert [one.attempt for one in parse(ours(github)[0].body)] == [2, 1]


def test_a_run_of_an_older_head_does_not_overwrite_that_of_a_newer_one(github: GitHub) -> None:
    old = run(github, 300)
    github.repository.push(github.pull)
    publish(github, run(github, 200))
    assert "newer" in str(publish(github, old).notice)
    assert shown(github) == [200]


def test_a_run_of_the_newest_head_overwrites_a_later_run_of_an_older_one(github: GitHub) -> None:
    publish(github, run(github, 300))
    github.repository.push(github.pull)
    publish(github, run(github, 200))
    assert shown(github) == [200, 300]


def test_without_the_head_the_later_run_counts(github: GitHub) -> None:
    publish(github, run(github, 300), head=None)
    assert "newer" in str(publish(github, run(github, 200), head=None).notice)


@pytest.mark.parametrize(
    ("mode", "verdicts", "seen"),
    [
        ("always", ["pass", "pass", "fail"], [3, 2, 1]),
        ("on-change", ["pass", "pass", "fail", "fail"], [3, 1]),
        ("on-failure", ["pass", "pass"], None),
        ("on-failure", ["pass", "inconclusive", "pass"], [3, 2]),
        ("off", ["fail"], None),
    ],
)
def test_modes(github: GitHub, mode: str, verdicts: list[str], seen: list[int] | None) -> None:
    for number, verdict in enumerate(verdicts, 1):
        publish(github, run(github, number, verdict=verdict), mode=mode)
    assert (shown(github) if ours(github) else None) == seen


@pytest.mark.parametrize(
    "fault",
    [
        faults.answer(401, "Bad credentials"),
        faults.not_accessible(),
        faults.answer(404, "Not Found"),
        faults.gone(),
        faults.too_long(),
        faults.server_error(500),
        faults.secondary_limit(),
        faults.primary_limit(3000),
        faults.drop_before(),
    ],
    ids=str,
)
@pytest.mark.parametrize(("method", "path"), [("GET", COMMENTS), ("POST", COMMENTS), ("PATCH", ONE)])
def test_a_refusal_is_a_notice(github: GitHub, fault: faults.Fault, method: str, path: str) -> None:
    if method == "PATCH":
        publish(github, run(github, 1))
    github.fail(fault, method, path, times=None)
    posted = publish(github, run(github, 2))
    assert posted.notice is not None
    assert posted.notice.startswith(f"The comment could not be written: {method} ")
    assert "ghs_" not in posted.notice
    assert len(ours(github)) == (1 if method == "PATCH" else 0)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "fault",
    [faults.drop_after(), faults.server_error(502).after_all(), faults.truncated(), faults.drop_before()],
    ids=str,
)
def test_a_comment_whose_answer_was_lost_is_not_written_twice(
    github: GitHub, fault: faults.Fault, times: int
) -> None:
    github.fail(fault, "POST", COMMENTS)
    if times == 2 and not fault.applied:
        github.fail(fault, "POST", COMMENTS)
    assert publish(github, run(github)).notice is None
    assert shown(github) == [100]
    assert len(github.sent("POST", COMMENTS)) == (1 if fault.applied else times + 1)


def test_a_change_whose_answer_was_lost(github: GitHub) -> None:
    publish(github, run(github, 1))
    github.fail(faults.drop_after(), "PATCH", ONE)
    assert publish(github, run(github, 2)).notice is None
    assert shown(github) == [2, 1]


def test_a_limit_is_waited_for_and_what_came_meanwhile_is_respected(github: GitHub) -> None:
    publish(github, run(github, 1))
    github.fail(faults.secondary_limit(retry_after=30), "PATCH", ONE)

    class Meanwhile(Clock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if seconds == 30:
                publish(github, run(github, 3))

    clock = Meanwhile()
    publish(github, run(github, 2), client(github, clock))
    assert 30 in clock.waited
    assert shown(github) == [3, 1]


def test_a_comment_that_was_removed_is_written_anew(github: GitHub) -> None:
    publish(github, run(github, 1))
    removed = ours(github)[0]
    github.before(lambda _: github.repository.comments.pop(removed.id), "PATCH", ONE)
    assert publish(github, run(github, 2)).notice is None
    assert shown(github) == [2]


def test_a_change_between_two_looks_is_not_overwritten(github: GitHub) -> None:
    """A newer run wrote while the older was still reading pages."""
    publish(github, run(github, 1))
    newer = text(Links(github.server_url, "org/project"), "run", [run(github, 9), run(github, 1)])
    github.after(lambda _: github.repository.edit_comment(ours(github)[0], newer), "GET", COMMENTS)
    publish(github, run(github, 2))
    assert shown(github) == [9, 1]


def test_what_was_overwritten_by_an_older_run_is_written_again(github: GitHub) -> None:
    older = text(Links(github.server_url, "org/project"), "run", [run(github, 1)])
    github.after(lambda _: github.repository.edit_comment(ours(github)[0], older), "POST", COMMENTS)
    publish(github, run(github, 2))
    assert shown(github) == [2, 1]


def test_who_we_are(github: GitHub) -> None:
    person = github.add_personal_token("maya")
    publish(github, run(github), client(github, token=person))
    publish(github, run(github, 101), client(github, token=person))
    assert [one.user.login for one in github.repository.comments_on(7)] == ["maya"]


def test_an_app_finds_its_comment_by_what_it_wrote(github: GitHub) -> None:
    """Nobody can ask whose an app's token is; without the input there is a second comment for a moment."""
    app = github.add_installation_token("parity-app[bot]", "org/project")
    for number in (1, 2):
        publish(github, run(github, number), client(github, token=app))
    publish(github, run(github, 3), client(github, token=app), author="parity-app[bot]")
    (comment,) = github.repository.comments_on(7)
    assert [one.run for one in parse(comment.body)] == [3, 2, 1]
    assert len(github.sent("POST", COMMENTS)) == 2


def at_once(*publishers: Callable[[], object]) -> None:
    start = threading.Barrier(len(publishers))
    failures: list[BaseException] = []

    def begin(publisher: Callable[[], object]) -> None:
        start.wait()
        try:
            publisher()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(one,)) for one in publishers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


def quick(github: GitHub, times: float = 50) -> Client:
    """A client that really waits, but so many times shorter."""
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        time.sleep(seconds / times)

    return Client(github.url, github.token.text, clock=clock, sleep=sleep)


def test_two_publishers_at_the_same_moment_make_one_comment_fifty_times() -> None:
    for _ in range(50):
        with GitHub() as github:
            at_once(*(partial(publish, github, run(github, number), quick(github)) for number in (2, 3)))
            assert shown(github)[0] == 3


def test_two_publishers_at_the_same_moment_change_one_comment_fifty_times() -> None:
    for _ in range(50):
        with GitHub() as github:
            publish(github, run(github, 1))
            # Its second look has to come after the other's change was on its way: shorter waits would not be like
            # GitHub on a busy machine.
            at_once(*(partial(publish, github, run(github, number), quick(github, 10)) for number in (2, 3)))
            assert shown(github)[0] == 3
            assert shown(github)[-1] == 1


def test_five_publishers_at_the_same_moment_leave_the_newest(github: GitHub) -> None:
    at_once(*(partial(publish, github, run(github, number), quick(github)) for number in range(1, 6)))
    assert shown(github)[0] == 5


def test_both_look_before_either_writes(github: GitHub) -> None:
    """The worst case: both find no comment and make one each."""
    both = threading.Barrier(2)

    def meet(_: Exchange) -> None:
        both.wait(25)  # less than the client waits

    github.after(meet, "GET", COMMENTS, times=2)
    at_once(*(partial(publish, github, run(github, number), quick(github)) for number in (2, 3)))
    assert len(github.sent("POST", COMMENTS)) == 2
    assert shown(github)[0] == 3


def test_two_jobs_of_one_run_with_the_same_key_come_to_an_end(github: GitHub) -> None:
    at_once(*(partial(publish, github, run(github), quick(github), word=word) for word in ("one", "two")))
    assert shown(github) == [100]
    assert len(github.sent("PATCH")) <= 2
