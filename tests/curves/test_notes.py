from hypothesis import given
from hypothesis import strategies as st

from parity.curves.notes import Notes, plain


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


def test_notes__lines_of_a_kind_are_counted() -> None:
    notes = Notes()
    for line in range(1, 8):
        notes.at("broken", line)
    notes.at("odd", 9)
    assert [note.text for note in notes.all()] == ["broken: lines 1, 2, 3 and 4 more", "odd: line 9"]


def test_notes__bounded() -> None:
    notes = Notes()
    for kind in range(1000):
        notes.add(f"kind {kind}")
    assert len(notes.all()) == 21
    assert notes.all()[-1].text == "and 980 more"
