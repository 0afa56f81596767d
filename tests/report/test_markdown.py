"""The Markdown report: its parts, its tables, and what hostile runs can do to it (nothing)."""

import re

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from parity.compare import compare as compared
from parity.plain import plain
from parity.report.markdown import render_markdown
from parity.result import LegResult, Result
from tests.drawing import LOSS, NORM, compare, leg, noisy
from tests.report.test_text import HOSTILE

GITHUB = MarkdownIt("gfm-like", {"html": True, "linkify": False})


def result(candidate: np.ndarray, control: bool = True, **more: object) -> Result:
    legs = [leg("tp1", loss=LOSS, grad_norm=NORM), leg("tp3", loss=candidate, grad_norm=NORM)]
    if control:
        legs.append(leg("tp4", loss=noisy(LOSS, 1e-6, 4), grad_norm=NORM))
    comparison = compared(compare(*legs, steps=20))
    given = {
        "suite": "drawn",
        "verdict": comparison.verdict,
        "summary": comparison.summary,
        "reproduce": "parity run x",
        "legs": [LegResult(name=one.name, status="finished") for one in legs],
        "comparisons": [comparison],
        **more,
    }
    return Result.model_validate(given)


def tables(markdown: str) -> list[list[list[str]]]:
    """Cells of every table, by row."""
    found = []
    for table in re.findall(r"<table>(.*?)</table>", GITHUB.render(markdown), re.DOTALL):
        rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        found.append([re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows])
    return found


def test_every_row_of_every_table_has_as_many_cells_as_its_head() -> None:
    for control in (True, False):
        for candidate in (LOSS, LOSS * 1.01, LOSS[:5], np.full(20, np.nan)):
            for table in tables(render_markdown(result(candidate, control))):
                assert len({len(row) for row in table}) == 1


def test_the_window_holds_the_worst_step_and_three_on_each_side_with_its_gap_and_what_was_allowed() -> None:
    loss = LOSS.copy()
    loss[13] *= 1 + 4e-5
    text = render_markdown(result(loss))
    window = text[text.index("## Worst step") : text.index("## Whole run")]
    steps = re.findall(r"^\| (\S+) \|", window, re.MULTILINE)
    assert steps[2:9] == ["10", "11", "12", "**13**", "14", "15", "16"]
    row = next(line for line in window.splitlines() if line.startswith("| **13**"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[5] == "4.00e-05"
    assert cells[7] == "**2.00**"


def test_the_sampled_table_of_a_long_run_never_hides_the_worst_step() -> None:
    steps = np.arange(5000)
    loss = 6 - steps / 2000
    for worst in (1, 17, 2501, 4998):
        wrong = loss.copy()
        wrong[worst] *= 1.5
        pair = compare(leg("tp1", loss=loss), leg("tp3", loss=wrong), steps=5000)
        metric = compared(pair).metrics[0]
        assert worst in [row.step for row in metric.sample]
        assert len(metric.sample) < 20


def test_a_leg_that_ended_early_shows_where() -> None:
    text = render_markdown(result(LOSS[:5]))
    assert "tp3 lacks loss at 15 of 20 steps (5–19)" in text


@settings(max_examples=60)
@given(text=st.one_of(st.sampled_from(HOSTILE), st.text(max_size=120)))
def test_hostile_text_from_a_run_changes_nothing_around_it(text: str) -> None:
    def with_text(inserted: str) -> Result:
        hostile = LegResult(
            name="tp1", status="failed", error=inserted, command=inserted, notes=[inserted],
            environment={inserted: inserted, "torch": inserted}, source=inserted, failing_rank=0,
        )  # fmt: skip
        return result(LOSS, suite=inserted, notes=[inserted], legs=[hostile])

    assume(plain(text))
    calm, wild = (render_markdown(with_text(inserted)) for inserted in ("calm", text))
    assert [len(table) for table in tables(calm)] == [len(table) for table in tables(wild)]

    def kinds(markdown: str) -> list[str]:
        return [token.type for token in GITHUB.parse(markdown)]

    assert kinds(wild) == kinds(calm)
    assert re.findall(r"<(/?\w+)", GITHUB.render(wild)) == re.findall(r"<(/?\w+)", GITHUB.render(calm))
