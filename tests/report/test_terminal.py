"""The terminal's report, and what hostile runs can do to it (nothing)."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from parity.report.terminal import render_terminal
from parity.result import Result
from tests.report.filling import replaced
from tests.report.test_markdown import FULL, TEXTS
from tests.report.test_text import HOSTILE


def shown(given: Result) -> str:
    out = io.StringIO()
    render_terminal(given, Console(file=out, width=100_000, color_system=None))
    return out.getvalue()


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(TEXTS, st.sampled_from([*HOSTILE, "[/red]", "[bold]x[/bold]", ":tada:", "[link=http://x]y"])))
def test_hostile_text_in_every_field_of_a_result_changes_nothing_around_it(text: str) -> None:
    calm, wild = (shown(replaced(FULL, {str: one})) for one in ("calm", text))
    assert len(wild.split("\n")) == len(calm.split("\n"))
    assert all(line.isprintable() for line in wild.split("\n"))


@pytest.mark.parametrize("text", ["[/red]", "[bold]x[/bold]", ":tada:"])
def test_what_looks_like_markup_is_shown_as_it_is(text: str) -> None:
    assert shown(replaced(FULL, {str: text})).count(text) > 20


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), -1.5, 5e-324, 1.7e308])
def test_a_report_of_any_numbers(number: float) -> None:
    assert "parity: " in shown(replaced(FULL, {float: number}))


def test_parameters_are_shown_where_their_check_failed_only() -> None:
    assert "gradients by parameter; squared error: experts 98 %, router 2 %, norms <1 %\n" in shown(FULL)
    assert "layers.0.experts.w1" in shown(FULL)
    first = FULL.comparisons[0]
    outcomes = [one.model_copy(update={"status": "pass"}) for one in first.outcomes]
    passed = FULL.model_copy(update={"comparisons": [first.model_copy(update={"outcomes": outcomes})]})
    assert "layers.0.experts.w1" not in shown(passed)
