"""What breaks on demand, and what happens between two requests."""

import threading
import time

import pytest
import requests

from . import faults
from .client import COMMENTS, Client
from .exchanges import Exchange
from .faults import Fault
from .server import GitHub


@pytest.mark.parametrize(
    ("fault", "status", "headers"),
    [
        (faults.secondary_limit(), 403, {}),
        (faults.secondary_limit(retry_after=7), 403, {"Retry-After": "7"}),
        (faults.too_many(retry_after=3), 429, {"Retry-After": "3"}),
        (faults.server_error(500), 500, {}),
        (faults.server_error(502), 502, {}),
        (faults.server_error(503, page=True), 503, {"Content-Type": "text/html; charset=utf-8"}),
        (faults.gone(), 410, {}),
        (faults.not_accessible(), 403, {}),
        (faults.too_long(), 422, {}),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else "",
)
def test_fault_strikes_once_and_changes_nothing(
    github: GitHub, send: Client, fault: Fault, status: int, headers: dict[str, str]
) -> None:
    rule = github.fail(fault, "POST", "*/issues/*/comments")
    assert send("GET", COMMENTS).status_code == 200
    struck = send("POST", COMMENTS, {"body": "x"})
    assert struck.status_code == status
    assert headers.items() <= struck.headers.items()
    assert ("Retry-After" in struck.headers) == ("Retry-After" in headers)
    assert int(struck.headers["X-RateLimit-Remaining"]) > 0
    assert github.repository.comments == {}
    assert send("POST", COMMENTS, {"body": "x"}).status_code == 201
    assert rule.hits == 1
    assert [exchange.fault for exchange in github.log] == [None, fault.name, None]


def test_primary_limit_says_when_it_ends(github: GitHub, send: Client) -> None:
    github.fail(faults.primary_limit(reset_in=30))
    struck = send("GET", COMMENTS)
    assert (struck.status_code, struck.headers["X-RateLimit-Remaining"]) == (403, "0")
    assert 25 < int(struck.headers["X-RateLimit-Reset"]) - time.time() < 32


@pytest.mark.parametrize(
    ("fault", "applied"), [(faults.drop_before(), False), (faults.drop_after(), True)], ids=["before", "after"]
)
def test_connection_is_dropped(github: GitHub, send: Client, fault: Fault, applied: bool) -> None:
    github.fail(fault, "POST")
    with pytest.raises(requests.ConnectionError):
        send("POST", COMMENTS, {"body": "x"})
    assert len(github.repository.comments) == applied
    assert github.log[0].status is None
    assert send("POST", COMMENTS, {"body": "x"}).status_code == 201


def test_server_error_after_all(github: GitHub, send: Client) -> None:
    github.fail(faults.server_error(502).after_all(), "POST")
    assert send("POST", COMMENTS, {"body": "x"}).status_code == 502
    assert len(github.repository.comments) == 1


def test_answer_is_cut(github: GitHub, send: Client) -> None:
    github.fail(faults.truncated(), "POST")
    cut = send("POST", COMMENTS, {"body": "x"})
    assert cut.status_code == 201
    with pytest.raises(requests.exceptions.JSONDecodeError):
        cut.json()
    github.fail(faults.truncated(torn=True), "GET")
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        send("GET", COMMENTS)
    assert len(send("GET", COMMENTS).json()) == 1


def test_answer_is_slow(github: GitHub, send: Client) -> None:
    github.fail(faults.slow(20), "POST")
    with pytest.raises(requests.ReadTimeout):
        send("POST", COMMENTS, {"body": "x"}, timeout=2)
    assert len(github.repository.comments) == 1


def test_fault_skips_and_repeats(github: GitHub, send: Client) -> None:
    github.fail(faults.server_error(), "GET", COMMENTS, times=2, skip=1)
    github.fail(faults.gone(), "GET", "/repos/org/project/pulls/*", times=None)
    assert [send("GET", COMMENTS).status_code for _ in range(5)] == [200, 502, 502, 200, 200]
    assert [send("GET", "/repos/org/project/pulls/7").status_code for _ in range(3)] == [410] * 3


def test_hook_runs_between_two_requests(github: GitHub, send: Client) -> None:
    head = github.pull.head_sha
    github.before(lambda _: github.repository.push(github.pull), "GET", "*/pulls/7", skip=1)
    heads = [send("GET", "/repos/org/project/pulls/7").json()["head"]["sha"] for _ in range(3)]
    assert heads == [head, github.pull.head_sha, github.pull.head_sha]


def test_hook_may_send_a_request_of_its_own(github: GitHub, send: Client) -> None:
    other = Client(github, github.add_installation_token("parity[bot]", "org/project"))

    def publish(exchange: Exchange) -> None:
        assert exchange.body is None
        other("POST", COMMENTS, {"body": "theirs"})

    github.after(publish, "GET", COMMENTS)
    assert send("GET", COMMENTS).json() == []
    send("POST", COMMENTS, {"body": "ours"})
    assert [comment["user"]["login"] for comment in send("GET", COMMENTS).json()] == [
        "parity[bot]",
        "github-actions[bot]",
    ]


def test_two_clients_at_once(github: GitHub) -> None:
    both_have_read = threading.Barrier(2)
    github.after(lambda _: both_have_read.wait(120), "GET", COMMENTS, times=2)

    def publish() -> None:
        send = Client(github, github.token)
        if not send("GET", COMMENTS).json():
            send("POST", COMMENTS, {"body": "mine"})

    threads = [threading.Thread(target=publish) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(github.repository.comments) == 2
