"""The terminal's report, and what hostile runs can do to it (nothing)."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from parity.report.first_screen import LINES
from parity.report.terminal import render_terminal
from parity.result import Result
from tests.report.filling import replaced
from tests.report.test_markdown import FULL, TEXTS
from tests.report.test_text import HOSTILE


def shown(given: Result, width: int = 100_000, where: str | None = None, **environ: str) -> str:
    out = io.StringIO()
    colours = "auto" if environ else None
    console = Console(file=out, width=width, _environ=environ, color_system=colours, force_terminal=True)  # type: ignore[arg-type]
    render_terminal(given, console, where)
    return out.getvalue()


def many(count: int) -> Result:
    one = FULL.comparisons[0]
    comparisons = [one.model_copy(update={"candidate": f"tp{at}"}) for at in range(count)]
    return FULL.model_copy(update={"comparisons": comparisons, "notes": []})


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(TEXTS, st.sampled_from([*HOSTILE, "[/red]", "[bold]x[/bold]", ":tada:", "[link=http://x]y"])))
def test_hostile_text_in_every_field_of_a_result_changes_nothing_around_it(text: str) -> None:
    calm, wild = (shown(replaced(FULL, {str: one})) for one in ("calm", text))
    assert len(wild.split("\n")) <= len(calm.split("\n"))  # a text of nothing printable leaves its line out
    assert all(line.isprintable() for line in wild.split("\n"))


@pytest.mark.parametrize("text", ["[/red]", "[bold]x[/bold]", ":tada:"])
def test_what_looks_like_markup_is_shown_as_it_is(text: str) -> None:
    assert shown(replaced(FULL, {str: text})).count(text) > 5


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), -1.5, 5e-324, 1.7e308])
def test_a_report_of_any_numbers(number: float) -> None:
    assert "parity: " in shown(replaced(FULL, {float: number}))


@pytest.mark.parametrize("count", [1, 4, 5, 30])
def test_the_verdict_and_why_take_no_more_than_the_first_screen(count: int) -> None:
    lines = shown(many(count)).rstrip("\n").split("\n")
    assert len(lines) <= LINES
    assert lines[0] == f"parity: {FULL.verdict} · {FULL.suite}"


@pytest.mark.parametrize("width", [20, 40, 80, 126])
def test_a_narrow_terminal_is_shown_fewer_columns_and_no_number_is_cut(width: int) -> None:
    lines = shown(many(2), width).split("\n")
    assert all(cell_len(line.rstrip()) <= width for line in lines if "reproduce" not in line)
    assert (width >= 126) == ("also" not in " ".join(lines))
    assert not [line for line in lines if re.search(r"\d…", line)]


def test_where_the_report_is_and_what_tells_more() -> None:
    last = shown(FULL, where="parity-out").splitlines()[-1]
    assert last == "report: parity-out/report.md; parity show parity-out tells more"
    last = shown(FULL, where="my out").splitlines()[-1]
    assert last == "report: my out/report.md; parity show 'my out' tells more"


def test_the_verdict_has_a_colour_where_colours_are_welcome() -> None:
    assert "\x1b[1;31m" in shown(FULL.model_copy(update={"verdict": "fail"}), 80, TERM="xterm")
    plainly = shown(FULL.model_copy(update={"verdict": "fail"}), 80, TERM="xterm", NO_COLOR="1")
    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", plainly)
    assert "\x1b" not in shown(FULL, 80)


def test_in_a_log_a_sentence_stays_on_its_line() -> None:
    out = io.StringIO()
    render_terminal(FULL.model_copy(update={"summary": "word " * 100 + "end"}), Console(file=out, width=80))
    assert out.getvalue().split("\n")[1] == "word " * 100 + "end"


def test_of_many_notes_some_are_shown_and_the_others_counted() -> None:
    told = shown(FULL.model_copy(update={"notes": [f"note {at}" for at in range(30)]}))
    assert "note 4\n25 more notes are in the report\n" in told


def test_a_comparison_of_legs_that_left_nothing_is_a_row_without_numbers() -> None:
    one = FULL.comparisons[0].model_copy(update={"verdict": "error", "outcomes": [], "metrics": []})
    lines = shown(FULL.model_copy(update={"comparisons": [one]})).split("\n")
    assert [line.split() for line in lines[2:4]] == [
        ["comparison"],
        [one.candidate, "against", one.baseline, "error"],
    ]
