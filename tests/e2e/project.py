"""A repository whose pull requests are tested: on this machine with git, and in the stand-in for GitHub."""

import itertools
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.e2e.act import Run, act, granted
from tests.github import events
from tests.github.events import Event
from tests.github.server import GitHub
from tests.github.state import Comment

__all__ = ["Project"]

PROJECTS = Path(__file__).parent / "projects"
_NAMES = {f"GIT_{who}_{what}": "maya@github.test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Project:
    """One repository with one workflow.

    Args:
        github: the stand-in, whose repository this is.
        workflow: a starter, as it is.
        kind: the folder with the files of its pull requests.
        action: what `uses: org/parity-action@v1` names.
        folder: an empty one.
        env: of the runner.
    """

    def __init__(
        self, github: GitHub, workflow: Path, kind: str, *, action: Path, folder: Path, env: Mapping[str, str]
    ) -> None:
        self.github, self.workflow = github, workflow
        self._kind, self._action, self._folder, self._env = PROJECTS / kind, action, folder, env
        self._repository = folder / "repository"
        self._numbers = itertools.count(5001)
        # No other test's, for a job removes what an earlier one of its number left on the same runner.
        self.runner = f"runner-{secrets.token_hex(8)}"
        self._token = github.add_installation_token(
            "github-actions[bot]", github.repository.full_name, permissions=granted(workflow)
        )
        self._git("init", "--quiet", "--initial-branch=main", str(self._repository), cwd=folder)
        shutil.copytree(self._kind, self._repository, dirs_exist_ok=True)
        self._here = self._repository / ".github" / "workflows" / workflow.name
        self._here.parent.mkdir(parents=True)
        shutil.copy2(workflow, self._here)
        (self._repository / "addresses.txt").write_text(
            f"{github.url}\nhttp://172.17.0.1:{github.url.split(':')[-1]}"
        )
        self._commit("First")
        self.merge(lambda text: text)
        github.pull.base_sha = github.repository.branches["main"]

    def commit(self, change: Callable[[str], str] = lambda text: text, *, file: str = "parity.yml") -> str:
        """Commit one changed file on top of `main`, which stays where it is; returns the sha."""
        self._git("checkout", "--quiet", "--detach", "main")
        path = self._repository / file
        path.write_text(change(path.read_text()))
        return self._commit("Change")

    def push(self, change: Callable[[str], str] = lambda text: text, *, file: str = "parity.yml") -> str:
        """Make such a commit the head of pull request 7."""
        sha = self.commit(change, file=file)
        return self.github.repository.push(self.github.repository.pulls[7], sha=sha, force=True)

    def merge(self, change: Callable[[str], str], *, file: str = "parity.yml") -> str:
        """Make such a commit the head of `main`."""
        sha = self.commit(change, file=file)
        self._git("branch", "--quiet", "--force", "main", sha)
        self.github.repository.branches["main"] = self.github.repository.add_commit("Change", sha=sha).sha
        return sha

    def run(self, event: Event, *, at: str = "main") -> Run:
        """Run the workflow; `at` is the commit that GitHub would call that of the run."""
        self._git("checkout", "--quiet", "--detach", at)
        return act(
            event,
            self._here,
            number=next(self._numbers),
            github=self.github,
            token=self._token,
            repository=self._repository,
            action=self._action,
            folder=self._folder / "act",
            env={**self._env, "RUNNER_NAME": self.runner},
        )

    def approve(self, sha: str, *, user: str = "will") -> tuple[Run, Comment]:
        """Comment `/ok to test` on pull request 7; returns what the workflow made of it, and the comment."""
        comment = self.github.repository.add_comment(7, f"/ok to test {sha}\n\nLooks fine.", user=user)
        return self.run(events.issue_comment(self.github, comment)), comment

    def answers(self, number: int) -> list[Comment]:
        """What the workflow wrote on a pull request."""
        return [one for one in self.github.repository.comments_on(number) if one.user.type == "Bot"]

    def states(self, sha: str) -> list[tuple[str, str]]:
        """The statuses of a commit."""
        return [(one.context, one.state) for one in self.github.repository.statuses_of(sha)]

    @property
    def token(self) -> str:
        """Of the workflow."""
        return self._token.text

    def _commit(self, message: str) -> str:
        self._git("add", "--all")
        self._git("commit", "--quiet", "--allow-empty", "--message", message)
        return self._git("rev-parse", "HEAD")

    def _git(self, *words: str, cwd: Path | None = None) -> str:
        # Nobody's settings, which may ask for signatures.
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", **_NAMES}
        done = subprocess.run(
            ["git", *words],
            cwd=cwd or self._repository,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
