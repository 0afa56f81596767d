"""One issue for runs that belong to no pull request, such as nightly ones: open as long as somebody has to look."""

from collections.abc import Callable, Sequence

from entrypoint.body import marker, parse
from entrypoint.comment import WORKFLOW_LOGIN, Posted
from entrypoint.event import dig
from entrypoint.github import Client, GitHubError
from entrypoint.runs import Run, kept

__all__ = ["post"]


def post(
    client: Client,
    repository: str,
    *,
    key: str,
    title: str,
    run: Run,
    body: Callable[[Sequence[Run]], str],
    author: str = "",
) -> Posted:
    """Open the issue for a run that did not pass, or bring the open one up to date, whatever the verdict.

    To close it is left to people: a night that passes need not mean that nothing was wrong.

    Args:
        client: with a token that may write issues.
        repository: owner and name.
        key: tells this issue from others of ours.
        title: of a new issue.
        run: what is reported.
        body: the issue's text for the runs that it is to remember, `run` first.
        author: login of the token's owner; asked for if empty.
    """
    try:
        author = author or client.login() or WORKFLOW_LOGIN
        ours = [
            issue
            for issue in client.pages(f"/repos/{repository}/issues", state="open")
            if "pull_request" not in issue
            # Anyone can write the marker; nobody else can be the author.
            and dig(issue, "user", "login") == author
            and (issue.get("body") or "").split("\n", 1)[0].rstrip() == marker(key)
        ]
        if not ours:
            if run.verdict == "pass":
                return Posted(None)
            made = client.post(f"/repos/{repository}/issues", {"title": title, "body": body([run])})
            return Posted(dig(made, "html_url"))
        oldest = min(ours, key=lambda issue: int(issue["number"]))
        before = [one for one in parse(oldest["body"]) if one.number != run.number]
        text = body(kept([run, *before]))
        client.patch(f"/repos/{repository}/issues/{oldest['number']}", {"body": text})
        return Posted(dig(oldest, "html_url"))
    except GitHubError as error:
        return Posted(None, f"The issue could not be written: {error}")
