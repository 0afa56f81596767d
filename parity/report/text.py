"""Numbers and untrusted text, as reports show them."""

import math
import re
import string
from collections.abc import Callable, Sequence

from parity.plain import plain

__all__ = ["Safe", "code_block", "escape", "gap", "percent", "ratio", "seconds", "sparkline", "times", "value"]

_BARS = "▁▂▃▄▅▆▇█"
# Punctuation that means nothing in Markdown stays readable in the source.
_ENCODED = set(string.punctuation) - set(".,:;/%+-=()'\"?")
_REFERENCES = {ord(c): f"&#{ord(c)};" for c in _ENCODED} | {0: "_"}


class Safe(str):
    """Markdown of our own making, or text that was escaped: it may stand in a report as it is."""

    __slots__ = ()


def escape(text: object, limit: int = 2000) -> Safe:
    """Untrusted text as Markdown that renders as just that text.

    It can close no cell, fence or tag, start no list, mention nobody, link nowhere and hide nothing: characters that
    could become structure are written as character references, which CommonMark (0.31, 2.5) never takes for
    structure, and a zero-width space breaks mentions, issue numbers and addresses, found by GitHub after rendering.
    """
    line = plain(text, limit)
    if re.match(r"(?:[-+]|\d+[.)])(?:\s|$)|[-=]{2}|=$", line):
        line = "\u200b" + line
    broken = re.sub(r"([@#]|\bGH-)", "\\1\u200b", line, flags=re.IGNORECASE)
    # Before the colon and the dot: after them, GitHub's own parser makes a link of the rest all the same.
    broken = re.sub(r"(?=://)|(?<=www)(?=\.)", "\u200b", broken, flags=re.IGNORECASE)
    # An underscore inside a word is no emphasis in GitHub's Markdown, and metrics are full of them.
    kept = re.sub(r"(?<=[a-z0-9])_(?=[a-z0-9])", "\0", broken, flags=re.IGNORECASE)
    return Safe(kept.translate(_REFERENCES))


def code_block(text: str, limit: int = 20_000) -> Safe:
    """Untrusted lines in a fence longer than any that they hold."""
    lines = [plain(line, 2000).replace("\u200b", "") for line in text[:limit].splitlines()]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return Safe("\n".join([fence, *lines, fence]))


def gap(number: float | None) -> Safe:
    """A gap or a bound in three digits; a dash where there is none."""
    return _written(number, lambda n: "0" if n == 0 else f"{n:.2e}")


def times(number: float | None) -> Safe:
    """How many times something is allowed, or the floor."""
    if number is None or math.isnan(number):
        return Safe("–")
    return _written(number, _times)


def _times(number: float) -> str:
    if 0 < number < 0.01:
        return "<0.01"
    return "0" if number == 0 else f"{number:.2f}" if abs(number) < 100 else f"{number:.3g}"


def value(number: float | None) -> Safe:
    """A logged value, to the nine digits that tell any two float32 apart."""
    return _written(number, lambda n: f"{n:.9g}")


def ratio(number: float | None) -> Safe:
    """A ratio of norms or a cosine, in as many digits as tell 2 from 1.9999."""
    return _written(number, lambda n: f"{n:.6g}")


def percent(number: float | None) -> Safe:
    """A part of a whole."""
    return _written(number, lambda n: "<1 %" if 0 < n < 0.005 else f"{100 * n:.0f} %")


def seconds(number: float | None) -> Safe:
    """A length of time."""
    return _written(number, lambda n: f"{n:.1f} s")


def _written(number: float | None, finite: Callable[[float], str]) -> Safe:
    if number is None:
        return Safe("–")
    if math.isnan(number):
        return Safe("NaN")
    if math.isinf(number):
        return Safe("∞" if number > 0 else "-∞")
    return Safe(finite(number))


def sparkline(numbers: Sequence[float | None]) -> Safe:
    """Sizes on a logarithmic scale as bars; `·` for an exact zero, `×` for a value that is none or not finite."""
    sizes = [None if n is None or not math.isfinite(n) else abs(n) for n in numbers]
    logs = [math.log10(size) for size in sizes if size]
    low = min(logs, default=0.0)
    span = max(max(logs, default=0.0) - low, 1.0)

    def bar(size: float | None) -> str:
        if size is None:
            return "×"
        return _BARS[min(7, int((math.log10(size) - low) / span * 7.999))] if size else "·"

    return Safe("".join(map(bar, sizes)))
