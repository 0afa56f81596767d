import json

from hypothesis import given
from hypothesis import strategies as st

from parity.curves.notes import Notes
from parity.curves.records import Record, Repeated, objects


def read(text: str) -> tuple[list[Record], list[int], list[str]]:
    notes = Notes()
    records: list[Record] = []
    numbers: list[int] = []
    for some, at in objects(iter(text.split("\n")), notes):
        records += some
        numbers += at
    return records, numbers, [note.text for note in notes.all()]


def test_objects__every_line_one_object() -> None:
    assert read('{"a": 1}\n{"a": 2}') == ([{"a": 1}, {"a": 2}], [1, 2], [])


def test_objects__torn_last_line() -> None:
    records, _, notes = read('{"a": 1}\n{"a": 2, "b\n\n')
    assert records == [{"a": 1}]
    assert notes == ["the last line is torn, as after a crash, and was ignored: line 2"]


def test_objects__a_broken_line_costs_only_itself() -> None:
    records, numbers, notes = read('{"a": 1}\n{"a": 2, "b\n{"a": 3}')
    assert records == [{"a": 1}, {"a": 3}]
    assert numbers == [1, 3]
    assert notes == ["not one JSON object, ignored: line 2"]


def test_objects__a_broken_line_at_the_end_of_a_batch() -> None:
    lines = ['{"a": 1}'] * 3000
    lines[1023] = '{"a'
    records, _, notes = read("\n".join(lines))
    assert len(records) == 2999
    assert notes == ["not one JSON object, ignored: line 1024"]


def test_objects__two_objects_on_a_line_are_not_two_records() -> None:
    for line in ('{"a":1},{"a":2}', '{"a":1}{"a":2}', '{"a":1} x'):
        records, _, notes = read('{"a": 0}\n' + line + '\n{"a": 3}')
        assert records == [{"a": 0}, {"a": 3}]
        assert notes == ["not one JSON object, ignored: line 2"]


def test_objects__an_object_over_two_lines_is_not_a_record() -> None:
    records, _, notes = read('{"a": [1\n2]}\n{"a": 3}')
    assert records == [{"a": 3}]
    assert notes == ["not one JSON object, ignored: line 1", "lines of other text were ignored: line 2"]


def test_objects__other_text_is_counted() -> None:
    records, numbers, notes = read('Loading…\n[1]\n  {"a": 1}  \n7\n')
    assert (records, numbers) == ([{"a": 1}], [3])
    assert notes == ["lines of other text were ignored: lines 1, 2, 4"]


def test_objects__deep_nesting_and_endless_integers_are_broken_lines() -> None:
    lines = ["{" + '"a":[' * 100_000, '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}", '{"a": ' + "9" * 10_000 + "}"]
    records, _, notes = read("\n".join([*lines, '{"a": 1}']))
    assert records == [{"a": 1}]
    assert notes == ["not one JSON object, ignored: lines 1, 2, 3"]


def test_objects__repeated_keys_keep_every_value() -> None:
    (record,), _, _ = read('{"loss": 1.0, "step": 1, "loss": 2.0}')
    assert record == {"loss": Repeated((1.0, 2.0)), "step": 1}


def test_objects__tab_in_a_string_and_lone_surrogate() -> None:
    assert read('{"a\tb": "\\ud800"}')[0] == [{"a\tb": "\ud800"}]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=4), min_size=1, max_size=20))
def test_objects__read_back_what_was_written(records: list[Record]) -> None:
    found, numbers, notes = read("\n".join(json.dumps(record) for record in records))
    assert json.dumps(found) == json.dumps(records)
    assert numbers == list(range(1, len(records) + 1))
    assert notes == []
