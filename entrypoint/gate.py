"""May this commit be run? Asked before a stranger's code meets a runner, and again once it is checked out.

    python -m entrypoint.gate            on the event: an approving comment, a push of copy-pr-bot, or a trusted event
    python -m entrypoint.gate recheck    after checkout (also if the input `sha` is given): is it the approved commit,
                                         and still the head of its pull request?

A comment approves one commit, by someone who may write to the repository, as its first line, with nothing else on it:

    /ok to test 0123456789abcdef0123456789abcdef01234567

Whatever can't be found out is refused. Exit codes: 0 passed, or there was nothing to decide (output `ok` is `false`);
1 refused; 2 wrong usage; 4 GitHub did not say.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint import commands, outputs, status
from entrypoint.event import Context, EventError, dig, find_pull, full_sha, read
from entrypoint.github import Client, GitHubError
from entrypoint.inputs import InputError, Inputs
from entrypoint.launching.source import Source, tested_sha

__all__ = ["Decision", "Refusal", "decide", "main", "parse", "recheck"]

_COMMAND = re.compile(r"/ok to test(?:[ \t]+(.*))?")
# What somebody may have meant as one: behind spaces, in capitals, or followed by a space that is none of ours.
_ATTEMPT = re.compile(r"[\s\u200b\ufeff]*/ok to test(?![\w-])", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_APPROVERS = ("admin", "maintain", "write")
# GitHub may tell of a pull request's old head for some seconds after a push.
_TRIES, _WAIT = 4, 5.0


class Refusal(Exception):  # noqa: N818
    """The commit is not run: why, in words of ours alone, for a person to read.

    Attributes:
        head: the full sha of the pull request's head, where a comment with that sha would do.
        failed: the question could not be answered, rather than that the answer is no.
        quiet: whoever asked may make nobody write comments.
    """

    def __init__(self, reason: str, head: str = "", *, failed: bool = False, quiet: bool = False) -> None:
        super().__init__(reason)
        self.head = head
        self.failed = failed
        self.quiet = quiet

    def reply(self) -> str:
        """Return the Markdown that answers on the pull request.

        The command in it never begins a line, so that this reply approves nothing, whoever's token posts it.
        """
        text = f"Not run: {self}."
        if self.head:
            text += (
                f" Once its changes have been looked at, someone who may write to this repository can comment"
                f" `/ok to test {self.head}`, as the first line of the comment."
            )
        return text


@dataclass(frozen=True)
class Decision:
    """What the gate lets through, or that there was nothing to decide.

    Attributes:
        ok: the commit may be run.
        reason: one line, in words of ours alone.
        pr_number: of the pull request, if there is one.
        sha: of the commit that may be run.
    """

    ok: bool
    reason: str
    pr_number: int | None = None
    sha: str = ""


def parse(body: str) -> str | None:
    """Return the sha, of 7 to 40 digits in small letters, that a comment approves; None if it holds no command.

    The command is the first line. Further down may be what somebody else wrote: a reply by mail can repeat, with no
    mark, what it answers.

    Raises:
        Refusal: there are several commands, or one that is not as or where it should be.
    """
    attempts = _attempts(body)
    if not attempts:
        return None
    if len(attempts) > 1:
        raise Refusal("the comment holds more than one `/ok to test`")
    first = next(line for line in _lines(body) if line.strip(" \t"))
    found = _COMMAND.fullmatch(first)
    if first != attempts[0]:
        raise Refusal("`/ok to test` has to be the first line of the comment")
    if not found:
        raise Refusal("`/ok to test` begins its line, in small letters, and plain spaces part it from the sha")
    sha = (found[1] or "").rstrip(" \t").lower()
    if not re.fullmatch(r"[0-9a-f]{7,40}", sha):
        raise Refusal("`/ok to test` is followed by the sha of one commit, and by nothing else on its line")
    return sha


def decide(context: Context, client: Client) -> Decision:
    """Decide on an event.

    Raises:
        Refusal: the commit is not run.
        GitHubError: the API did not answer.
    """
    match context.event_name:
        case "issue_comment":
            return _on_comment(context, client)
        case "push":
            return _on_push(context, client)
        case "pull_request" if _is_fork(dig(context.payload, "pull_request")):
            return Decision(False, "a fork's pull request waits for `/ok to test`", context.pr_number)
        case "pull_request" | "schedule" | "workflow_dispatch":
            if not context.head_sha:
                raise Refusal("the event names no commit")
            return Decision(True, f"{context.event_name} is trusted", context.pr_number, context.head_sha)
    raise Refusal("this event is none that the gate lets through")


def recheck(context: Context, client: Client, inputs: Inputs, workspace: Path) -> Decision:
    """Hold what was checked out to the commit that was approved, and that to the pull request's head.

    Raises:
        Refusal: they are not the same.
        GitHubError: the API did not answer.
    """
    sha = context.head_sha
    if not sha:
        raise Refusal("the input `sha` does not say which commit was approved")
    number = find_pull(context, client, inputs)
    if number is not None:
        _hold_to_head(context, client, number, sha)
    elif context.event_name == "issue_comment":
        raise Refusal("the comment is on no pull request")
    found = tested_sha(Source({"GITHUB_WORKSPACE": str(workspace)}))
    if found is None:
        raise Refusal("nothing is checked out in the workspace")
    if found != sha:
        raise Refusal("what is checked out is not the approved commit: check out with `ref:` set to its sha")
    return Decision(True, "the approved commit is checked out, and is the head still", number, sha)


def main(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Decide, answer, write the outputs, and return the exit code."""
    try:
        if list(arguments) not in ([], ["recheck"]):
            raise InputError("usage: python -m entrypoint.gate [recheck]")
        inputs = Inputs.from_env(env)
        if not inputs.token:
            raise InputError("token: the gate needs one; ${{ github.token }} will do")
        context = read(env)
        client = Client(context.api_url, inputs.token)
        again = bool(arguments or inputs.sha)
    except (InputError, EventError, GitHubError) as error:
        commands.error(str(error))
        return 2
    refusal = None
    try:
        workspace = Path(env.get("GITHUB_WORKSPACE") or ".")
        decision = recheck(context, client, inputs, workspace) if again else decide(context, client)
    except Refusal as error:
        refusal = error
    except GitHubError as error:
        commands.error(str(error))
        refusal = Refusal("GitHub did not answer what the gate asked; comment again later", failed=True)
    if refusal:
        decision = Decision(False, str(refusal), inputs.pr_number or context.pr_number)
    outputs.write(
        env,
        {
            "ok": "true" if decision.ok else "false",
            "pr-number": str(decision.pr_number or ""),
            "sha": decision.sha,
            "reason": decision.reason,
        },
    )
    if context.event_name == "issue_comment" and (refusal or (decision.ok and not again)):
        _answer(context, client, refusal)
    if decision.ok and not again:
        _promise(context, client, inputs, decision.sha)
    if not refusal:
        print(f"{'passed' if decision.ok else 'nothing to run'}: {decision.reason}")
        return 0
    commands.error(f"not run: {refusal}")
    return 4 if refusal.failed else 1


