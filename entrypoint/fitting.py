"""A report in as many bytes as there are, cut where nothing is left open. Pure."""

import re
from collections.abc import Sequence

from parity.report.sections import Chapter

__all__ = ["cut", "fit", "size"]

# Part of a table is worth showing from about ten rows on.
_WORTH = 2000


def fit(report: Sequence[Chapter], budget: int, left_out: str) -> str:
    """The chapters in at most `budget` bytes of UTF-8, their parts whole or not at all.

    Only what comes first is cut within, at a line: the verdict, and after it the first part of a chapter if there
    would be no other.

    Args:
        report: the most important first, the verdict's before all.
        budget: bytes.
        left_out: a paragraph for the end of a text that is not whole.
    """
    note = f"\n{left_out}\n"
    if size(whole := "".join(map(str, report))) <= budget:
        return whole
    room = budget - size(note)
    shown: list[str] = []
    for chapter in report:
        free = room - size(chapter.opening + chapter.closing)
        parts: list[str] = []
        for part in chapter.parts:
            if size(part) > free:
                if len(shown) < 2 and not parts and (not shown or free >= _WORTH):
                    parts.append(cut(part, free))
                break
            parts.append(part)
            free -= size(part)
        if parts or (not shown and free >= 0):
            shown.append(chapter.opening + "".join(parts) + chapter.closing)
            room -= size(shown[-1])
    return "".join(shown) + note


def cut(text: str, budget: int) -> str:
    """Whole lines from the start of a balanced text, in at most `budget` bytes, with everything closed again."""
    lines = text.split("\n")
    fence, folds, used, best = "", 0, 0, (0, "")
    for number, line in enumerate(lines[:-1]):
        if fence:
            fence = "" if line.rstrip() == fence else fence
        elif found := re.match(r"```+", line):
            fence = found[0]
        else:
            folds += line.count("<details>") - line.count("</details>")
        used += size(line) + 1
        closing = (f"{fence}\n" if fence else "") + "\n</details>\n" * folds
        # The head of a table without the line below it would be a paragraph.
        if used + size(closing) <= budget and not lines[number + 1].startswith("| ---"):
            best = number + 1, closing
        if used > budget:
            break
    return "".join(f"{line}\n" for line in lines[: best[0]]) + best[1]


def size(text: str) -> int:
    """Bytes in UTF-8."""
    return len(text.encode())
