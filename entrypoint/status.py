"""The commit status: what a branch rule can require."""

from entrypoint.github import Client, GitHubError
from entrypoint.inputs import Inputs
from parity.plain import plain
from parity.result import VerdictName

__all__ = ["name", "pending", "post"]

# What is not judged is not green.
_STATES = {"pass": "success", "fail": "failure", "inconclusive": "failure", "error": "error"}
_LONGEST = 140  # GitHub refuses more


def name(inputs: Inputs) -> str:
    """Of the status. What the workflow says, for the suite's own name is the pull request's to choose."""
    return f"parity / {inputs.key or inputs.suite}"


def post(
    client: Client, repository: str, sha: str, *, context: str, verdict: VerdictName, summary: str, url: str
) -> str | None:
    """Set the status of a commit; returns why that failed, in one line, or None.

    Args:
        client: with a token that may write statuses.
        repository: owner and name.
        sha: of the tested commit.
        context: the status's name; a later one of the same name takes its place.
        verdict: tells the state.
        summary: shown beside it. Untrusted.
        url: where a click on it leads.
    """
    return _set(client, repository, sha, _STATES[verdict], context, f"{verdict}: {summary}", url)


def pending(client: Client, repository: str, sha: str, *, context: str, url: str) -> str | None:
    """Set the status of a commit that is going to be tested; returns as `post` does."""
    return _set(client, repository, sha, "pending", context, "to be tested", url)


def _set(client: Client, repository: str, sha: str, state: str, context: str, text: str, url: str) -> str | None:
    body = {"state": state, "context": context, "description": plain(text, _LONGEST), "target_url": url}
    try:
        # Twice the same status shows as one.
        client.post(f"/repos/{repository}/statuses/{sha}", body, repeatable=True)
    except GitHubError as error:
        return f"The commit status could not be set: {error}"
    return None
