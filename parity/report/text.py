"""Numbers and untrusted text, as reports show them."""

import math
import re
import string
from collections.abc import Sequence

from parity.plain import plain

__all__ = ["code_block", "escape", "gap", "seconds", "sparkline", "times", "value"]

_BARS = "▁▂▃▄▅▆▇█"
# Punctuation that means nothing in Markdown stays readable in the source.
_ENCODED = set(string.punctuation) - set(".,:;/%+-=()'\"?")
_REFERENCES = {ord(c): f"&#{ord(c)};" for c in _ENCODED} | {0: "_"}


def escape(text: object, limit: int = 2000) -> str:
    """Untrusted text as Markdown that renders as just that text.

    It can close no cell, fence or tag, start no list, mention nobody, link nowhere and hide nothing: characters that
    could become structure are written as character references, which CommonMark (0.31, 2.5) never takes for
    structure, and a zero-width space breaks mentions, issue numbers and addresses, found by GitHub after rendering.
    """
    line = plain(text, limit)
    if re.match(r"(?:[-+]|\d+[.)])(?:\s|$)|[-=]{2}|=$", line):
        line = "\u200b" + line
    broken = re.sub(r"([@#]|://|www\.|\bGH-)", "\\1\u200b", line, flags=re.IGNORECASE)
    # An underscore inside a word is no emphasis in GitHub's Markdown, and metrics are full of them.
    return re.sub(r"(?<=[a-z0-9])_(?=[a-z0-9])", "\0", broken, flags=re.IGNORECASE).translate(_REFERENCES)


def code_block(text: str, limit: int = 20_000) -> str:
    """Untrusted lines in a fence longer than any that they hold."""
    lines = [plain(line, 2000).replace("\u200b", "") for line in text[:limit].splitlines()]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *lines, fence])


def gap(number: float | None) -> str:
    """A gap or a bound in three digits; a dash where there is none."""
    if number is None:
        return "–"
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "∞"
    return "0" if number == 0 else f"{number:.2e}"


def times(number: float | None) -> str:
    """How many times something is allowed, or the floor."""
    if number is None or math.isnan(number):
        return "–"
    if math.isinf(number):
        return "∞"
    if 0 < number < 0.01:
        return "<0.01"
    return "0" if number == 0 else f"{number:.2f}" if number < 100 else f"{number:.3g}"


def value(number: float | None) -> str:
    """A logged value, to the nine digits that tell any two float32 apart."""
    if number is None:
        return "–"
    return f"{number:.9g}"


def seconds(number: float | None) -> str:
    """A length of time."""
    return "–" if number is None else f"{number:.1f} s"


def sparkline(numbers: Sequence[float | None]) -> str:
    """Sizes on a logarithmic scale as bars; `·` for an exact zero, `×` for a value that is not finite."""
    logs = [math.log10(n) for n in numbers if n]
    if not logs:
        return "".join("×" if n is None else "·" for n in numbers)
    low, high = min(logs), max(logs)
    span = max(high - low, 1.0)
    return "".join(
        "×" if n is None else "·" if n == 0 else _BARS[min(7, int((math.log10(n) - low) / span * 7.999))]
        for n in numbers
    )
