"""The commit status: what a branch rule can require."""

from entrypoint.github import Client, GitHubError
from parity.plain import plain
from parity.result import VerdictName

__all__ = ["post"]

# What is not judged is not green.
_STATES = {"pass": "success", "fail": "failure", "inconclusive": "failure", "error": "error"}
_LONGEST = 140  # GitHub refuses more


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
    body = {
        "state": _STATES[verdict],
        "context": context,
        "description": plain(f"{verdict}: {summary}", _LONGEST),
        "target_url": url,
    }
    try:
        # Twice the same status shows as one.
        client.post(f"/repos/{repository}/statuses/{sha}", body, repeatable=True)
    except GitHubError as error:
        return f"The commit status could not be set: {error}"
    return None
