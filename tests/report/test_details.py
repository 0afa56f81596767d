"""What a terminal shows of one comparison."""

import io

from rich.console import Console, Group

from parity.report.details import comparison_details, printable
from parity.result import ComparisonResult
from tests.report.filling import replaced
from tests.report.test_markdown import FULL

FIRST = FULL.comparisons[0]


def shown(comparison: ComparisonResult, width: int = 1000) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(Group(*comparison_details(printable(comparison))))
    return out.getvalue()


def test_parameters_are_shown_where_their_check_failed_only() -> None:
    assert "gradients by parameter; squared error: experts 98 %, router 2 %, norms <1 %\n" in shown(FIRST)
    assert "layers.0.experts.w1" in shown(FIRST)
    outcomes = [one.model_copy(update={"status": "pass"}) for one in FIRST.outcomes]
    assert "layers.0.experts.w1" not in shown(FIRST.model_copy(update={"outcomes": outcomes}))


def test_no_text_of_a_result_moves_the_cursor_or_is_taken_for_markup() -> None:
    told = shown(replaced(FIRST, {str: "[red]\x1b[2Jx\n[/red]"}))
    assert "\x1b" not in told
    assert "[red]x [/red]" in told


def test_every_check_has_a_row_with_its_outcome() -> None:
    told = shown(FIRST)
    for outcome in FIRST.outcomes:
        assert any(line.split()[:1] == [outcome.check] and outcome.status in line for line in told.split("\n"))
