"""`python -P -m entrypoint.publish`: what the legs left, judged anew, to where people see it.

Runs with a token and without the code under test. The folder is data, whoever wrote it; what is read of it can change
what a report says, and nothing else. Whatever GitHub refuses becomes a notice: the verdict is that of the legs.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from entrypoint import body, commands, comment, event, issue, jobs, outputs, rejudge, runs, since, status, summary
from entrypoint.conclude import conclude, nothing
from entrypoint.github import Client, GitHubError
from entrypoint.inputs import InputError, Inputs
from parity.checks.outcome import Verdict
from parity.errors import UsageError
from parity.plain import plain
from parity.report.first_screen import divergent_step, telling, worst_step
from parity.report.html import render_html
from parity.report.sections import Chapter, chapters
from parity.result import Result, now
from parity.untrusted import write_whole

__all__ = ["main", "publish"]

_WRONG_USAGE = 2
# Beside that of the verdict. The runner shows ten of a kind for a whole composite action.
_ANNOTATIONS = 5


def main(env: Mapping[str, str] | None = None) -> int:
    """Publish what the environment asks for, and return the exit code."""
    env = os.environ if env is None else env
    try:
        inputs, context = Inputs.from_env(env), event.read(env)
        client = Client(context.api_url, inputs.token) if inputs.token else None
    except (InputError, event.EventError, GitHubError) as error:
        _tell("error", str(error))
        return _WRONG_USAGE
    return publish(inputs, context, client, env)


def publish(inputs: Inputs, context: event.Context, client: Client | None, env: Mapping[str, str]) -> int:
    """Publish.

    Args:
        inputs: of the action.
        context: which commit of which pull request it is about.
        client: None without a token: then there is no comment and no status.
        env: the job's files, `GITHUB_OUTPUT` and `GITHUB_STEP_SUMMARY`, and its workspace.

    Returns:
        The exit code that the input `fail-on` makes of the verdict.
    """
    job = _Job(inputs, context, client, env)
    pull = job.find_pull()
    try:
        jobs.put_together(job.folder())
        about = _about(context.head_sha, pull)
        result = conclude(
            job.folder(), inputs.suite, job.commits(), about, doubts=job.doubts(), run_id=context.run_id
        )
    except UsageError as error:
        result = nothing(inputs.suite, str(error))
    _annotate(result, job.name, inputs.suite)
    # Before all that a hostile run can draw out, or that may have to wait for GitHub for long.
    job.hand_out(result)
    job.set_status(result)
    report = rejudge.render(result)
    job.write(result, report)
    job.comment(result, report, pull)
    return _exit_code(Verdict(result.verdict), inputs.fail_on)


@dataclass(frozen=True)
class _Pull:
    """A pull request.

    Attributes:
        number: of it.
        head: its newest commit; None if that could not be asked.
    """

    number: int
    head: str | None


@dataclass(frozen=True)
class _Job:
    """Where things go. Nothing here raises for what GitHub or the disk refuse."""

    inputs: Inputs
    context: event.Context
    client: Client | None
    env: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of the commit status."""
        return status.name(self.inputs)

    def commits(self) -> list[str]:
        """The commits that this workflow run may have tested, the one that it is about first."""
        # On `pull_request`, what is checked out by default is the merge of that commit into the base.
        merged = self.env.get("GITHUB_SHA") if self.context.event_name == "pull_request" else None
        return [sha for sha in dict.fromkeys((self.context.head_sha, event.full_sha(merged))) if sha]

    def doubts(self) -> list[str]:
        """Why the folder may hold what was committed, or was left earlier, rather than what the legs left."""
        if self.inputs.mode == "all":
            ended, who = self.env.get("INPUT_RUN_OUTCOME", ""), "The step that runs the legs"
        else:
            ended, who = self.inputs.run_result, "The job that runs the legs"
        if ended == "success":
            return []
        if not ended:
            return [f"{who} did not say how it ended: give publish `run-result`, the result of that job."]
        return [f"{who} did not end well ({ended})."]

    def folder(self) -> Path:
        """The folder that `launch` left.

        Raises:
            UsageError: the way there leads through a link.
        """
        out = self.inputs.out
        if out.is_absolute():
            return out
        place = Path(self.env.get("GITHUB_WORKSPACE") or ".")
        for part in out.parts:
            # In a single job the workspace is a checkout of the code under test.
            place /= part
            if part == os.pardir or place.is_symlink():
                raise UsageError(f"out: {out} leads through a link or out of the workspace")
        return place

    def find_pull(self) -> _Pull | None:
        """The pull request that this is about, if it is about one."""
        if self.client is None:
            _tell("notice", "There is no token: no comment and no commit status.")
            return None
        try:
            number = event.find_pull(self.context, self.client, self.inputs)
        except GitHubError as error:
            _tell("notice", f"The pull request could not be found: {error}")
            return None
        if number is None:
            return None
        try:
            found = self.client.get(f"/repos/{self.context.repository}/pulls/{number}")
            return _Pull(number, event.full_sha(event.dig(found, "head", "sha")) or None)
        except GitHubError as error:
            _tell("notice", f"The head of pull request {number} is not known: {error}")
            return _Pull(number, None)

    def write(self, result: Result, report: str) -> None:
        """Write result and reports beside the run, and the summary."""
        try:
            out = self.folder()
            out.mkdir(parents=True, exist_ok=True)
            write_whole(out / "result.json", result.dumps(), within=out)
            write_whole(out / "report.md", report, within=out)
            write_whole(out / "report.html", render_html(result), within=out)
        except (UsageError, OSError) as error:
            _tell("notice", f"The report could not be written: {error}")
        try:
            summary.write(self.env, report, str(self.inputs.out / "report.md"))
        except OSError as error:
            _tell("notice", f"The summary could not be written: {error.strerror}")

    def set_status(self, result: Result) -> None:
        """Set the status of the tested commit, if that is wanted and possible."""
        if self.client is None or not self.inputs.status:
            return
        if not self.context.head_sha:
            _tell(
                "notice", "The event does not say which commit was tested, so it gets no status; give the input sha."
            )
            return
        refused = status.post(
            self.client,
            self.context.repository,
            self.context.head_sha,
            context=self.name,
            verdict=result.verdict,
            summary=result.summary,
            url=self.context.run_url,
        )
        if refused:
            _tell("notice", refused)

    def comment(self, result: Result, report: str, pull: _Pull | None) -> None:
        """Write the comment, or a nightly run's issue, if it is wanted and possible, and hand out its address."""
        inputs, context = self.inputs, self.context
        if self.client is None or inputs.comment == "off":
            return
        if pull is None and context.event_name not in ("schedule", "workflow_dispatch"):
            return
        if not context.head_sha:
            _tell("notice", "The event does not say which commit was tested; give the input sha for a comment.")
            return
        # Two workflows may run the same suite.
        key = inputs.key or f"{context.workflow} / {inputs.suite}"
        links = runs.Links(context.server_url, context.repository)
        run = runs.Run(
            sha=context.head_sha,
            verdict=result.verdict,
            run=context.run_id,
            attempt=context.run_attempt,
            step=worst_step(result),
            time=now(),
            facts=since.facts(result),
        )
        own, notice = self._own(result, report)
        text = partial(body.render, key, report=own or chapters(report), links=links, notice=notice)
        author = inputs.comment_author
        if pull is None:
            title = plain(f"parity: {inputs.key or inputs.suite} does not pass")
            posted = issue.post(
                self.client, context.repository, key=key, title=title, run=run, body=text, author=author
            )
        else:
            posted = comment.post(
                self.client,
                context.repository,
                pull.number,
                key=key,
                run=run,
                head=pull.head,
                body=text,
                mode=inputs.comment,
                author=author,
            )
        if posted.notice:
            _tell("notice", posted.notice)
        if posted.url:
            print(commands.defuse(f"comment: {plain(posted.url, 500)}"), flush=True)
            self._output({"comment-url": plain(posted.url, 500)})

    def _own(self, result: Result, report: str) -> tuple[list[Chapter], str]:
        """The comment's text by the workflow's own template, if there is one; and why it is not, if it is broken."""
        if not self.inputs.comment_template:
            return [], ""
        try:
            text = rejudge.render_own(self.inputs.comment_template, result, report)
        except rejudge.NoResultError as error:
            notice = f"comment-template could not be used, so this is the usual comment: {error}"
            _tell("notice", notice)
            return [], notice
        return [Chapter("", "", (text,))], ""

    def hand_out(self, result: Result) -> None:
        """Write the outputs, and say where everything is."""
        report = str(self.inputs.out / "report.md")
        worst, divergent = worst_step(result), divergent_step(result)
        print(commands.defuse(f"parity: {result.verdict}: {plain(result.summary, 1000)}"))
        print(commands.defuse(f"report: {plain(report, 500)}"), flush=True)
        self._output(
            {
                "verdict": result.verdict,
                "report-path": report,
                "result-path": str(self.inputs.out / "result.json"),
                "tested-sha": self.context.head_sha,
                "worst-step": "" if worst is None else str(worst),
                "first-divergent-step": "" if divergent is None else str(divergent),
            }
        )

    def _output(self, values: Mapping[str, str]) -> None:
        try:
            outputs.write(self.env, values)
        except OSError as error:
            _tell("error", f"The outputs could not be written: {error.strerror}")


