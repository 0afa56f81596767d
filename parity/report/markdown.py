"""The Markdown report."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined

from parity.report import text
from parity.result import LegResult, Result

__all__ = ["Section", "environment", "render_markdown", "render_sections"]

_MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "💥", "not run": "➖"}


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
    worst = [one for one in result.comparisons if one.metrics or any(o.parameters or o.shares for o in one.outcomes)]
    return (
        environment()
        .get_template("report.md.j2")
        .render(result=result, worst=worst, environment=_side_by_side(result.legs))
    )


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
    return list(_split(render_markdown(result)))


def _split(report: str) -> Iterator[Section]:
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
    return [(key, [leg.environment.get(key, "–") for leg in legs]) for key in keys]
