"""The client: pages, conditional requests, and what it does when GitHub says no or nothing."""

import socket
import threading
from collections.abc import Callable

import pytest

from entrypoint.github import Client, GitHubError
from tests.entrypoint.publish.waiting import Clock, client
from tests.github import faults
from tests.github.server import GitHub

PULL = "/repos/org/project/pulls/7"
COMMENTS = "/repos/org/project/issues/7/comments"


def test_a_list_is_read_over_all_its_pages(github: GitHub) -> None:
    for number in range(250):
        github.repository.add_comment(7, f"comment {number}")
    bodies = [comment["body"] for comment in client(github).pages(COMMENTS)]
    assert bodies == [f"comment {number}" for number in range(250)]
    assert len(github.sent("GET", COMMENTS)) == 3


def test_what_did_not_change_is_not_sent_again(github: GitHub) -> None:
    for number in range(150):
        github.repository.add_comment(7, f"comment {number}")
    asked = client(github)
    first = list(asked.pages(COMMENTS))
    assert list(asked.pages(COMMENTS)) == first
    assert [exchange.status for exchange in github.sent("GET", COMMENTS)] == [200, 200, 304, 304]
    github.repository.add_comment(7, "one more")
    assert len(list(asked.pages(COMMENTS))) == 151


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        (faults.secondary_limit(retry_after=17), [17]),
        (faults.too_many(retry_after=3), [3]),
        (faults.secondary_limit(), [60]),
        (faults.too_many(retry_after=None), [60]),
        (faults.server_error(502), [1]),
        (faults.server_error(503, page=True), [1]),
        (faults.drop_before(), [1]),
        (faults.truncated(), [1]),
    ],
    ids=str,
)
def test_a_get_is_asked_again_after_as_long_as_github_asks_for(
    github: GitHub, fault: faults.Fault, waits: list[float]
) -> None:
    clock = Clock()
    github.fail(fault, "GET", PULL)
    assert client(github, clock).get(PULL)["number"] == 7
    assert clock.waited == waits


def test_the_hour_that_is_used_up_is_waited_for_if_it_is_near(github: GitHub) -> None:
    clock = Clock()
    github.fail(faults.primary_limit(reset_in=90), "GET", PULL)
    client(github, clock).get(PULL)
    assert [90 <= wait <= 92 for wait in clock.waited] == [True]


def test_an_hour_is_too_long_to_wait(github: GitHub) -> None:
    clock = Clock()
    github.fail(faults.primary_limit(reset_in=3000), "GET", PULL)
    with pytest.raises(GitHubError, match=r"403 API rate limit exceeded .*not asked again: that would take 300\d s"):
        client(github, clock).get(PULL)
    assert clock.waited == []


def test_a_secondary_limit_that_says_nothing_is_waited_for_twice_as_long_each_time(github: GitHub) -> None:
    clock = Clock()
    github.fail(faults.secondary_limit(), "GET", PULL, times=None)
    with pytest.raises(GitHubError, match="secondary rate limit"):
        client(github, clock, budget=500).get(PULL)
    assert clock.waited == [60, 120, 240]


def test_the_budget_is_that_of_all_requests_together(github: GitHub) -> None:
    clock = Clock()
    github.fail(faults.too_many(retry_after=100), "GET", PULL)
    github.fail(faults.too_many(retry_after=100), "GET", PULL, skip=1)
    asked = client(github, clock)
    asked.get(PULL)
    with pytest.raises(GitHubError, match="that would take 100 s more, and 80 s are left"):
        asked.get(PULL)


def test_a_server_that_stays_unwell_is_left_alone(github: GitHub) -> None:
    clock = Clock()
    github.fail(faults.server_error(500), "GET", PULL, times=None)
    with pytest.raises(GitHubError, match=r"GET /repos/org/project/pulls/7: 500 Server Error \(asked 6 times\)"):
        client(github, clock).get(PULL)
    assert clock.waited == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    "fault",
    [
        faults.not_accessible(),
        faults.gone(),
        faults.too_long(),
        faults.answer(401, "Bad credentials"),
        faults.answer(404, "Not Found"),
    ],
    ids=str,
)
def test_a_refusal_is_final(github: GitHub, fault: faults.Fault) -> None:
    clock = Clock()
    github.fail(fault, "GET", PULL)
    with pytest.raises(GitHubError) as caught:
        client(github, clock).get(PULL)
    assert caught.value.status == fault.status
    assert clock.waited == []


@pytest.mark.parametrize(
    ("fault", "made"),
    [
        (faults.drop_after(), 1),
        (faults.drop_before(), 0),
        (faults.server_error(502).after_all(), 1),
        (faults.server_error(502), 0),
        (faults.truncated(), 1),
    ],
    ids=str,
)
def test_a_post_that_may_have_gone_through_is_not_repeated(github: GitHub, fault: faults.Fault, made: int) -> None:
    github.fail(fault, "POST", COMMENTS)
    with pytest.raises(GitHubError) as caught:
        client(github).post(COMMENTS, {"body": "text"})
    assert caught.value.uncertain
    assert len(github.repository.comments_on(7)) == made


