"""Payloads of the events that start a workflow, of what is in a stand-in, and the environment that a runner makes.

    event = events.issue_comment(github, github.repository.add_comment(7, "/ok to test …", user="maya"))
    env = events.environ(github, event, tmp_path)

All but `schedule`, which GitHub describes nowhere, are held to the published schemas of webhooks.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .schemas import Schemas
from .server import GitHub
from .state import Comment, Pull, Token

__all__ = ["Event", "environ", "issue_comment", "pull_request", "push", "schedule", "workflow_dispatch"]

NOTHING = "0" * 40
# What `pull_request` checks out is a merge commit, which is neither the head nor the base.
MERGE = "3e" * 20


@dataclass(frozen=True)
class Event:
    name: str
    payload: dict[str, Any]
    ref: str
    """What `GITHUB_REF` is when a workflow runs on this event."""
    sha: str


def issue_comment(github: GitHub, comment: Comment, *, was: str | None = None) -> Event:
    """Somebody wrote a comment or, where it `was` something else before, edited it."""
    repository = github.repository
    payload = {
        "action": "created" if was is None else "edited",
        "issue": github.show.issue(repository, repository.issues[comment.number]),
        "comment": github.show.comment(repository, comment),
        "sender": github.show.user(comment.user),
    }
    if was is not None:
        payload["changes"] = {"body": {"from": was}}
    # Whatever was commented on, it is the default branch's workflow that runs, on the default branch.
    return _on_main(github, "issue_comment", f"issue_comment${payload['action']}", payload)


def pull_request(github: GitHub, pull: Pull, action: str = "opened", *, before: str | None = None) -> Event:
    """A pull request was `opened`, `closed`, or pushed to (`synchronize`; its head was `before`)."""
    payload = {
        "action": action,
        "number": pull.number,
        "pull_request": github.show.whole_pull(github.repository, pull),
        "sender": github.show.user(pull.user),
    }
    if action == "synchronize":
        payload |= {"before": before or NOTHING, "after": pull.head_sha}
    checked = _checked(github, f"pull_request${action}", payload)
    return Event("pull_request", checked, f"refs/pull/{pull.number}/merge", MERGE)


def push(
    github: GitHub, sha: str, ref: str = "refs/heads/pull-request/7", *, before: str = NOTHING, user: str = "maya"
) -> Event:
    """A commit was pushed to a branch; by default to the one where a mirror bot puts a vetted pull request."""
    payload = {
        "ref": ref,
        "before": before,
        "after": sha,
        "created": before == NOTHING,
        "deleted": False,
        "forced": False,
        "pusher": {"name": user, "email": f"{user}@github.test"},
        "sender": github.show.user(github.user(user)),
    }
    return Event("push", _checked(github, "push$event", payload), ref, sha)


def workflow_dispatch(github: GitHub, inputs: dict[str, str] | None = None, *, user: str = "maya") -> Event:
    """Somebody started the workflow by hand, on the default branch."""
    payload = {
        "inputs": inputs,
        "ref": "refs/heads/main",
        "workflow": ".github/workflows/parity.yml",
        "sender": github.show.user(github.user(user)),
    }
    return _on_main(github, "workflow_dispatch", "workflow_dispatch$event", payload)


def schedule(github: GitHub, cron: str = "0 3 * * *") -> Event:
    """The time has come; nobody sent it."""
    shown = _schemas().complete(_reference("repository"), github.show.repository(github.repository), trim=True)
    payload = {"schedule": cron, "workflow": ".github/workflows/parity.yml", "repository": shown}
    return Event("schedule", payload, "refs/heads/main", github.repository.branches["main"])


def environ(github: GitHub, event: Event, folder: Path, token: Token | None = None) -> dict[str, str]:
    """Write the payload into `folder` and return what a runner sets for a job on that event."""
    path = folder / "event.json"
    path.write_text(json.dumps(event.payload))
    return {
        **github.environ(token),
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": event.name,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_REF": event.ref,
        "GITHUB_REF_NAME": event.ref.removeprefix("refs/heads/").removeprefix("refs/pull/"),
        "GITHUB_SHA": event.sha,
        "GITHUB_ACTOR": event.payload.get("sender", {}).get("login", "github-actions[bot]"),
        "GITHUB_RUN_ID": "5001",
        "GITHUB_RUN_ATTEMPT": "1",
    }


def _on_main(github: GitHub, name: str, schema: str, payload: dict[str, Any]) -> Event:
    return Event(name, _checked(github, schema, payload), "refs/heads/main", github.repository.branches["main"])


def _checked(github: GitHub, name: str, payload: dict[str, Any]) -> dict[str, Any]:
    schema = _reference(name)
    payload["repository"] = github.show.repository(github.repository)
    whole: dict[str, Any] = _schemas().complete(schema, payload, trim=True)
    problems = list(_schemas().problems(schema, whole))
    if problems:
        raise AssertionError(f"{name} is not as GitHub sends it:\n" + "\n".join(problems))
    return whole


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


@cache
def _schemas() -> Schemas:
    return Schemas("webhooks.json")