def _lines(body: str) -> list[str]:
    # Only what GitHub shows as the end of a line is one; str.splitlines knows a dozen more.
    return re.split(r"\r\n|\r|\n", body)


def _attempts(body: str) -> list[str]:
    """Return the lines that are commands or meant to be, but for those in a code fence or an HTML comment."""
    found, fence, hidden = [], "", False
    for line in _lines(body):
        if fence:
            closing = re.fullmatch(r" {0,3}(`{3,}|~{3,})[ \t]*", line)
            fence = "" if closing and closing[1].startswith(fence) else fence
        elif hidden:
            hidden = "-->" not in line
        elif opening := _FENCE.match(line):
            fence = opening[1]
        elif "<!--" in line:
            hidden = "-->" not in line.split("<!--")[-1]
        elif _ATTEMPT.match(line):
            found.append(line)
    return found


def _on_comment(context: Context, client: Client) -> Decision:
    number, body = context.pr_number, dig(context.payload, "comment", "body")
    if number is None or context.action not in ("created", "edited") or not isinstance(body, str):
        return Decision(False, "the event is no comment on a pull request")
    if not _attempts(body):
        return Decision(False, "the comment holds no command", number)
    # Before all that is answered with a comment.
    try:
        _hold_to_approver(context, client)
    except GitHubError as error:
        commands.error(str(error))
        raise Refusal("GitHub did not say whether who commented may write", failed=True, quiet=True) from None
    pull = _pull(context, client, number)
    head = _head(pull)
    if dig(pull, "state") != "open":
        raise Refusal("the pull request is not open")
    try:
        if context.action != "created":
            # What it said when it was read by others may have been something else.
            raise Refusal("an edited comment approves nothing")
        sha = parse(body) or ""
        if len(sha) < 40:
            sha = _whole(context, client, number, pull, sha)
        if sha != head:
            raise Refusal("that is not the commit at the head of this pull request, or no longer")
    except Refusal as refusal:
        refusal.head = head
        raise
    return Decision(True, "approved by a comment", number, head)


