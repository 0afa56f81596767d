"""Numbers and untrusted text, as reports show them. Every format spells a number by these functions."""

import math
import re
import string
from collections.abc import Callable, Sequence
from itertools import pairwise

from parity.checks import words
from parity.plain import plain

__all__ = [
    "Safe",
    "code_block",
    "code_span",
    "escape",
    "fixed",
    "gap",
    "memory",
    "percent",
    "ratio",
    "seconds",
    "sparkline",
    "times",
    "value",
]

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
    lines = [_indent(line) + plain(line, 2000) for line in text[:limit].splitlines()]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return Safe("\n".join([fence, *lines, fence]))


def _indent(line: str) -> str:
    return " " * min(40, len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip(" ")))


def code_span(text: object, limit: int = 500) -> Safe:
    """Untrusted text as code within a line; a bar would end the cell of a table, even within code."""
    line = plain(text, limit).replace("\u200b", "")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    return Safe(f"{fence} {line} {fence}" if line[:1] == "`" or line[-1:] == "`" else f"{fence}{line}{fence}")


def gap(number: float | None) -> Safe:
    """A gap, a bound or a share of one, in three significant digits; a dash where there is none."""
    return _written(number, words.number)


def times(number: float | None) -> Safe:
    """How many times something is allowed, or the floor; a dash where that has no answer."""
    return _written(None if number is None or math.isnan(number) else number, words.number)


def value(number: float | None) -> Safe:
    """A logged value, to the nine digits that tell any two float32 apart."""
    return _written(number, lambda n: f"{n:.9g}" if math.isfinite(n) else words.number(n))


def ratio(number: float | None) -> Safe:
    """A ratio of norms or a cosine, in as many digits as tell 2 from 1.9999."""
    return _written(number, words.ratio)


def percent(number: float | None) -> Safe:
    """A part of a whole."""
    return _written(number, lambda n: words.number(n) if not math.isfinite(n) else _percent(n))


def _percent(part: float) -> str:
    return "<1 %" if 0 < part < 0.005 else f"{100 * part:.0f} %"


def seconds(number: float | None) -> Safe:
    """A length of time in the unit that fits it: `40 ms`, `6.4 s`, `2 min 5 s`, `1 h 3 min`."""
    return _written(number, lambda n: words.number(n) if not math.isfinite(n) else _seconds(n))


def _seconds(number: float) -> str:
    if 0 < abs(number) < 0.9995:
        return f"{1000 * number:.3g} ms"
    if abs(number) < 99.95:
        return f"{number:.1f} s"
    if abs(number) >= 1e9:
        return f"{words.number(number)} s"
    minutes, rest = divmod(round(number), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def memory(number: float | None) -> Safe:
    """Bytes in the unit that fits them: `512 B`, `1.5 KiB`, `139 GiB`."""
    return _written(number, lambda n: words.number(n) if not math.isfinite(n) else _memory(n))


def _memory(number: float) -> str:
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(len(units) - 1, max(0, int(math.log2(max(abs(number), 1)) // 10)))
    return f"{words.number(number / 1024**power)} {units[power]}"


def fixed(number: float) -> Safe:
    """A finite number of three significant digits without an exponent, at least a millionth, at most a billion."""
    rounded = float(f"{min(max(number, -1e9), 1e9):.3g}")
    written = f"{rounded:.6f}".rstrip("0").rstrip(".")
    return Safe("0" if written == "-0" else written)


def _written(number: float | None, known: Callable[[float], str]) -> Safe:
    return Safe("–" if number is None else known(number))


def sparkline(numbers: Sequence[float | None], width: int = 60) -> Safe:
    """Sizes on a logarithmic scale as at most `width` bars, each the largest of those that it stands for.

    `·` is an exact zero, `×` a value that is none or not finite.
    """
    sizes = [None if n is None or not math.isfinite(n) else abs(n) for n in numbers]
    if len(sizes) > width:
        edges = [len(sizes) * at // width for at in range(width + 1)]
        sizes = [_largest(sizes[first:last]) for first, last in pairwise(edges)]
    logs = [math.log10(size) for size in sizes if size]
    high = max(logs, default=0.0)
    # Within a decade they are much alike, and none of them is small.
    span = max(high - min(logs, default=0.0), 1.0)
    low = high - span

    def bar(size: float | None) -> str:
        if size is None:
            return "×"
        return _BARS[min(7, int((math.log10(size) - low) / span * 7.999))] if size else "·"

    return Safe("".join(map(bar, sizes)))


def _largest(sizes: Sequence[float | None]) -> float | None:
    """None where one is."""
    known = [size for size in sizes if size is not None]
    return max(known) if len(known) == len(sizes) else None
