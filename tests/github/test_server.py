"""What the stand-in keeps, shows and refuses."""

import pytest

from .client import COMMENTS, Client
from .server import GitHub


def test_comment_is_created_changed_and_deleted(github: GitHub, send: Client) -> None:
    made = send("POST", COMMENTS, {"body": "one"})
    assert made.status_code == 201
    assert made.json()["user"] == made.json()["user"] | {"login": "github-actions[bot]", "type": "Bot"}
    assert made.json()["performed_via_github_app"]["slug"] == "github-actions"
    own = f"/repos/org/project/issues/comments/{made.json()['id']}"
    assert made.headers["Location"] == github.url + own
    changed = send("PATCH", own, {"body": "two"}).json()
    assert changed["body"] == "two"
    assert changed["created_at"] < changed["updated_at"]
    assert send("GET", own).json() == changed
    assert [comment.body for comment in github.repository.comments_on(7)] == ["two"]
    assert send("DELETE", own).status_code == 204
    assert send("GET", own).status_code == 404
    assert github.repository.comments_on(7) == []


def test_pages_are_linked_by_the_repository_s_id(github: GitHub, send: Client) -> None:
    for number in range(250):
        github.repository.add_comment(7, f"comment {number}")
    assert len(send("GET", COMMENTS).json()) == 30
    found = []
    page = send("GET", f"{COMMENTS}?per_page=100")
    assert set(page.links) == {"next", "last"}
    assert page.links["last"]["url"].endswith("per_page=100&page=3")
    while True:
        found += [comment["body"] for comment in page.json()]
        if "next" not in page.links:
            break
        assert f"/repositories/{github.repository.id}/" in page.links["next"]["url"]
        page = send("GET", page.links["next"]["url"])
    assert set(page.links) == {"prev", "first"}
    assert found == [f"comment {number}" for number in range(250)]
    # In the log a page is found by the same path, whichever way it was asked for.
    assert [exchange.query.get("page") for exchange in github.sent("GET", COMMENTS)] == [None, None, "2", "3"]


