"""What goes wrong on demand. Each function returns a `Fault` to give to `GitHub.fail`."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = [
    "Fault",
    "answer",
    "drop_after",
    "drop_before",
    "gone",
    "not_accessible",
    "primary_limit",
    "secondary_limit",
    "server_error",
    "slow",
    "too_long",
    "too_many",
    "truncated",
]

_LIMITS = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"


@dataclass(frozen=True)
class Fault:
    name: str
    status: int | None = None
    """None: the true answer."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    media_type: str = "application/json; charset=utf-8"
    applied: bool = False
    """The request takes effect all the same."""
    dropped: bool = False
    """The connection is closed without an answer."""
    cut: bool = False
    """Half of the body is sent, as though it were all."""
    torn: bool = False
    """Half of the body is sent, and then the connection closes."""
    delay: float = 0.0
    """Seconds before the answer."""
    reset_in: float | None = None
    """Seconds until the rate limit is lifted: none of it is left."""

    def after_all(self) -> "Fault":
        """Return this fault, but the request takes effect before it."""
        return replace(self, name=f"{self.name}, applied", applied=True)


def answer(
    status: int, message: str, *, headers: dict[str, str] | None = None, documentation: str = "", **more: Any
) -> Fault:
    """GitHub answers an error of that status and message."""
    content = {"message": message, "documentation_url": documentation or "https://docs.github.com/rest", **more}
    body = json.dumps({**content, "status": str(status)}).encode()
    return Fault(f"{status} {message[:40]}", status, headers or {}, body)


def primary_limit(reset_in: float = 60) -> Fault:
    """The hour's requests are used up; `x-ratelimit-reset` says when there are new ones."""
    message = "API rate limit exceeded for installation. If you reach out to GitHub Support for help, please say so."
    return replace(answer(403, message, documentation=_LIMITS), name="primary rate limit", reset_in=reset_in)


def secondary_limit(retry_after: int | None = None) -> Fault:
    """Too much at once; GitHub does not always say when to come back."""
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    fault = answer(403, message, headers=headers, documentation=f"{_LIMITS}#about-secondary-rate-limits")
    return replace(fault, name="secondary rate limit")


def too_many(retry_after: int | None = 1) -> Fault:
    """The same limits, as 429."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return answer(429, "You have exceeded a secondary rate limit.", headers=headers, documentation=_LIMITS)


def server_error(status: int = 502, *, page: bool = False) -> Fault:
    """GitHub is unwell; `page`: it says so in HTML."""
    if page:
        return Fault(f"{status} page", status, {}, b"<html><body>Unicorn!</body></html>", "text/html; charset=utf-8")
    return answer(status, "Server Error")


def gone(message: str = "This issue was deleted") -> Fault:
    return answer(410, message)


def not_accessible() -> Fault:
    """The token may not do this, whatever it was granted."""
    return answer(403, "Resource not accessible by integration")


def too_long(limit: int = 65536) -> Fault:
    """The body is too long, however long it is."""
    what = f"Body is too long (maximum is {limit} characters)"
    error = {"resource": "IssueComment", "code": "unprocessable", "field": "data", "message": what}
    return answer(422, "Validation Failed", errors=[error])


def drop_before() -> Fault:
    """The connection is closed before the request took effect."""
    return Fault("dropped before", dropped=True)


def drop_after() -> Fault:
    """The connection is closed after the request took effect: whoever sent it cannot know."""
    return Fault("dropped after", dropped=True, applied=True)


def slow(seconds: float) -> Fault:
    """The answer is right, but late."""
    return Fault(f"slow by {seconds} s", applied=True, delay=seconds)


def truncated(*, torn: bool = False) -> Fault:
    """The request took effect, and half of the answer arrives: as though it were all, or `torn` in the middle."""
    return Fault("torn" if torn else "truncated", applied=True, cut=not torn, torn=torn)