def test_a_post_that_was_refused_for_a_limit_is_asked_again(github: GitHub) -> None:
    clock = Clock()
    github.fail(faults.secondary_limit(retry_after=5), "POST", COMMENTS)
    client(github, clock).post(COMMENTS, {"body": "text"})
    assert [comment.body for comment in github.repository.comments_on(7)] == ["text"]
    assert clock.waited == [5]


def test_a_post_that_does_no_harm_twice_is_repeated(github: GitHub) -> None:
    sha = github.pull.head_sha
    github.fail(faults.drop_after(), "POST", "*/statuses/*")
    body = {"state": "success", "context": "parity"}
    client(github).post(f"/repos/org/project/statuses/{sha}", body, repeatable=True)
    assert len(github.repository.statuses_of(sha)) == 2


def test_two_changes_are_a_second_apart(github: GitHub) -> None:
    clock = Clock()
    asked = client(github, clock)
    asked.post(COMMENTS, {"body": "one"})
    asked.post(COMMENTS, {"body": "two"})
    assert clock.waited == [1.0]


def test_a_server_that_is_not_there_is_told_in_words(github: GitHub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    clock = Clock()
    nobody = Client(f"http://127.0.0.1:{port}", "ghs_secret", clock=clock, sleep=clock.sleep)
    with pytest.raises(GitHubError, match="GET /user: no connection") as caught:
        nobody.get("/user")
    assert not caught.value.uncertain
    # Nothing was sent, so a POST can be asked again as well.
    before = len(clock.waited)
    with pytest.raises(GitHubError, match="no connection"):
        nobody.post("/user", {})
    assert len(clock.waited) > before


def answering(answer: bytes, asked: list[bytes]) -> tuple[socket.socket, Callable[[], None]]:
    """A server that answers everything alike, and remembers what it was asked."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return server, serve


@pytest.mark.parametrize("how", ["redirect", "link"])
def test_nothing_leads_the_token_to_another_host(how: str) -> None:
    asked: list[bytes] = []
    other, _ = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", asked)
    elsewhere = f"http://127.0.0.1:{other.getsockname()[1]}/x"
    answer = {
        "redirect": f"HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n",
        "link": f'HTTP/1.1 200 OK\r\nLink: <{elsewhere}>; rel="next"\r\nContent-Length: 2\r\n\r\n[]',
    }[how]
    server, _ = answering(answer.encode(), [])
    with other, server:
        clock = Clock()
        led = Client(f"http://127.0.0.1:{server.getsockname()[1]}", "ghs_secret", clock=clock, sleep=clock.sleep)
        with pytest.raises(GitHubError, match="another host"):
            list(led.pages("/list"))
    assert asked == []


def test_a_moved_repository_is_followed_with_the_same_request(github: GitHub) -> None:
    moved = faults.answer(307, "Moved", headers={"Location": f"{github.url}{COMMENTS}"})
    github.fail(moved, "POST", "/repos/org/old/issues/7/comments")
    client(github).post("/repos/org/old/issues/7/comments", {"body": "text"})
    assert [comment.body for comment in github.repository.comments_on(7)] == ["text"]


def test_a_netrc_does_not_take_the_tokens_place(
    github: GitHub, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = f"{tmp_path}/netrc"
    with open(netrc, "w") as file:
        file.write("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", netrc)
    client(github).get(PULL)
    assert github.sent("GET", PULL)[0].login == "github-actions[bot]"


@pytest.mark.parametrize("token", ["two\nlines", "sp ace", "ü"])
def test_a_token_that_is_none_is_not_repeated_in_the_error(token: str) -> None:
    with pytest.raises(GitHubError) as caught:
        Client("http://127.0.0.1:1", token)
    assert token not in str(caught.value)


@pytest.mark.parametrize("url", ["", "api.github.test", "file:///etc/passwd", "http://"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(GitHubError, match="is no address"):
        Client(url)


def test_githubs_words_are_one_printable_line(github: GitHub) -> None:
    github.fail(faults.answer(404, "no\n::error::x\x1b[31m \u202e"), "GET", PULL)
    with pytest.raises(GitHubError) as caught:
        client(github).get(PULL)
    assert caught.value.message == "no ::error::x"


def test_an_enterprise_server_has_its_own_prefix() -> None:
    with GitHub(prefix="/api/v3") as github:
        for number in range(101):
            github.repository.add_comment(7, f"comment {number}")
        assert len(list(client(github).pages(COMMENTS))) == 101


def test_whose_the_token_is(github: GitHub) -> None:
    assert client(github).login() is None
    assert client(github, token=github.add_personal_token("maya")).login() == "maya"
