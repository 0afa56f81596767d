"""Untrusted text as one printable line."""

import re
import unicodedata

__all__ = ["plain"]

# CSI (colours, cursor) and OSC (window titles, hyperlinks, ended by BEL or ST); dropping only the escape
# character would leave their parameters in the text.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?", re.DOTALL)
_SPACES = re.compile(r"\s+")


def plain(text: object, length: int = 200) -> str:
    """`text` on one line, without escapes and unprintable characters, at most `length` characters.

    Control, format (bidirectional overrides, zero width), surrogate, private and unassigned characters go: they can
    hide text, reorder it, or fail to encode.
    """
    # A text may be a megabyte long; four times the length leaves room for what is dropped.
    some = str(text)[: 4 * length]
    one_line = _SPACES.sub(" ", _ESCAPES.sub("", some))
    shown = "".join(c for c in one_line if unicodedata.category(c)[0] != "C").strip()
    return shown if len(shown) <= length else shown[: length - 1] + "…"
