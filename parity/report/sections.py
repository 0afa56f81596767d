"""A Markdown report in parts that can be left out: the first screen, and one for each fold after it. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Chapter", "chapters", "tidy"]

_FOLD = re.compile(r"<details><summary>(.*)</summary>\n")


@dataclass(frozen=True)
class Chapter:
    """The first screen, a fold, or what stands between folds; joined they are the report.

    Attributes:
        title: of a fold, as Markdown; else empty.
        opening: what it begins with.
        parts: each balanced in itself: no table, fence or tag crosses its borders.
        closing: what it ends with.
    """

    title: str
    opening: str
    parts: tuple[str, ...]
    closing: str = ""

    def __str__(self) -> str:
        return self.opening + "".join(self.parts) + self.closing


def chapters(report: str) -> list[Chapter]:
    """The chapters of a report that `render_markdown` made, the first screen first."""
    found: list[Chapter] = []
    title, opening, parts = "", "", [""]
    for line, fenced in _lines(report):
        fold = None if fenced or opening else _FOLD.fullmatch(line)
        if fold:
            between = "".join(parts)
            # An empty line before a fold is no chapter.
            found += _chapter(title, opening, parts) if between.strip() else []
            title, opening, parts = fold[1], line if between.strip() else between + line, [""]
        elif opening and not fenced and line == "</details>\n":
            found += _chapter(title, opening, parts, line)
            title, opening, parts = "", "", [""]
        else:
            if opening and not fenced and line.startswith("### "):
                parts.append("")
            parts[-1] += line
    return [*found, *_chapter(title, opening, parts)]


def tidy(report: str) -> str:
    """The report with no more than one empty line between others, but in fences."""
    kept, before = [], "\n"
    for line, fenced in _lines(report):
        if fenced or line != "\n" or before != "\n":
            kept.append(line)
        before = line
    return "".join(kept).rstrip("\n") + "\n"


def _chapter(title: str, opening: str, parts: list[str], closing: str = "") -> list[Chapter]:
    chapter = Chapter(title, opening, tuple(part for part in parts if part), closing)
    return [chapter] if str(chapter) else []


def _lines(report: str) -> Iterator[tuple[str, bool]]:
    """Every line with its end, and whether it is within a fence or opens or closes one."""
    fence = ""
    for line in report.splitlines(keepends=True):
        found = None if fence else re.match(r"```+", line)
        yield line, bool(fence or found)
        if found:
            fence = found[0]
        elif fence and line.rstrip() == fence:
            fence = ""
