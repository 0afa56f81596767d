"""The text of the comment: a marker to find it by, what the next run must know of this one, and the report. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field, StringConstraints, ValidationError

from entrypoint.fitting import Chapter, fit, size
from parity.result import Model, VerdictName

__all__ = ["BUDGET", "KEPT", "Links", "Run", "marker", "parse", "render"]

# GitHub takes 65,536 characters; what it does to a text on its way there is not known to the byte.
BUDGET: Final = 60_000
# Runs that the comment remembers.
KEPT: Final = 5

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "💥"}
# What is short enough to stand open; the rest of a report is folded.
_OPEN = ("Comparisons", "Worst step", "Reproduce")


class Run(Model):
    """One run, as the comment remembers it. Holds no text of anybody's.

    Attributes:
        sha: the commit that was tested.
        verdict: of it.
        run: id of the workflow run.
        attempt: of that run.
        step: the worst step.
        time: when it was published, UTC.
    """

    sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    verdict: VerdictName
    run: Annotated[int, Field(ge=0, lt=1 << 63)]
    attempt: Annotated[int, Field(ge=0, lt=1 << 31)]
    step: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None
    time: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]

    @property
    def number(self) -> tuple[int, int]:
        """Larger for what was started later."""
        return self.run, self.attempt


class _State(Model):
    runs: Annotated[list[Run], Field(max_length=KEPT)]


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


def marker(key: str) -> str:
    """The line that the comment of a key begins with."""
    # `--` would end an HTML comment early in some readers.
    return f"<!-- parity-action v=1 key={quote(key, safe='').replace('--', '-%2D')} -->"


def parse(body: str) -> list[Run]:
    """The runs that a comment remembers, the one that it shows first; none if it says nothing that can be read."""
    lines = body.replace("\r\n", "\n").split("\n", 2)
    found = re.fullmatch(r"<!-- parity-state (\{.{0,4000}\}) -->", lines[1]) if len(lines) > 1 else None
    if not found:
        return []
    try:
        return list(_State.model_validate_json(found[1]).runs)
    except ValidationError:
        return []


def render(key: str, runs: Sequence[Run], report: Sequence[Chapter], links: Links) -> str:
    """The whole comment, in at most `BUDGET` bytes.

    Args:
        key: of the comment.
        runs: the one that is reported, then earlier ones.
        report: the chapters of its report, the verdict's first.
        links: to the web pages.
    """
    runs = runs[:KEPT]
    state = json.dumps(_State(runs=list(runs)).model_dump(mode="json"), separators=(",", ":"))
    state = state.replace("--", "-\\u002d")
    head = f"{marker(key)}\n<!-- parity-state {state} -->\n\n"
    history = _history(runs, links) if len(runs) > 1 else ""
    run = links.run(runs[0])
    end = f"\n[Run {runs[0].run}]({run}) of [{runs[0].sha[:7]}]({links.commit(runs[0].sha)}) has the whole report.\n"
    left_out = f"This is not all: the rest is in the summary of [run {runs[0].run}]({run})."
    order = [*report[:1], *(one for one in report[1:] if one.title in _OPEN)]
    order += [one.folded() for one in report[1:] if one.title not in _OPEN]
    room = BUDGET - size(head) - size(history) - size(end)
    return (head + fit(order, room, left_out) + history + end).strip() + "\n"


def _history(runs: Sequence[Run], links: Links) -> str:
    rows = [
        f"| [`{run.sha[:7]}`]({links.commit(run.sha)}) | {_MARKS[run.verdict]} {run.verdict} |"
        f" {'–' if run.step is None else run.step} | [{run.run}]({links.run(run)}) | {run.time} |\n"
        for run in runs
    ]
    return (
        f"\n<details><summary>Last {len(runs)} runs</summary>\n\n"
        "| commit | verdict | worst step | run | published |\n| --- | --- | ---: | --- | --- |\n"
        f"{''.join(rows)}\n</details>\n"
    )