def _on_push(context: Context, client: Client) -> Decision:
    if not context.head_sha:
        raise Refusal("the push names no commit")
    if context.pr_number is None:
        return Decision(True, "push is trusted", None, context.head_sha)
    _hold_to_head(context, client, context.pr_number, context.head_sha)
    return Decision(True, "the push is the head of its pull request", context.pr_number, context.head_sha)


def _hold_to_head(context: Context, client: Client, number: int, sha: str) -> None:
    for attempt in range(_TRIES):
        head = _head(_pull(context, client, number))
        if head == sha:
            return
        if attempt < _TRIES - 1:
            client.sleep(_WAIT)
    raise Refusal("the head of the pull request moved", head)


def _hold_to_approver(context: Context, client: Client) -> None:
    """Raise unless the comment is by a person who may write to the repository.

    What a comment says of its author's association hides private members of an organization; the permission does not.
    """
    login, kind = dig(context.payload, "comment", "user", "login"), dig(context.payload, "comment", "user", "type")
    if kind != "User" or dig(context.payload, "comment", "performed_via_github_app") is not None:
        raise Refusal("a program's comment approves nothing", quiet=True)
    if not isinstance(login, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", login):
        raise Refusal("who commented has no name that GitHub would give", quiet=True)
    try:
        found = client.get(f"/repos/{context.repository}/collaborators/{login}/permission")
    except GitHubError as error:
        if error.status != 404:
            raise
        found = None
    if dig(found, "permission") not in _APPROVERS:
        raise Refusal("who commented may not write to this repository", quiet=True)
    number = dig(context.payload, "comment", "user", "id")
    # A login can be given up, and taken by another.
    if not isinstance(number, int) or isinstance(number, bool) or dig(found, "user", "id") != number:
        raise Refusal("who commented is not who has that name now", quiet=True)


def _whole(context: Context, client: Client, number: int, pull: Any, short: str) -> str:
    """Return the sha of the one commit of the pull request that begins so.

    Two commits that begin alike can be made within minutes, so that a fork's have to be named in full.
    """
    if _is_fork(pull):
        raise Refusal("a commit of a fork is named by all 40 digits of its sha")
    shas = [full_sha(dig(one, "sha")) for one in client.pages(f"/repos/{context.repository}/pulls/{number}/commits")]
    count = dig(pull, "commits")
    # GitHub lists 250 commits at most.
    if not isinstance(count, int) or count > len(shas):
        raise Refusal("in a pull request of so many commits, one is named by all 40 digits of its sha")
    found = {sha for sha in (*shas, _head(pull)) if sha.startswith(short)}
    if len(found) > 1:
        raise Refusal("several commits of this pull request begin with these digits")
    return found.pop() if found else ""


def _pull(context: Context, client: Client, number: int) -> Any:
    return client.get(f"/repos/{context.repository}/pulls/{number}")


def _head(pull: Any) -> str:
    head = full_sha(dig(pull, "head", "sha"))
    if not head:
        raise Refusal("GitHub names no head of the pull request", failed=True)
    return head


def _is_fork(pull: Any) -> bool:
    """Whether the head is in another repository, or in one that was deleted. A fork may have forks of its own."""
    base, head = dig(pull, "base", "repo", "full_name"), dig(pull, "head", "repo", "full_name")
    return not isinstance(head, str) or head != base


def _promise(context: Context, client: Client, inputs: Inputs, sha: str) -> None:
    """Let the commit's status wait for this run: no earlier one is left standing if this never comes to an end."""
    if not inputs.status:
        return
    refused = status.pending(client, context.repository, sha, context=status.name(inputs), url=context.run_url)
    if refused:
        commands.notice(refused)


def _answer(context: Context, client: Client, refusal: Refusal | None) -> None:
    """Say it on the pull request. What can't be said there changes nothing."""
    comment = dig(context.payload, "comment", "id")
    try:
        if isinstance(comment, int):
            content = {"content": "confused" if refusal else "rocket"}
            path = f"/repos/{context.repository}/issues/comments/{comment}/reactions"
            client.post(path, content, repeatable=True)
    except GitHubError as error:
        commands.notice(f"no reaction on the comment: {error}")
    try:
        if refusal and not refusal.quiet:
            path = f"/repos/{context.repository}/issues/{context.pr_number}/comments"
            client.post(path, {"body": refusal.reply()})
    except GitHubError as error:
        commands.notice(f"no reply to the comment: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
