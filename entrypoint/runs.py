"""Runs that a comment remembers, and the pages that show them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, StringConstraints

from parity.result import Model, VerdictName

__all__ = ["KEPT", "Links", "Run", "kept"]

KEPT: Final = 5
"""Runs that a comment remembers; the last one that passed may be one more."""

_Name = StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,23}$")
_Hash = StringConstraints(pattern=r"^[0-9a-f]{8}$")


class Run(Model):
    """One run, as the comment remembers it. Holds no text of anybody's.

    Attributes:
        sha: the commit that was tested.
        verdict: of it.
        run: id of the workflow run.
        attempt: of that run.
        step: the worst step.
        time: when it was published, UTC.
        facts: by name, a hash of what its numbers depend on.
    """

    sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    verdict: VerdictName
    run: Annotated[int, Field(ge=0, lt=1 << 63)]
    attempt: Annotated[int, Field(ge=0, lt=1 << 31)]
    step: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None
    time: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    facts: dict[Annotated[str, _Name], Annotated[str, _Hash]] = Field(default={}, max_length=20)

    @property
    def number(self) -> tuple[int, int]:
        """Larger for what was started later."""
        return self.run, self.attempt


@dataclass(frozen=True)
class Links:
    """Addresses on the web pages.

    Attributes:
        server: as in GITHUB_SERVER_URL.
        repository: owner and name.
    """

    server: str
    repository: str

    def run(self, run: Run) -> str:
        """The page of a run, which holds its summary."""
        return f"{self.server}/{self.repository}/actions/runs/{run.run}/attempts/{run.attempt}"

    def commit(self, sha: str) -> str:
        """The page of a commit."""
        return f"{self.server}/{self.repository}/commit/{sha}"

    def compare(self, old: str, new: str) -> str:
        """The page of what lies between two commits."""
        return f"{self.server}/{self.repository}/compare/{old}...{new}"


def kept(runs: Sequence[Run]) -> list[Run]:
    """The runs to remember, of those known: the first ones, and the last that passed, if none of these did."""
    passed = [] if any(run.verdict == "pass" for run in runs[:KEPT]) else runs[KEPT:]
    return [*runs[:KEPT], *[run for run in passed if run.verdict == "pass"][:1]]
