from parity.curves.notes import Notes


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
