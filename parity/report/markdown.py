"""The Markdown report."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from parity.checks.outcome import Verdict
from parity.report import text
from parity.result import ComparisonResult, LegResult, Result

__all__ = ["Section", "environment", "render_markdown", "render_sections", "split"]

_T = TypeVar("_T")

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "💥", "not run": "➖"}
# Whoever wrote the suite and the logs, a report is of a size that can be made and read.
_MOST_LEGS = 200
_MOST_COMPARISONS = 200
_MOST_METRICS = 100  # of a comparison
_MOST_NOTES = 200
_MOST_ROWS = 100  # of the environment
_LONGEST_CELL = 200  # of it


def environment() -> Environment:
    """The templates, in which every expression is escaped."""
    # Autoescape is for HTML. Here every expression is escaped for Markdown as it is put into the text, whoever wrote
    # it, unless a filter below made it.
    environment = Environment(  # noqa: S701
        loader=PackageLoader("parity.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finished,
    )
    environment.filters.update(
        code_block=text.code_block,
        gap=text.gap,
        percent=text.percent,
        ratio=text.ratio,
        seconds=text.seconds,
        sparkline=text.sparkline,
        template=text.Safe,  # what a macro made: its own expressions were escaped
        times=text.times,
        value=text.value,
    )
    environment.globals["mark"] = _MARKS
    return environment


def _finished(value: object) -> str:
    return value if isinstance(value, text.Safe) else text.escape(value)


def render_markdown(result: Result) -> str:
    """The whole report; ends with a line break."""
    caps = _Caps()
    result = caps.result(result)
    worst = [one for one in result.comparisons if one.metrics or any(o.parameters or o.shares for o in one.outcomes)]
    rows = _side_by_side(result.legs)
    return (
        environment()
        .get_template("report.md.j2")
        .render(
            result=result,
            worst=worst,
            left_out=caps.left_out,
            environment=rows[:_MOST_ROWS],
            more=max(0, len(rows) - _MOST_ROWS),
        )
    )


class _Caps:
    """As much of a result as a report shows, and what is left out of it."""

    def __init__(self) -> None:
        self.left_out: list[str] = []

    def result(self, whole: Result) -> Result:
        legs = self._cap("legs", whole.legs, _MOST_LEGS, lambda leg: int(leg.status in ("finished", "read")))
        worst_first: Callable[[ComparisonResult], int] = lambda one: -Verdict(one.verdict).severity  # noqa: E731
        comparisons = self._cap("comparisons", whole.comparisons, _MOST_COMPARISONS, worst_first)
        changed = {
            "legs": legs,
            "comparisons": [self._comparison(one) for one in comparisons],
            "notes": self._cap("notes", whole.notes, _MOST_NOTES),
        }
        return whole.model_copy(update=changed)

    def _comparison(self, whole: ComparisonResult) -> ComparisonResult:
        who = f"{whole.candidate} against {whole.baseline}"
        outcomes = [
            one.model_copy(update={"gaps": self._cap(f"gaps of {one.check}, {who},", one.gaps, _MOST_METRICS)})
            for one in whole.outcomes
        ]
        metrics = self._cap(f"metrics of {who}", whole.metrics, _MOST_METRICS)
        return whole.model_copy(update={"outcomes": outcomes, "metrics": metrics})

    def _cap(self, what: str, ones: list[_T], most: int, order: Callable[[_T], int] = lambda _: 0) -> list[_T]:
        """Those that come first by `order`, as they stood."""
        if len(ones) <= most:
            return ones
        self.left_out.append(f"{len(ones) - most} of {len(ones)} {what} are left out here.")
        kept = sorted(range(len(ones)), key=lambda index: order(ones[index]))[:most]
        return [ones[index] for index in sorted(kept)]


@dataclass(frozen=True)
class Section:
    """A part of a report that can be left out by itself: no table, fence or fold crosses its borders.

    Attributes:
        level: of its heading, 1 to 3; 0 for a fold (`<details>`), which has none.
        title: its heading, as Markdown.
        text: what stands below the heading, with all line breaks.
    """

    level: int
    title: str
    text: str

    def __str__(self) -> str:
        return f"{'#' * self.level} {self.title}\n{self.text}" if self.level else self.text


def render_sections(result: Result) -> list[Section]:
    """The whole report in parts, the first with the verdict; joined they are what `render_markdown` gives."""
    return list(split(render_markdown(result)))


def split(report: str) -> Iterator[Section]:
    """The parts of a report that `render_markdown` made."""
    level, title, lines, fence = 1, "", list[str](), ""
    for line in report.splitlines(keepends=True):
        if fence:
            fence = "" if line.rstrip() == fence else fence
        elif found := re.match(r"```+", line):
            fence = found[0]
        elif found := re.match(r"(#{1,3}) (.*)|<details>", line):
            if title or lines:
                yield Section(level, title, "".join(lines))
            level, title, lines = len(found[1] or ""), found[2] or "", []
            if level:
                continue
        lines.append(line)
    yield Section(level, title, "".join(lines))


def _side_by_side(legs: list[LegResult]) -> list[tuple[str, list[object]]]:
    """What the legs recorded of their environment, a row a key; what is not one value is left out."""
    keys = dict.fromkeys(key for leg in legs for key, value in leg.environment.items() if not isinstance(value, dict))
    return [
        (text.escape(key, _LONGEST_CELL), [text.escape(leg.environment.get(key, "–"), _LONGEST_CELL) for leg in legs])
        for key in keys
    ]
