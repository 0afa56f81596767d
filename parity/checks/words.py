"""How reasons spell steps and numbers; tables spell them alike (`parity.report.text`)."""

import math
from collections.abc import Iterable

__all__ = ["age", "number", "plural", "ratio", "spans"]


def number(value: float) -> str:
    """Three significant digits: `2.08e-06`, `0.457`, `22,900`; exact zero as 0."""
    return _written(value, 3)


def age(seconds: float) -> str:
    """A length of time in its largest unit: `12 s`, `3 min`, `5 h`, `12 days`."""
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            count = int(seconds // size)
            return plural(count, unit) if unit == "day" else f"{count} {unit}"
    return f"{int(seconds)} s"


def ratio(value: float) -> str:
    """A ratio of norms or a cosine, in six digits, which tell 2 from 1.9999."""
    return _written(value, 6)


def _written(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if 10**digits <= abs(rounded) < 1e6 else f"{rounded:.{digits}g}"


def plural(count: int, noun: str) -> str:
    """`1 step`, `2 steps`, `2 batches`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith(('s', 'x', 'ch')) else 's'}"


def spans(steps: Iterable[int], limit: int = 4) -> str:
    """Sorted steps as ranges, `0, 3–7, 9`, and how many ranges were left out beyond `limit`."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    text = ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in ranges[:limit])
    return text + (f" and {plural(len(ranges) - limit, 'more range')}" if len(ranges) > limit else "")
