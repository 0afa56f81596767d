"""What is not alike in legs, and what each trained on first."""

from dataclasses import replace
from pathlib import Path

from parity.display.legs import with_display
from parity.records.record import Batch
from parity.report.legs import asymmetries, environment
from parity.result import LegResult
from parity.result.drawn import RankResult
from parity.rundir import RunDirectory
from tests.checks.recorded import tp3
from tests.drawing import LOSS, leg
from tests.records.drawing import draw


def test_what_is_alike_or_not_known_is_no_asymmetry() -> None:
    legs = [
        LegResult(
            name="a", status="finished", layout={"tp": 2, "dp": 1}, ranks=2, micro_batches=2, format="recorder"
        ),
        LegResult(name="b", status="finished", layout={"dp": 2}, ranks=2, micro_batches=4, format="recorder"),
        LegResult(name="c", status="failed", layout={"dp": 2}, ranks=2),
        LegResult(name="d", status="not run", layout={"dp": 8}, ranks=8),
    ]
    assert [(fact.name, fact.values) for fact in asymmetries(legs)] == [
        ("layout", (("tp=2", ("a",)), ("dp=2", ("b", "c")))),
        ("micro-batches", (("2", ("a",)), ("4", ("b",)))),
    ]


def test_a_leg_of_which_nothing_is_cut_differs_from_one_that_recorded_no_shards() -> None:
    whole = LegResult(name="a", status="finished", holds=[RankResult(rank=0, elements=5)])
    unknown = LegResult(name="b", status="finished")
    assert asymmetries([whole, unknown]) == []


def test_a_key_that_a_leg_lacks_differs_but_a_leg_that_recorded_nothing_is_left_out() -> None:
    legs = [
        LegResult(name="a", status="finished", environment={"torch": "2.9", "cuda": "13.0", "layout": {"tp": 1}}),
        LegResult(name="b", status="finished", environment={"torch": "2.9"}),
        LegResult(name="c", status="failed"),
    ]
    assert [(fact.name, fact.values, fact.differs) for fact in environment(legs)] == [
        ("cuda", (("13.0", ("a",)), ("–", ("b",))), True),
        ("torch", (("2.9", ("a", "b")),), False),
    ]


def test_a_leg_shows_the_samples_and_micro_batches_of_its_first_step(tmp_path: Path) -> None:
    drawn = tp3()
    drawn.batches = {rank: {0: Batch(1, 4, 2), 1: Batch(2, 8, 1)} for rank in range(3)}
    judged = replace(leg("tp3", loss=LOSS), records=draw(drawn))
    shown = with_display(RunDirectory(tmp_path), LegResult(name="tp3", status="finished"), judged)
    assert (shown.samples, shown.micro_batches) == (4, 2)
    assert with_display(RunDirectory(tmp_path), LegResult(name="tp3", status="finished"), None).samples is None
