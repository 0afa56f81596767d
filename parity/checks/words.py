"""How reasons spell steps and numbers."""

from collections.abc import Iterable

__all__ = ["number", "plural", "spans"]


def number(value: float) -> str:
    """Three significant digits; exact zero as 0."""
    return "0" if value == 0 else f"{value:.3g}"


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
