"""Runs the gate on events of the stand-in, and says what came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from entrypoint import gate
from entrypoint.github import Client
from tests.github import events
from tests.github.fixtures import github as github
from tests.github.server import GitHub
from tests.github.state import Comment

Outputs = dict[str, str]


@dataclass
class Gate:
    """Runs it in this process, with waits that take no time."""

    github: GitHub
    folder: Path
    waited: list[float]

    def on(self, event: events.Event, *arguments: str, **inputs: str) -> tuple[int, Outputs]:
        """Return its exit code and outputs for an event; `inputs` as in `action.yml`, with underscores."""
        env = events.environ(self.github, event, self.folder)
        path = self.folder / "output"
        path.unlink(missing_ok=True)
        env |= {f"INPUT_{name.upper()}": value for name, value in inputs.items()}
        env |= {"INPUT_TOKEN": env.pop("GITHUB_TOKEN"), "GITHUB_OUTPUT": str(path)}
        code = gate.main(arguments, {**env, "GITHUB_WORKSPACE": str(self.folder / "workspace")})
        return code, outputs(path)

    def on_comment(self, body: str, *, user: str = "maya", was: str | None = None) -> tuple[int, Outputs, Comment]:
        """Return the same for a comment on pull request 7, and the comment."""
        comment = self.github.repository.add_comment(7, body, user=user)
        return *self.on(events.issue_comment(self.github, comment, was=was)), comment

    def replies(self) -> list[str]:
        """Return what the gate wrote on pull request 7."""
        return [c.body for c in self.github.repository.comments_on(7) if c.user.login == "github-actions[bot]"]


def outputs(path: Path) -> Outputs:
    """Read a file of outputs as a runner does: `name<<delimiter`, lines, the delimiter."""
    found: Outputs = {}
    lines = iter(path.read_text().splitlines() if path.exists() else [])
    for line in lines:
        name, mark, delimiter = line.partition("<<")
        assert mark, line
        value = []
        for part in lines:
            if part == delimiter:
                break
            value.append(part)
        found[name] = "\n".join(value)
    return found


def reactions(comment: Comment) -> list[str]:
    return [content for _, _, content in comment.reactions]


@pytest.fixture
def at_gate(github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    waited: list[float] = []
    patient: Callable[..., Client] = lambda url, token: Client(url, token, sleep=waited.append)  # noqa: E731
    monkeypatch.setattr(gate, "Client", patient)
    return Gate(github, tmp_path, waited)