def _about(sha: str, pull: _Pull | None) -> str:
    """What follows on `Tested commit` and its sha."""
    if pull is None or pull.head is None:
        return "."
    if pull.head == sha:
        return f", the head of pull request {pull.number}."
    return (
        f". The head of pull request {pull.number} has moved to {pull.head} since: what is said here is not about it."
    )


def _annotate(result: Result, name: str, suite: str) -> None:
    """The verdict, and the first reasons for it."""
    if result.verdict == "pass":
        return
    kind = "warning" if result.verdict == "inconclusive" else "error"
    # Shown at the suite's first line, where it is a file of the tested commit.
    file = suite if suite.endswith((".yml", ".yaml")) and not suite.startswith(("/", "../")) else ""
    _tell(kind, f"{result.verdict}: {result.summary}", title=name, file=file)
    comparison = telling(result)
    if comparison is None:
        return
    outcomes = {one.check: one for one in comparison.outcomes}
    for check in [name for name in comparison.deciding if name in outcomes][:_ANNOTATIONS]:
        who = f"{comparison.candidate} against {comparison.baseline}"
        _tell(kind, f"{who}: {check} {outcomes[check].status}: {outcomes[check].reason}", title=name, file=file)


def _tell(kind: str, text: str, **properties: str) -> None:
    """Print an annotation, whose text may be anybody's."""
    print(commands.command(kind, commands.defuse(plain(text, 1000)), **properties), flush=True)


def _exit_code(verdict: Verdict, fail_on: str) -> int:
    """0 where the job is to stay green, else the verdict's own."""
    green = {"any": (Verdict.PASS,), "fail": (Verdict.PASS, Verdict.INCONCLUSIVE), "never": tuple(Verdict)}
    return 0 if verdict in green[fail_on] else verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