def test_unchanged_answer_is_304(github: GitHub, send: Client) -> None:
    first = send("GET", COMMENTS)
    left = first.headers["X-RateLimit-Remaining"]
    again = send("GET", COMMENTS, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["X-RateLimit-Remaining"] == left
    github.repository.add_comment(7, "new")
    assert send("GET", COMMENTS, headers={"If-None-Match": first.headers["ETag"]}).status_code == 200


def test_body_is_too_long_by_characters(github: GitHub, send: Client) -> None:
    assert send("POST", COMMENTS, {"body": "€" * 65536}).status_code == 201
    refused = send("POST", COMMENTS, {"body": "x" * 65537})
    assert refused.status_code == 422
    assert refused.json()["errors"][0] == {
        "resource": "IssueComment",
        "code": "unprocessable",
        "field": "data",
        "message": "Body is too long (maximum is 65536 characters)",
    }
    assert len(github.repository.comments) == 1


def test_pull_tells_its_head(github: GitHub, send: Client) -> None:
    path = "/repos/org/project/pulls/7"
    pull = send("GET", path).json()
    assert pull["head"]["sha"] == github.pull.head_sha
    assert pull["head"]["repo"]["full_name"] == "alice/project"
    assert pull["base"]["repo"]["full_name"] == "org/project"
    old = github.pull.head_sha
    head = github.repository.push(github.pull)
    assert send("GET", path).json()["head"]["sha"] == head
    assert [commit["sha"] for commit in send("GET", f"{path}/commits").json()] == [old, head]
    github.pull.head_repo = None
    assert send("GET", path).json()["head"]["repo"] is None
    assert [pull["number"] for pull in send("GET", f"/repos/org/project/commits/{old}/pulls").json()] == [7]
    github.repository.push(github.pull, force=True)
    assert send("GET", f"/repos/org/project/commits/{old}/pulls").json() == []
    github.pull.state = "closed"
    assert send("GET", "/repos/org/project/pulls").json() == []
    assert len(send("GET", "/repos/org/project/pulls?state=all&head=alice:change").json()) == 1


def test_short_sha_is_that_of_one_commit_only(github: GitHub, send: Client) -> None:
    for sha in ("abcd1" + "0" * 35, "abcd2" + "0" * 35):
        github.repository.add_commit(sha=sha)
    path = "/repos/org/project/commits"
    assert send("GET", f"{path}/ABCD1").json()["sha"] == "abcd1" + "0" * 35
    for ref in ("abcd", "abc", "ef01234"):
        refused = send("GET", f"{path}/{ref}")
        assert (refused.status_code, refused.json()["message"]) == (422, f"No commit found for SHA: {ref}")
    assert send("GET", f"{path}/heads/main").json()["sha"] == github.repository.branches["main"]
    only = send("GET", f"{path}/main", headers={"Accept": "application/vnd.github.sha"})
    assert only.text == github.repository.branches["main"]


def test_status_is_that_of_each_context_s_newest(github: GitHub, send: Client) -> None:
    sha = github.pull.head_sha
    path = f"/repos/org/project/statuses/{sha}"
    combined = f"/repos/org/project/commits/{sha}/status"
    assert send("GET", combined).json()["state"] == "pending"
    for context, state in (("parity / a", "pending"), ("parity / b", "success"), ("parity / a", "success")):
        assert send("POST", path, {"state": state, "context": context}).status_code == 201
    shown = send("GET", combined).json()
    assert (shown["state"], shown["total_count"]) == ("success", 2)
    send("POST", path, {"state": "error", "context": "parity / b", "description": "x" * 140})
    assert send("GET", combined).json()["state"] == "failure"
    assert [status["state"] for status in send("GET", f"{combined}es").json()][:2] == ["error", "success"]
    for body in ({"description": "x" * 141}, {"target_url": "file:///etc/passwd"}):
        assert send("POST", path, {"state": "success", **body}).status_code == 422
    assert send("POST", path[:-30], {"state": "success"}).status_code == 422
    assert len(github.repository.statuses_of(sha)) == 4


def test_issue_is_opened_found_and_closed(github: GitHub, send: Client) -> None:
    made = send("POST", "/repos/org/project/issues", {"title": "Nightly", "labels": ["nightly"], "body": "x"}).json()
    found = send("GET", "/repos/org/project/issues?labels=nightly&state=open").json()
    assert [issue["number"] for issue in found] == [made["number"]]
    # Pull requests are issues, too.
    assert [("pull_request" in issue) for issue in send("GET", "/repos/org/project/issues").json()] == [False, True]
    path = f"/repos/org/project/issues/{made['number']}"
    closed = send("PATCH", path, {"state": "closed", "state_reason": "not_planned"}).json()
    assert closed["state_reason"] == "not_planned"
    assert closed["closed_at"] is not None
    assert send("GET", "/repos/org/project/issues?labels=nightly").json() == []
    github.repository.issues[made["number"]].deleted = True
    assert send("GET", path).status_code == 410
    github.repository.has_issues = False
    assert send("POST", "/repos/org/project/issues", {"title": "x"}).status_code == 410
    assert send("POST", COMMENTS, {"body": "x"}).status_code == 201


def test_reaction_is_there_once(github: GitHub, send: Client) -> None:
    comment = github.repository.add_comment(7, "/ok to test", user="maya")
    path = f"/repos/org/project/issues/comments/{comment.id}/reactions"
    assert [send("POST", path, {"content": "eyes"}).status_code for _ in range(2)] == [201, 200]
    assert [reaction["content"] for reaction in send("GET", path).json()] == ["eyes"]


def test_minimized_comment_says_so(github: GitHub, send: Client) -> None:
    github.repository.add_comment(7, "old", minimized="outdated")
    github.repository.add_comment(7, "new")
    shown = [comment["minimized"] for comment in send("GET", COMMENTS).json()]
    assert shown == [{"reason": "outdated"}, None]


@pytest.mark.parametrize(
    ("role", "permission"),
    [("admin", "admin"), ("maintain", "write"), ("write", "write"), ("triage", "read"), ("read", "read")],
)
def test_permission_is_coarser_than_the_role(github: GitHub, send: Client, role: str, permission: str) -> None:
    github.repository.roles["rita"] = role
    shown = send("GET", "/repos/org/project/collaborators/rita/permission").json()
    assert (shown["permission"], shown["role_name"], shown["user"]["login"]) == (permission, role, "rita")


def test_permission_of_others(github: GitHub, send: Client) -> None:
    path = "/repos/org/project/collaborators/{}/permission"
    assert send("GET", path.format("alice")).json()["permission"] == "read"
    for login in ("nobody", "github-actions[bot]"):
        assert send("GET", path.format(login)).status_code == 404
    github.repository.private = True
    assert send("GET", path.format("alice")).json()["permission"] == "none"
    github.repository.private = False
    reader = Client(github, github.add_personal_token("rita"))
    refused = reader("GET", path.format("maya"))
    assert refused.json()["message"] == "Must have push access to view collaborator permission."


def test_who_am_i(github: GitHub, send: Client) -> None:
    assert send("GET", "/user").json()["message"] == "Resource not accessible by integration"
    assert Client(github, github.add_personal_token("will"))("GET", "/user").json()["login"] == "will"
    assert Client(github, None)("GET", "/user").status_code == 401
    assert Client(github, "ghs_guessed")("GET", "/user").json()["message"] == "Bad credentials"


@pytest.mark.parametrize(
    ("granted", "comment", "status", "issue"),
    [
        ({"pull_requests": "write"}, 201, 403, 403),
        # GitHub's documentation says that this is enough for a comment on a pull request; it is not.
        ({"issues": "write"}, 403, 403, 201),
        ({"statuses": "write", "pull_requests": "read"}, 403, 201, 403),
        ({}, 403, 403, 403),
    ],
)
def test_installation_may_do_what_it_was_granted(
    github: GitHub, granted: dict[str, str], comment: int, status: int, issue: int
) -> None:
    token = github.add_installation_token("parity[bot]", "org/project", permissions=granted)
    send = Client(github, token)
    answers = [
        send("POST", COMMENTS, {"body": "x"}),
        send("POST", f"/repos/org/project/statuses/{github.pull.head_sha}", {"state": "success"}),
        send("POST", "/repos/org/project/issues", {"title": "x"}),
    ]
    assert [answer.status_code for answer in answers] == [comment, status, issue]
    refused = [answer.json()["message"] for answer in answers if answer.status_code == 403]
    assert set(refused) <= {"Resource not accessible by integration"}
    assert send("GET", COMMENTS).status_code == 200


def test_person_may_do_what_the_role_allows(github: GitHub) -> None:
    path = f"/repos/org/project/issues/comments/{github.repository.add_comment(7, 'x', user='maya').id}"
    for login, allowed in (("rita", False), ("will", True)):
        send = Client(github, github.add_personal_token(login))
        assert send("POST", COMMENTS, {"body": "x"}).status_code == 201
        assert send("PATCH", path, {"body": "y"}).status_code == (200 if allowed else 403)
        status = send("POST", f"/repos/org/project/statuses/{github.pull.head_sha}", {"state": "success"})
        assert status.status_code == (201 if allowed else 404)


def test_private_repository_is_hidden(github: GitHub, send: Client) -> None:
    github.repository.private = True
    assert send("GET", COMMENTS).status_code == 200
    stranger = github.add_installation_token("parity[bot]", "org/other")
    for token in (github.add_personal_token("alice"), stranger, None):
        assert Client(github, token)("GET", COMMENTS).status_code == 404
    blind = github.add_installation_token("blind[bot]", "org/project", permissions={"issues": "read"})
    assert Client(github, blind)("GET", COMMENTS).status_code == 403


def test_log_has_no_secret(github: GitHub, send: Client) -> None:
    send("POST", f"{COMMENTS}", {"body": "x"})
    exchange = github.log[0]
    assert (exchange.method, exchange.path, exchange.body) == ("POST", COMMENTS, {"body": "x"})
    assert (exchange.operation, exchange.status, exchange.login) == (
        "issues/create-comment",
        201,
        "github-actions[bot]",
    )
    assert exchange.headers["authorization"] == "Bearer of github-actions[bot]"
    assert github.token.text not in repr(github.log)
    assert str(exchange) == f"POST {COMMENTS} → 201"


def test_enterprise_server_has_a_prefix() -> None:
    with GitHub(prefix="/api/v3") as github:
        send = Client(github, github.token)
        github.repository.add_comment(7, "one")
        github.repository.add_comment(7, "two")
        page = send("GET", f"{COMMENTS}?per_page=1")
        assert page.links["next"]["url"].startswith(f"{github.server_url}/api/v3/repositories/")
        assert send("GET", page.links["next"]["url"]).json()[0]["body"] == "two"
