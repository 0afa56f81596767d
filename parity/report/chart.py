"""A chart that GitHub draws from text: Mermaid's `xychart-beta`. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from parity.report import text
from parity.result import ComparisonResult, MetricResult

__all__ = ["POINTS", "Drawing", "draw"]

POINTS: Final = 50
"""Of a line: as many as a comment is wide for."""

_LINES = 2  # and a third for what is allowed
# Colours that a bright and a dark page both show, and the signs that stand for them in a legend.
_PALETTE = (("#d1242f", "🟥"), ("#218bff", "🟦"), ("#8c959f", "⬜"))


@dataclass(frozen=True)
class Drawing:
    """A chart and what explains it.

    Attributes:
        lines: Mermaid source, without the fence; holds nothing but numbers and words of our own.
        legend: a sign and what it stands for, for each line.
        cut: whether a point that is not finite, or beyond what a chart can show, stands at the top.
    """

    lines: str
    legend: list[tuple[str, str]]
    cut: bool


def draw(comparison: ComparisonResult) -> Drawing | None:
    """The gaps of a comparison's curves over all steps, in units of what was allowed; None without two steps.

    Each point is the largest of its stretch of steps, all of one length.
    """
    drawn = [one for one in comparison.metrics if one.deviation and len(one.deviation.steps) > 1][:_LINES]
    steps = [step for one in drawn if one.deviation for step in one.deviation.steps]
    if not steps or min(steps) == max(steps):
        return None
    first, last = min(steps), max(steps)
    count = min(POINTS, last - first + 1)
    lines = [_line(one, first, last, count) for one in drawn]
    # Of a line that is zero throughout there is still something to see: what is allowed.
    finite = [value for line in lines for value in line if math.isfinite(value)]
    top = min(max([1.0, *finite]), 1e9)
    heights = [[text.fixed(value if value < top else top) for value in line] for line in lines]
    heights.append([text.fixed(1.0)] * count)
    used = [*_PALETTE[: len(drawn)], _PALETTE[-1]]
    source = [
        '%%{init: {"themeVariables": {"xyChart": {"plotColorPalette": "COLOURS"}}}}%%'.replace(
            "COLOURS", ", ".join(colour for colour, _ in used)
        ),
        "xychart-beta",
        f'    x-axis "step" {first} --> {last}',
        f'    y-axis "times what is allowed" 0 --> {text.fixed(top * 1.05)}',
        *(f"    line [{', '.join(line)}]" for line in heights),
    ]
    names = [*(one.metric for one in drawn), "what is allowed"]
    return Drawing(
        lines="\n".join(source),
        legend=[(sign, name) for (_, sign), name in zip(used, names, strict=True)],
        cut=any(not value <= top for line in lines for value in line),
    )


def _line(metric: MetricResult, first: int, last: int, count: int) -> Sequence[float]:
    """The largest of each stretch of steps, infinite where one is not finite; one without a step is as the last."""
    assert metric.deviation is not None
    heights: list[float | None] = [None] * count
    for step, times in zip(metric.deviation.steps, metric.deviation.times_allowed, strict=True):
        at = (step - first) * count // (last - first + 1)
        known = times if math.isfinite(times) else math.inf
        heights[at] = max(known, heights[at] or 0.0)
    filled, before = [], 0.0
    for height in heights:
        before = before if height is None else height
        filled.append(before)
    return filled
