"""What happened, where, and to which commit: read from `GITHUB_*` and the event's payload.

Nothing of the payload is trusted: titles, branch names and comments in it are what a stranger wrote, and any part of
it may be missing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrypoint.github import Client
    from entrypoint.inputs import Inputs

__all__ = ["Context", "EventError", "dig", "find_pull", "full_sha", "read"]

# GitHub sends no webhook payload beyond 25 MB.
_PAYLOAD_LIMIT = 32 * 2**20
_NO_COMMIT = "0" * 40


class EventError(Exception):
    """The environment is not that of a job on GitHub: one line that says what is missing."""


@dataclass(frozen=True)
class Context:
    """Where this job runs, and for what.

    Attributes:
        repository: owner and name.
        event_name: of the webhook, such as `push`.
        action: what happened to the event's subject, such as `created`; empty where an event has none.
        pr_number: of the pull request, as far as payload and ref say it; see `find_pull`.
        head_sha: the commit under test. Empty for a comment without the input `sha`: what GitHub calls the commit of
            such an event is the head of the default branch, which nobody asked to test.
        run_id: of the workflow run; 0 outside of one.
        run_attempt: counts re-runs, from 1.
        server_url: of the web pages.
        api_url: of the REST API.
        workflow: its name, or its file's.
        actor: who caused the run; on a re-run not who started that.
        ref: such as `refs/heads/pull-request/7`.
        payload: the whole event. Untrusted.
    """

    repository: str
    event_name: str
    action: str
    pr_number: int | None
    head_sha: str
    run_id: int
    run_attempt: int
    server_url: str
    api_url: str
    workflow: str
    actor: str
    ref: str
    payload: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def by_hand_on_default_branch(self) -> bool:
        """Return whether it is a scheduled workflow, or one like it, that somebody started."""
        branch = dig(self.payload, "repository", "default_branch")
        return self.event_name == "workflow_dispatch" and self.ref == f"refs/heads/{branch}"

    @property
    def run_url(self) -> str:
        """Return the address of this workflow run's page."""
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


def read(env: Mapping[str, str] | None = None) -> Context:
    """Read where this job runs, and for what.

    Raises:
        EventError: a variable is missing or odd, or the payload is no JSON object.
    """
    env = os.environ if env is None else env
    payload = _payload(env.get("GITHUB_EVENT_PATH", ""))
    event_name = env.get("GITHUB_EVENT_NAME", "")
    repository = _needed(env, "GITHUB_REPOSITORY")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", repository):
        raise EventError(f"GITHUB_REPOSITORY: {repository!r} is not owner/name")
    ref = env.get("GITHUB_REF", "")
    return Context(
        repository=repository,
        event_name=event_name,
        action=_text(dig(payload, "action")),
        pr_number=_number_in(payload) or _number_of(ref),
        head_sha=full_sha(env.get("INPUT_SHA", "").strip())
        or _sha_in(payload, event_name, env.get("GITHUB_SHA", "")),
        run_id=_count(env.get("GITHUB_RUN_ID", ""), 0),
        run_attempt=_count(env.get("GITHUB_RUN_ATTEMPT", ""), 1),
        server_url=_url(env, "GITHUB_SERVER_URL"),
        api_url=_url(env, "GITHUB_API_URL"),
        workflow=env.get("GITHUB_WORKFLOW", ""),
        actor=env.get("GITHUB_ACTOR", ""),
        ref=ref,
        payload=payload,
    )


def find_pull(context: Context, client: Client, inputs: Inputs) -> int | None:
    """Return the pull request's number: from input, event, ref, or the commit's pull requests, in this order.

    Of several open pull requests with this very head it is the oldest, so that a report stays where the last one is.
    A scheduled run is about none, even if the default branch is the head of one; nor is one started there by hand.

    Raises:
        entrypoint.github.GitHubError: the API did not answer.
    """
    number = inputs.pr_number or context.pr_number
    if number or not context.head_sha or context.event_name == "schedule" or context.by_hand_on_default_branch:
        return number
    found = client.pages(f"/repos/{context.repository}/commits/{context.head_sha}/pulls")
    numbers = [
        dig(pull, "number")
        for pull in found
        if dig(pull, "state") == "open" and dig(pull, "head", "sha") == context.head_sha
    ]
    return min((number for number in numbers if isinstance(number, int)), default=None)


def dig(value: Any, *names: str) -> Any:
    """Return what lies in nested objects under these names; None where one of them is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def full_sha(value: object) -> str:
    """Return the full sha that the value is, in small letters, or an empty string."""
    text = _text(value).lower()
    return text if re.fullmatch(r"[0-9a-f]{40}", text) and text != _NO_COMMIT else ""


def _payload(path: str) -> Mapping[str, Any]:
    if not path:
        return {}
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_PAYLOAD_LIMIT + 1)
        if len(raw) > _PAYLOAD_LIMIT:
            raise EventError(f"GITHUB_EVENT_PATH: {path} is larger than {_PAYLOAD_LIMIT} bytes")
        payload = json.loads(raw)
    except OSError as error:
        raise EventError(f"GITHUB_EVENT_PATH: {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise EventError(f"GITHUB_EVENT_PATH: {path} is no JSON") from None
    if not isinstance(payload, dict):
        raise EventError(f"GITHUB_EVENT_PATH: {path} is no JSON object")
    return payload


def _number_in(payload: Mapping[str, Any]) -> int | None:
    number = dig(payload, "pull_request", "number")
    if number is None and dig(payload, "issue", "pull_request"):
        number = dig(payload, "issue", "number")
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def _number_of(ref: str) -> int | None:
    found = re.fullmatch(r"refs/(?:heads/pull-request/([1-9][0-9]{0,9})|pull/([1-9][0-9]{0,9})/(?:merge|head))", ref)
    return int(found[1] or found[2]) if found else None


def _sha_in(payload: Mapping[str, Any], event_name: str, github_sha: str) -> str:
    if event_name == "issue_comment":
        return ""
    if event_name == "push":
        return full_sha(dig(payload, "after")) or full_sha(github_sha)
    if event_name == "workflow_run":
        return full_sha(dig(payload, "workflow_run", "head_sha"))
    return full_sha(dig(payload, "pull_request", "head", "sha")) or full_sha(github_sha)


def _needed(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "")
    if not value:
        raise EventError(f"{name} is not set: this program runs as a step of a job on GitHub")
    return value


def _url(env: Mapping[str, str], name: str) -> str:
    url = _needed(env, name).rstrip("/")
    if not re.fullmatch(r"https?://[A-Za-z0-9.:\[\]_/-]+", url):
        raise EventError(f"{name}: {url!r} is no address")
    return url


def _count(text: str, default: int) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else default


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
