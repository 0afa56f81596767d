"""The first screen's data: what it says of one comparison, of many, and of none."""

import numpy as np

from parity.report.first_screen import LINES, FirstScreen, first_screen
from parity.result import Result
from tests.drawing import LOSS
from tests.report.filling import with_parameters
from tests.report.test_markdown import result


def lines(screen: FirstScreen) -> int:
    """As Markdown and the terminal lay it out: title, sentence, head and rule of the table, rows, the rest."""
    rest = (screen.others, screen.divergence, screen.reproduce, screen.tested)
    return 2 + (2 + len(screen.rows) if screen.rows else 0) + sum(map(bool, rest))


def many(passing: int, failing: int) -> Result:
    good, bad = result(LOSS), result(LOSS * 1.01)
    verdict = "fail" if failing else "pass"
    comparisons = [*good.comparisons * passing, *bad.comparisons * failing]
    return good.model_copy(update={"verdict": verdict, "comparisons": comparisons, "tested": "Tested commit x."})


def test_of_a_failed_comparison_the_worst_step_the_first_beyond_and_the_parameters_are_named() -> None:
    loss = LOSS.copy()
    loss[13] *= 1 + 4e-5
    screen = first_screen(with_parameters(result(loss)))
    (row,) = screen.rows
    assert (row.comparison, row.verdict, row.metric, row.worst_step) == ("tp3 against tp1", "fail", "loss", "13")
    assert (row.gap, row.allowed, row.times_allowed) == ("4e-05", "2e-05", "2")
    assert row.curve == "loss"
    assert len(row.sparkline) == 16
    assert screen.divergence == (
        "step 13, loss; experts has 98 % of the squared error of gradients, furthest layers.0.experts.w1"
    )


def test_without_gradients_no_parameter_is_named_and_it_says_why() -> None:
    assert first_screen(result(LOSS)).divergence == ("none; no gradients were compared, so no parameter can be named")
    assert first_screen(result(LOSS * 1.01)).divergence.startswith("step 0, loss; no gradients were compared")


def test_of_many_comparisons_those_that_pass_are_a_line_together() -> None:
    screen = first_screen(many(27, 2))
    assert [row.verdict for row in screen.rows] == ["fail", "fail"]
    assert (
        screen.others
        == "27 more comparisons: pass, the nearest to its bound tp3 against tp1 at 0 times what is allowed"
    )
    assert len(first_screen(many(30, 0)).rows) == 1


def test_of_many_that_fail_the_first_have_a_row_and_the_rest_is_counted() -> None:
    screen = first_screen(many(10, 20))
    assert len(screen.rows) == 3
    assert screen.others.startswith("17 more comparisons: fail; 10 more comparisons: pass")


def test_it_has_no_more_lines_than_it_may_and_leaves_one_for_what_changed() -> None:
    for passing in range(7):
        for failing in range(7):
            assert lines(first_screen(many(passing, failing))) < LINES


def test_a_run_that_left_nothing_has_a_sentence_and_a_command() -> None:
    screen = first_screen(Result(suite="x", verdict="error", summary="a crashed", reproduce="parity run x"))
    assert screen == FirstScreen("error", "x", "a crashed", (), "", "", "parity run x", "")


def test_a_value_that_is_not_finite_is_the_worst_wherever_else_the_gap_is_large() -> None:
    loss = LOSS * 1.01
    loss[7:9] = np.nan
    (row,) = first_screen(result(loss)).rows
    assert (row.metric, row.worst_step, row.gap, row.times_allowed) == ("loss", "7", "NaN", "–")
    assert "×" in row.sparkline
