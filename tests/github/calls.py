"""A request as the operations see it, and the ways to answer it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .rendering import Rendering
from .state import ROLES, Comment, Commit, Issue, Pull, Repository, State, Token

__all__ = ["ENDPOINTS", "Answer", "Call", "Refusal", "endpoint", "invalid", "may_see", "newest"]

AnyIssue = TypeVar("AnyIssue", bound=Issue)


@dataclass
class Answer:
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


class Refusal(Exception):  # noqa: N818
    """GitHub says no."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.answer = Answer(
            status, {"message": message, "documentation_url": "https://docs.github.com/rest", **more}
        )
        self.answer.body["status"] = str(status)


def invalid(resource: str, name: str, code: str, message: str) -> Refusal:
    error = {"resource": resource, "field": name, "code": code, "message": message}
    return Refusal(422, "Validation Failed", errors=[error])


@dataclass
class Call:
    """One request, understood."""

    world: State
    token: Token | None
    """None: nobody in particular."""
    repo: Repository | None
    path: dict[str, str]
    query: dict[str, str]
    body: dict[str, Any]
    accept: str
    show: Rendering
    body_limit: int

    @property
    def repository(self) -> Repository:
        if self.repo is None:
            raise Refusal(404, "Not Found")
        return self.repo

    @property
    def caller(self) -> Token:
        if self.token is None:
            raise Refusal(401, "Requires authentication")
        return self.token

    @property
    def role(self) -> str:
        """What a person may do here: `admin`, `write`, `read` or `none`."""
        return ROLES[self.repository.role(self.caller.user.login)]

    def may(self, level: str, permission: str) -> None:
        """Refuse an installation that was not granted `permission`. Persons have roles instead."""
        repository, token = self.repository, self.token
        if level == "read" and (not repository.private or token is None):
            return
        granted = self.caller.permissions
        if granted is None:
            return
        enough = ("write", "admin") if level == "write" else ("read", "write", "admin")
        if repository.full_name not in self.caller.repositories or granted.get(permission) not in enough:
            raise Refusal(403, "Resource not accessible by integration")

    def issue(self, number: str | int) -> Issue:
        issue = self.repository.issues.get(int(number))
        if issue is None:
            raise Refusal(404, "Not Found")
        if issue.deleted:
            raise Refusal(410, "This issue was deleted")
        return issue

    def pull(self) -> Pull:
        pull = self.repository.pulls.get(int(self.path["pull_number"]))
        if pull is None or pull.deleted:
            raise Refusal(404, "Not Found")
        return pull

    def comment(self) -> Comment:
        comment = self.repository.comments.get(int(self.path["comment_id"]))
        if comment is None:
            raise Refusal(404, "Not Found")
        return comment

    def commit(self, ref: str) -> Commit:
        commit = self.repository.find_commit(ref)
        if commit is None:
            raise Refusal(422, f"No commit found for SHA: {ref}")
        return commit

    def talk(self, level: str, issue: Issue) -> None:
        """A comment on a pull request is a matter of `pull_requests`; `issues` alone is not enough."""
        self.may(level, "pull_requests" if isinstance(issue, Pull) else "issues")

    def text(self, resource: str) -> str:
        text: str = self.body["body"]
        if not text.strip():
            raise invalid(resource, "data", "unprocessable", "Body cannot be blank")
        if len(text) > self.body_limit:
            message = f"Body is too long (maximum is {self.body_limit} characters)"
            raise invalid(resource, "data", "unprocessable", message)
        return text


ENDPOINTS: dict[str, Callable[[Call], Answer]] = {}


def endpoint(name: str) -> Callable[[Callable[[Call], Answer]], Callable[[Call], Answer]]:
    def register(function: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
        ENDPOINTS[name] = function
        return function

    return register


def may_see(repository: Repository, token: Token | None) -> bool:
    if not repository.private:
        return True
    if token is None:
        return False
    if token.installation:
        return repository.full_name in token.repositories
    return repository.role(token.user.login) != "none"


def newest(issues: list[AnyIssue], query: dict[str, str]) -> list[AnyIssue]:
    """Sort as `sort` and `direction` say; the newest first where they say nothing."""
    by_update = query.get("sort") == "updated"
    newest_first = query.get("direction", "desc") == "desc"
    return sorted(issues, key=lambda i: i.updated_at if by_update else i.created_at, reverse=newest_first)
