"""The table of curves: what is in it, at full precision, and how large it can get."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from parity.checks.comparison import Comparison, Leg
from parity.compare import compare as compared
from parity.judged import Judged
from parity.report.curves_csv import COLUMNS, render_curves
from parity.result import Result
from tests.drawing import LOSS, NORM, compare, curve, leg, noisy

Rows = list[dict[str, str]]


def judged(*comparisons: Comparison, alone: tuple[Leg, ...] = ()) -> Judged:
    legs = {one.name: one for comparison in comparisons for one in comparison.legs()}
    legs |= {one.name: one for one in alone}
    result = Result(suite="x", verdict="pass", summary="", reproduce="", comparisons=[*map(compared, comparisons)])
    return Judged(result, legs, comparisons)


def rows(given: Judged, most: int = 1000) -> Rows:
    text, _ = render_curves(given, most)
    return list(csv.DictReader(io.StringIO(text), strict=True))


def of(found: Rows, name: str, metric: str) -> Rows:
    return [row for row in found if (row["leg"], row["metric"]) == (name, metric)]


THREE = compare(
    leg("tp1", loss=LOSS, grad_norm=NORM, lr=np.full(20, 1e-3)),
    leg("tp3", loss=noisy(LOSS, 1e-7, 1), grad_norm=NORM, lr=np.full(20, 1e-3)),
    leg("tp4", loss=noisy(LOSS, 1e-7, 2), grad_norm=NORM),
)


def test_every_value_of_every_leg_reads_back_as_the_same_number() -> None:
    found = rows(judged(THREE))
    assert len(found) == 20 * 8
    for one in THREE.legs():
        for metric, values in one.curves.curves.items():
            table = of(found, one.name, metric)
            assert [int(row["step"]) for row in table] == values.steps.tolist()
            assert [float(row["value"]) for row in table] == values.values.tolist()


def test_a_candidate_s_rows_have_the_numbers_of_the_report() -> None:
    found = rows(judged(THREE))
    (metric, _) = compared(THREE).metrics
    by_step = {int(row["step"]): row for row in of(found, "tp3", "loss")}
    for told in metric.window:
        row = by_step[told.step]
        assert row["baseline"] == "tp1"
        assert [float(row[name]) for name in ("value", "baseline_value", "gap", "allowed")] == [
            told.candidate, told.baseline, told.absolute, told.allowed,
        ]  # fmt: skip
        assert told.absolute is not None
        assert told.times_floor == pytest.approx(told.absolute / float(row["floor"]))
    for name, unjudged in (("tp1", "loss"), ("tp4", "loss"), ("tp3", "lr")):
        assert {row["gap"] for row in of(found, name, unjudged)} == {""}


def test_a_step_that_the_baseline_lacks_has_no_gap_and_a_nan_is_told() -> None:
    loss = LOSS.copy()
    loss[3] = np.nan
    found = rows(judged(compare(leg("a", loss=LOSS[:10]), leg("b", loss=loss))))
    table = of(found, "b", "loss")
    assert [row["gap"] != "" for row in table] == [True] * 10 + [False] * 10
    assert (table[3]["value"], table[3]["gap"], table[3]["baseline_value"]) == ("NaN", "NaN", repr(float(LOSS[3])))
    assert {row["floor"] for row in table} == {""}


def test_a_candidate_of_two_baselines_has_a_row_for_each_and_a_leg_that_nothing_names_has_its_own() -> None:
    b = leg("b", loss=LOSS)
    found = rows(
        judged(compare(leg("a", loss=LOSS), b), compare(leg("c", loss=LOSS), b), alone=(leg("d", loss=LOSS),))
    )
    assert [row["baseline"] for row in of(found, "b", "loss")] == ["a"] * 20 + ["c"] * 20
    assert len(of(found, "d", "loss")) == 20


def test_a_table_of_many_steps_is_thinned_and_keeps_the_first_the_last_the_worst_and_those_not_finite() -> None:
    loss = 6 - np.arange(10_000) / 5000
    wrong = loss.copy()
    wrong[4321] *= 1.1
    wrong[77] = np.inf
    given = judged(compare(leg("a", loss=loss), leg("b", loss=wrong)))
    text, every = render_curves(given, 500)
    assert every == 40
    assert len(text.splitlines()) < 600
    steps = {int(row["step"]) for row in of(rows(given, 500), "b", "loss")}
    assert {0, 40, 77, 4321, 9999} <= steps


def test_a_metric_s_name_can_neither_end_its_cell_nor_be_computed() -> None:
    names = ("=HYPERLINK(0)", 'a,b"\n"c', "-1+1", "@x", "ok\x00")
    one = leg("a", loss=LOSS)
    curves = {name: curve(name, [1.0]) for name in names}
    one = replace(one, curves=replace(one.curves, curves=curves))
    found = rows(judged(alone=(one,)))
    assert [row["metric"] for row in found] == ["'=HYPERLINK(0)", 'a,b" "c', "'-1+1", "'@x", "ok"]
    assert all(row.keys() == {*COLUMNS} for row in found)
