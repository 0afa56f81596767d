import math

import numpy as np

from parity.curves.curve import Conflict, Curve
from parity.curves.gather import Gather
from parity.curves.notes import Notes
from parity.curves.records import Record


def curves(*records: Record, keys: tuple[str, ...] = ("loss", "grad_norm")) -> tuple[dict[str, Curve], list[str]]:
    notes = Notes()
    gather = Gather("log", notes)
    for record in records:  # a batch each: curves grow over batches
        steps, stepped, lines = gather.steps([record], [1], "step")
        gather.add(steps, stepped, lines, keys)
    found = gather.curves({key: key for key in keys})
    return found, [note.text for note in notes.all()]


def test_curves__same_value_again_is_a_note() -> None:
    found, notes = curves({"step": 0, "loss": 1.5}, {"step": 1, "loss": math.nan}, {"step": 1, "loss": math.nan})
    assert found["loss"].steps.tolist() == [0, 1]
    assert found["loss"].conflicts == ()
    assert notes == ["loss: 1 step written again with the same value, first step 1"]


def test_curves__another_value_is_a_conflict() -> None:
    records: list[Record] = [{"step": 7, "loss": value} for value in (1.5, 2.5, 1.5, 3.5)]
    found, notes = curves({"step": 6, "loss": 0.5}, *records)
    assert found["loss"].values.tolist() == [0.5, 1.5]
    assert found["loss"].conflicts == (Conflict(7, (1.5, 2.5, 3.5)),)
    assert notes == []


def test_curves__nan_against_a_number_is_a_conflict() -> None:
    found, _ = curves({"step": 0, "loss": math.nan}, {"step": 0, "loss": 1.0})
    assert len(found["loss"].conflicts[0].values) == 2


def test_curves__steps_out_of_order_are_sorted() -> None:
    found, notes = curves({"step": 2, "loss": 2.0}, {"step": 10, "loss": 10.0}, {"step": 1, "loss": 1.0})
    assert found["loss"].steps.tolist() == [1, 2, 10]
    assert found["loss"].values.tolist() == [1.0, 2.0, 10.0]
    assert notes == ["loss: steps are out of order and were sorted"]


def test_curves__records_of_one_step_merge() -> None:
    found, notes = curves({"step": 0, "loss": 1.0}, {"step": 0, "grad_norm": 2.0}, {"step": 1, "loss": 1.0})
    assert found["loss"].missing == ()
    assert found["grad_norm"].steps.tolist() == [0]
    assert found["grad_norm"].missing == (1,)
    assert notes == []


def test_curves__null_is_missing_and_so_is_what_is_no_number() -> None:
    values: tuple[object, ...] = (1.0, None, True, [1.0], "x", "2.5")
    records: list[Record] = [{"step": step, "loss": value} for step, value in enumerate(values)]
    found, notes = curves(*records)
    assert found["loss"].steps.tolist() == [0, 5]
    assert found["loss"].missing == (1, 2, 3, 4)
    assert notes == ["loss is not a number, ignored: lines 1, 1, 1"]


def test_curves__metric_without_a_number_is_absent() -> None:
    found, _ = curves({"step": 0, "loss": 1.0, "grad_norm": None})
    assert list(found) == ["loss"]


def test_curves__bad_steps_are_ignored() -> None:
    bad: tuple[object, ...] = (-1, 0.5, "2/3/4", True, 10**30, math.nan, None)
    records: list[Record] = [{"step": step, "loss": 9.0} for step in bad]
    found, notes = curves({"step": 0, "loss": 1.0}, *records, {"loss": 9.0})
    assert found["loss"].steps.tolist() == [0]
    assert [note.split(":")[0] for note in notes] == [
        "steps that are no whole number from 0 to 2^53 were ignored",
        'records without "step" were ignored',
    ]


def test_curves__integers_beyond_float_are_infinite() -> None:
    found, _ = curves({"step": 0, "loss": 10**400}, {"step": 1, "loss": 2**70})
    assert found["loss"].values.tolist() == [math.inf, 2.0**70]


def test_curves__strings_keep_their_trailing_zeros() -> None:
    found, _ = curves({"step": 0, "loss": "5.500"}, {"step": 1, "loss": "5.000"})
    assert (found["loss"].resolution.decimals, found["loss"].resolution.significant) == (3, 4)


def test_curves__texts_tell_the_digits_that_a_large_number_only_seems_to_have() -> None:
    found, _ = curves({"step": 0, "loss": "85.8e9"}, {"step": 1, "loss": "1.2e3"})
    assert (found["loss"].resolution.decimals, found["loss"].resolution.significant) == (0, 3)
    assert found["loss"].resolution.at(found["loss"].values).tolist() == [1e8, 10.0]


def test_curves__a_round_constant_is_as_fine_as_the_rest_of_the_source() -> None:
    values = np.random.default_rng(0).normal(size=20).tolist()
    found, _ = curves(
        *({"step": i, "loss": value, "lr": 0.001} for i, value in enumerate(values)), keys=("loss", "lr")
    )
    assert found["lr"].resolution == found["loss"].resolution
    assert found["lr"].resolution.significant >= 15


def test_curves__a_rounded_metric_stays_rounded_beside_a_full_one() -> None:
    values = np.random.default_rng(0).normal(6, 1, size=20)
    found, _ = curves(*({"step": i, "loss": round(v, 4), "grad_norm": v} for i, v in enumerate(values.tolist())))
    assert found["loss"].resolution.decimals == 4
    assert found["grad_norm"].resolution.significant >= 15
