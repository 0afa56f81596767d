"""The text of the comment: a marker to find it by, what the next run must know of this one, and the report. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field, ValidationError

from entrypoint.fitting import fit, size
from entrypoint.runs import KEPT, Links, Run, kept
from entrypoint.since import changed
from parity.report.markdown import MARKS
from parity.report.sections import Chapter
from parity.report.text import escape
from parity.result import Model

__all__ = ["BUDGET", "marker", "parse", "render"]

# GitHub takes 65,536 characters; what it does to a text on its way there is not known to the byte.
BUDGET: Final = 60_000


class _State(Model):
    runs: Annotated[list[Run], Field(max_length=KEPT + 1)]


def marker(key: str) -> str:
    """The line that the comment of a key begins with."""
    # `--` would end an HTML comment early in some readers.
    return f"<!-- parity-action v=1 key={quote(key, safe='').replace('--', '-%2D')} -->"


def parse(body: str) -> list[Run]:
    """The runs that a comment remembers, the one that it shows first; none if it says nothing that can be read."""
    lines = body.replace("\r\n", "\n").split("\n", 2)
    found = re.fullmatch(r"<!-- parity-state (\{.{0,8000}\}) -->", lines[1]) if len(lines) > 1 else None
    if not found:
        return []
    try:
        return list(_State.model_validate_json(found[1]).runs)
    except ValidationError:
        return []


def render(key: str, runs: Sequence[Run], report: Sequence[Chapter], links: Links, notice: str = "") -> str:
    """The whole comment, in at most `BUDGET` bytes.

    Args:
        key: of the comment.
        runs: the one that is reported, then earlier ones.
        report: the chapters of its report, the first screen first.
        links: to the web pages.
        notice: what else is odd about the comment; anybody's text.
    """
    runs = kept(runs)
    state = json.dumps(_State(runs=runs).model_dump(mode="json"), separators=(",", ":"))
    state = state.replace("--", "-\\u002d")
    head = f"{marker(key)}\n<!-- parity-state {state} -->\n\n" + (f"> ⚠️ {escape(notice, 500)}\n\n" if notice else "")
    history = _history(runs[:KEPT], links) if len(runs) > 1 else ""
    run = links.run(runs[0])
    end = f"\n[Run {runs[0].run}]({run}) of [{runs[0].sha[:7]}]({links.commit(runs[0].sha)}) has the whole report.\n"
    left_out = f"This is not all: the rest is in the summary of [run {runs[0].run}]({run})."
    screen = "".join(report[0].parts).rstrip("\n") + f"\n{changed(runs, links)}\n"
    first = Chapter("", report[0].opening, (screen,), report[0].closing)
    room = BUDGET - size(head) - size(history) - size(end)
    return (head + fit([first, *report[1:]], room, left_out) + history + end).strip() + "\n"


def _history(runs: Sequence[Run], links: Links) -> str:
    rows = [
        f"| [`{run.sha[:7]}`]({links.commit(run.sha)}) | {MARKS[run.verdict]} {run.verdict} |"
        f" {'–' if run.step is None else run.step} | [{run.run}]({links.run(run)}) | {run.time} |\n"
        for run in runs
    ]
    return (
        f"\n<details><summary>Last {len(runs)} runs</summary>\n\n"
        "| commit | verdict | worst step | run | published |\n| --- | --- | ---: | --- | --- |\n"
        f"{''.join(rows)}\n</details>\n"
    )
