"""Untrusted text on one printable line."""

from hypothesis import given
from hypothesis import strategies as st

from parity.plain import plain


def test_plain__escapes_go_with_their_parameters() -> None:
    text = "\x1b[31;1mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x07 a\x00b\u202ec\ud800d\r\ne"
    assert plain(text) == "red link abcd e"


def test_plain__length() -> None:
    assert plain("x" * 1000, 10) == "x" * 9 + "…"


@given(st.text(st.characters()))
def test_plain__any_text_prints_on_one_line(text: str) -> None:
    shown = plain(text)
    assert len(shown) <= 200
    shown.encode()
    assert shown.isprintable()
