"""One comment on a pull request, kept up to date by however many publishers there are.

GitHub has no request that changes a comment only if it is still as it was, so two publishers can't exclude each
other. Instead each looks again after it wrote, and all of them move towards the same end: the oldest of our comments
shows the newest run, and there is no other. Where two look at the same comments, they decide alike.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from entrypoint.body import marker, parse
from entrypoint.github import Client, GitHubError
from entrypoint.runs import Run, kept

__all__ = ["WORKFLOW_LOGIN", "Posted", "post"]

WORKFLOW_LOGIN = "github-actions[bot]"
"""Who writes with a workflow's own token, which can't be asked for it."""

# Looks at the comments; two are enough without another publisher, three with one.
_ROUNDS = 8
_MOST_CREATED = 3


@dataclass(frozen=True)
class Posted:
    """What became of it.

    Attributes:
        url: of the comment; None if there is none.
        notice: why the comment does not show this run, or what else is odd about it.
    """

    url: str | None
    notice: str | None = None


@dataclass(frozen=True)
class _Comment:
    id: int
    url: str
    body: str
    runs: list[Run]


def post(
    client: Client,
    repository: str,
    number: int,
    *,
    key: str,
    run: Run,
    head: str | None,
    body: Callable[[Sequence[Run]], str],
    mode: str = "always",
    author: str = "",
    pause: Callable[[], float] = lambda: random.uniform(1.0, 3.0),  # noqa: S311
) -> Posted:
    """Write the comment, or bring it up to date, if the mode wants it; never before a newer run's.

    Args:
        client: with a token that may write on pull requests.
        repository: owner and name.
        number: of the pull request.
        key: tells this comment from others of ours there.
        run: what is reported.
        head: the pull request's newest commit; None if that is not known.
        body: the comment's text for the runs that it is to remember, `run` first.
        mode: `always`; `on-change`: if there is none yet, or it shows another verdict; `on-failure`: if there is one
            already, or the verdict is not pass.
        author: login of the token's owner; asked for if empty.
        pause: seconds before each look after a change.
    """
    try:
        author = author or client.login() or WORKFLOW_LOGIN
        return _Thread(client, repository, number, key, run, head, author).post(body, mode, pause)
    except GitHubError as error:
        return Posted(None, f"The comment could not be written: {error}")


class _Thread:
    """The comments on one pull request, as far as they are ours."""

    def __init__(
        self, client: Client, repository: str, number: int, key: str, run: Run, head: str | None, author: str
    ) -> None:
        self._client = client
        self._issue = f"/repos/{repository}/issues/{number}/comments"
        self._comments = f"/repos/{repository}/issues/comments"
        self._marker, self._run, self._head, self._author = marker(key), run, head, author
        self._failure: GitHubError | None = None

    def post(self, body: Callable[[Sequence[Run]], str], mode: str, pause: Callable[[], float]) -> Posted:
        created, written = 0, False
        for _ in range(_ROUNDS):
            ours = self._ours()
            shown = [one.runs[0] for one in ours if one.runs]
            newest = max(shown, key=self._rank, default=None)
            if newest is not None and self._rank(newest) > self._rank(self._run):
                notice = f"The comment shows run {newest.run} already, which is newer; it is left as it is."
                # Where the oldest does not show it yet, whoever published it will see to that.
                odd = self._remove(ours[1:]) if ours[0].runs[:1] == [newest] else None
                return Posted(ours[0].url, odd or (None if written else notice))
            if not written and not _wanted(mode, self._run, ours):
                return Posted(ours[0].url if ours else None)
            runs = self._remembered(ours)
            text = body(runs)
            if ours and (_same(ours[0].body, text) or (written and _numbers(ours[0].runs) == _numbers(runs))):
                return Posted(ours[0].url, self._remove(ours[1:]))
            if not ours and created == _MOST_CREATED:
                break
            self._failure = None
            if not ours:
                created += 1
                self._create(text)
            else:
                self._update(ours[0], text)
            written = True
            self._client.sleep(pause())
        if self._failure is not None:
            raise self._failure
        return Posted(None, "The comment could not be kept: it was changed or removed each time it was written.")

    def _ours(self) -> list[_Comment]:
        """Our comments with this key, the oldest first."""
        found = []
        for comment in self._client.pages(self._issue):
            body = comment.get("body") or ""
            user = comment.get("user") or {}
            # Anyone can write the marker; nobody else can be the author.
            if user.get("login") == self._author and body.split("\n", 1)[0].rstrip() == self._marker:
                found.append(_Comment(comment["id"], comment.get("html_url", ""), body, parse(body)))
        return sorted(found, key=lambda one: one.id)

    def _rank(self, run: Run) -> tuple[bool, int, int]:
        """A run of the newest commit comes before any other, and a later one before an earlier."""
        return run.sha == self._head, *run.number

    def _remembered(self, ours: list[_Comment]) -> list[Run]:
        known = [run for one in ours for run in one.runs]
        # What was published before is as old as it was: the same result again is the same text.
        mine = next((run for run in known if run.model_copy(update={"time": self._run.time}) == self._run), self._run)
        others = {run.number: run for run in known if run.number != self._run.number}
        return kept([mine, *sorted(others.values(), key=lambda run: run.number, reverse=True)])

    def _create(self, text: str) -> None:
        try:
            made = self._client.post(self._issue, {"body": text}, look=True)
        except GitHubError as error:
            if not error.uncertain and not error.again:
                raise
            self._failure = error
            return  # the next look tells whether it went through, or another was faster
        # An app's token can't be asked for its login either, but what it wrote says it.
        login = _login(made)
        if login:
            self._author = login

    def _update(self, comment: _Comment, text: str) -> None:
        address = f"{self._comments}/{comment.id}"
        try:
            # Many pages take their time; what was read on the first may have changed since.
            if (self._client.get(address).get("body") or "") == comment.body:
                self._client.patch(address, {"body": text}, look=True)
        except GitHubError as error:
            # Somebody removed it since, or a newer run may have come while there was a limit to wait for.
            if error.status not in (404, 410) and not error.again:
                raise
            self._failure = error

    def _remove(self, doubles: list[_Comment]) -> str | None:
        try:
            for comment in doubles:
                self._client.delete(f"{self._comments}/{comment.id}")
        except GitHubError as error:
            return f"There is more than one comment, and one could not be removed: {error}"
        return None


def _wanted(mode: str, run: Run, ours: list[_Comment]) -> bool:
    if mode == "on-failure":
        return bool(ours) or run.verdict != "pass"
    if mode == "on-change":
        shown = ours[0].runs[0] if ours and ours[0].runs else None
        return shown is None or shown.verdict != run.verdict or shown.number == run.number
    return mode != "off"


def _same(one: str, other: str) -> bool:
    return one.replace("\r\n", "\n").strip() == other.replace("\r\n", "\n").strip()


def _numbers(runs: Sequence[Run]) -> list[tuple[int, int]]:
    return [run.number for run in runs]


def _login(comment: Any) -> str | None:
    user = comment.get("user") if isinstance(comment, dict) else None
    login = user.get("login") if isinstance(user, dict) else None
    return login if isinstance(login, str) and login else None
