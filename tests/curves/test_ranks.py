import pytest

from parity.curves.notes import Notes
from parity.curves.ranks import Ranks, prefixes
from parity.curves.records import Record


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("[rank0]:[titan] x", ["rank 0"]),
        ("[default12]: x", ["rank 12"]),
        ("[0]:x", ["rank 0"]),
        ("[INFO] [Rank 3] step=1", ["rank 3"]),
        ("12: x", ["rank 12"]),
        (" 3: x", ["rank 3"]),
        ("[INFO|DP=1|PP=0|TP=2]: x", ["DP=1|PP=0|TP=2"]),
        ("[INFO|DP=1|PP=0|TP=2|ip-26-0-161-78]: x", ["DP=1|PP=0|TP=2"]),
        ("[rank0]: a [rank1]: b", ["rank 0", "rank 1"]),
        ("x 3: y", []),
        ("[1] a footnote", []),
        ("list[0]", []),
        ("[INFO]: x", []),
        ("1.5: x", []),
    ],
)
def test_prefixes(text: str, ranks: list[str]) -> None:
    assert [one.rank for one in prefixes(text)] == ranks


def taken(*records: tuple[str, Record]) -> list[str]:
    notes = Notes()
    ranks = Ranks(notes, ["step"], ["loss"])
    for line, (rank, record) in enumerate(records, start=1):
        ranks.take(record, rank, line)
    return [note.text for note in notes.all()]


def steps(step: int) -> Record:
    return {"step": step}


def test_take__the_same_number_written_otherwise_is_the_same() -> None:
    one: Record = {"step": 1, "loss": "1.50"}
    assert taken(("rank 0", one), ("rank 1", {"step": "1", "loss": "1.5"}), ("rank 2", {"step": 1})) == []


def test_take__nan_on_both_ranks_is_the_same() -> None:
    assert taken(("rank 0", {"step": 1, "loss": "nan"}), ("rank 1", {"step": 1, "loss": "NaN"})) == []


def test_take__who_prints_without_a_prefix_may_be_a_step_behind() -> None:
    assert taken(*[("", steps(step)) for step in (1, 1, 2, 1, 2, 3)]) == []


def test_take__a_rank_that_goes_back_was_started_again() -> None:
    (note,) = taken(*[("rank 0", steps(step)) for step in (5, 6, 0, 1)])
    assert note == "steps go back, as where a run was started again or a log was added to: line 3"


def test_number__each_rank_from_one() -> None:
    ranks = Ranks(Notes(), ["step"], [])
    records: list[Record] = [{} for _ in range(4)]
    for record, rank in zip(records, ["a", "b", "a", "b"], strict=True):
        ranks.number(record, rank)
    assert records == [{"step": 1}, {"step": 1}, {"step": 2}, {"step": 2}]
