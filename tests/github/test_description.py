"""Both sides are held to GitHub's description."""

from typing import Any

import pytest
from urllib3.util import SKIP_HEADER

from . import faults
from .calls import ENDPOINTS, Answer, Call
from .client import COMMENTS, Client
from .description import description
from .server import GitHub


def test_every_described_operation_is_there() -> None:
    assert {operation.name for operation in description().operations} == set(ENDPOINTS)


@pytest.mark.parametrize(
    ("method", "path", "more", "answered", "problem"),
    [
        ("POST", COMMENTS, {"json": {"text": "x"}}, 422, "'body' is a required property"),
        ("POST", COMMENTS, {"json": {"body": 5}}, 422, "5 is not of type 'string'"),
        ("POST", COMMENTS, {}, 422, "body is missing"),
        ("POST", COMMENTS, {"json": {"body": "x", "event": "y"}}, 201, "has no 'event' in the body"),
        ("POST", COMMENTS, {"data": "{"}, 400, "Problems parsing JSON"),
        ("GET", f"{COMMENTS}?perpage=100", {}, 200, "has no query parameter 'perpage'"),
        ("GET", f"{COMMENTS}?per_page=250", {}, 200, "per_page is 100 at most"),
        ("GET", f"{COMMENTS}?page=two", {}, 422, "'two' is not of type 'integer'"),
        ("GET", "/repos/org/project/comments", {}, 404, "no such operation"),
        ("GET", "/user", {"headers": {"X-GitHub-Api-Version": "2020-01-01"}}, 400, "not a valid version"),
        ("GET", "/user", {"headers": {"User-Agent": SKIP_HEADER}}, 403, "administrative rules"),
    ],
)
def test_mistake_of_the_client_is_told(
    github: GitHub, send: Client, method: str, path: str, more: dict[str, Any], answered: int, problem: str
) -> None:
    assert send(method, path, **more).status_code == answered
    assert problem in "\n".join(github.forgive())


def test_mistake_is_told_whatever_strikes(github: GitHub, send: Client) -> None:
    github.fail(faults.server_error(), times=None)
    assert send("POST", COMMENTS, {"text": "x"}).status_code == 502
    assert "'body' is a required property" in "\n".join(github.forgive())


def test_token_in_an_address_is_told(github: GitHub, send: Client) -> None:
    send("GET", f"{COMMENTS}?access_token={github.token.text}")
    assert any("the token is in the address" in problem for problem in github.forgive())


def test_wrong_answer_of_the_stand_in_is_told(github: GitHub, send: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(call: Call) -> Answer:
        return Answer(200, {**call.show.comment(call.repository, call.comment()), "updated_at": "yesterday"})

    monkeypatch.setitem(ENDPOINTS, "issues/get-comment", wrong)
    monkeypatch.setitem(ENDPOINTS, "repos/get", lambda call: Answer(202, {}))
    monkeypatch.setitem(ENDPOINTS, "issues/get", lambda call: Answer(200, {"nmuber": 7}))
    comment = github.repository.add_comment(7, "x")
    send("GET", f"/repos/org/project/issues/comments/{comment.id}")
    send("GET", "/repos/org/project")
    send("GET", "/repos/org/project/issues/7")
    first, second, third = github.forgive()
    assert "$.updated_at: 'yesterday' is not a 'date-time'" in first
    assert "repos/get never answers 202" in second
    assert "$.nmuber is not described" in third


def test_failure_of_a_hook_is_told(github: GitHub, send: Client) -> None:
    github.before(lambda _: 1 / 0)
    send("GET", COMMENTS)
    assert "ZeroDivisionError" in github.forgive()[0]


def test_end_raises_what_is_left() -> None:
    running = GitHub().__enter__()
    running.fail(faults.gone(), "POST")
    Client(running, running.token)("GET", "/nowhere")
    with pytest.raises(AssertionError, match=r"(?s)GET /nowhere.*no such operation.*never struck: .*410 This issue"):
        running.__exit__(None, None, None)


def test_end_leaves_an_error_of_the_test_alone() -> None:
    running = GitHub().__enter__()
    Client(running, running.token)("GET", "/nowhere")
    running.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
