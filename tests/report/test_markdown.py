"""The Markdown report: its parts, its tables, and what hostile runs can do to it (nothing)."""

import functools
import html
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from parity.compare import compare as compared
from parity.plain import plain
from parity.report.markdown import render_markdown
from parity.report.sections import chapters
from parity.result import LegResult, Result
from parity.result.drawn import LogTail
from tests.drawing import LOSS, NORM, compare, leg, noisy
from tests.report.cases import CASES
from tests.report.filling import replaced, with_parameters
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
    (window, *_) = [table for table in tables(text) if table[0][0] == "step"]
    assert [row[0] for row in window[1:]] == ["10", "11", "12", "<strong>13</strong>", "14", "15", "16"]
    assert window[4][5] == "4e-05"
    assert window[4][7] == "<strong>2</strong>"


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


def test_parameters_furthest_out_and_the_groups_shares_stand_under_the_worst_step() -> None:
    text = render_markdown(with_parameters(result(LOSS)))
    assert "❌ **gradients**, squared error: experts 98 %, router 2 %, norms <1 %\n" in text
    (table,) = [table for table in tables(text) if table[0][0] == "parameter"]
    assert table[1:] == [
        [
            "layers.0.experts.w1", "experts", "0", "<strong>0.3</strong>", "1e-05", "0.5", "0.954", "98 %",
            "12,300",
        ],
        ["layers.0.router.weight", "router", "1", "1e-06", "1e-05", "∞", "NaN", "2 %", "–"],
    ]  # fmt: skip


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, -1.5, 5e-324, 1.7e308])
def test_a_report_of_any_numbers(number: float) -> None:
    odd = replaced(with_parameters(result(LOSS)), {float: number})
    for table in tables(render_markdown(odd)):
        assert len({len(row) for row in table}) == 1


FULL = with_parameters(result(LOSS))
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=120)).filter(plain)


@functools.cache
def structure(text: str) -> tuple[list[list[int]], list[str], list[str]]:
    """Widths of the tables, kinds of blocks and tags of a report with `text` in every field."""
    markdown = render_markdown(replaced(FULL, {str: text}))
    widths = [[len(row) for row in table] for table in tables(markdown)]
    return widths, [token.type for token in GITHUB.parse(markdown)], re.findall(r"<(/?\w+)", GITHUB.render(markdown))


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_hostile_text_in_every_field_of_a_result_changes_nothing_around_it(text: str) -> None:
    assert structure(text) == structure("calm")


def everything() -> Result:
    """A failed comparison of legs with records beside one that passes, a leg that broke, and notes."""
    failed, broken, passed = CASES["fails-at-first-step"](), CASES["error"](), CASES["pass"]()
    comparisons = [*with_parameters(failed).comparisons, *passed.comparisons * 5]
    return failed.model_copy(update={"comparisons": comparisons, "legs": [*failed.legs, *broken.legs]})


EVERYTHING = everything()


@functools.cache
def shape(text: str) -> tuple[list[list[int]], list[str], list[str], list[str]]:
    """As `structure`, of a report with every part that there is, and the text that is shown outside of code."""
    markdown = render_markdown(replaced(EVERYTHING, {str: text}))
    rendered = GITHUB.render(markdown)
    widths = [[len(row) for row in table] for table in tables(markdown)]
    tags = re.findall(r"<(/?\w+)", rendered)
    code = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)
    shown = html.unescape(re.sub(r"<[^>]*>", "\n", code.sub("", rendered)))
    return widths, [token.type for token in GITHUB.parse(markdown)], tags, shown.splitlines()


@settings(max_examples=30, deadline=None)
@given(text=TEXTS)
def test_no_text_of_a_run_leaves_its_place_mentions_anyone_or_hides_what_stands_around_it(text: str) -> None:
    *shapes, shown = shape(text)
    *calm, before = shape("calm")
    assert shapes == calm
    said = "\n".join(shown)
    assert not re.search(r"[@#]\w|GH-\d|\bwww\.|\w://", said, re.IGNORECASE)
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", said)
    # Every line that has none of it is there as it was.
    assert [line for line in before if line.strip() and "calm" not in line] == [
        line for line, was in zip(shown, before, strict=True) if was.strip() and "calm" not in was
    ]


def test_every_text_of_a_result_is_put_into_the_tests_above() -> None:
    assert render_markdown(replaced(FULL, {str: "calm"})).count("calm") > 60
    assert render_markdown(replaced(EVERYTHING, {str: "calm"})).count("calm") > 250


def fold(markdown: str, title: str) -> str:
    """The fold that begins so."""
    (found,) = [str(one) for one in chapters(markdown) if one.title.startswith(title)]
    return found


def test_an_environment_of_any_size_is_shown_in_part() -> None:
    environment = {f"key{number:03}": "v" * 10_000 for number in range(130)}
    legs = [LegResult(name=name, status="finished", environment=environment) for name in ("a", "b")]
    text = fold(render_markdown(result(LOSS, legs=legs)), "Environment: the same in all legs")
    (rows,) = tables(text)
    assert len(rows) == 101
    assert max(len(cell) for row in rows for cell in row) == 200
    assert "\nAnd 30 more.\n" in text


def test_what_differs_between_environments_stands_first_in_bold_with_the_legs_that_have_it() -> None:
    legs = [
        LegResult(name=name, status="finished", environment={"torch": "2.9", "threads": threads})
        for name, threads in (("a", 1), ("b", 4), ("c", 4))
    ]
    (rows,) = tables(fold(render_markdown(result(LOSS, legs=legs)), "Environment: threads differs"))
    assert rows[1:] == [
        ["threads", "<strong>1</strong> (a); <strong>4</strong> (b, c)"],
        ["torch", "2.9"],
    ]


def test_of_many_comparisons_those_that_pass_are_a_line_each_in_one_fold() -> None:
    whole = result(LOSS)
    (passed,) = whole.comparisons
    (failed,) = result(LOSS * 1.01).comparisons
    failed = failed.model_copy(update={"candidate": "odd"})
    many = whole.model_copy(update={"comparisons": [*[passed] * 29, failed], "verdict": "fail", "summary": "x"})
    text = render_markdown(many)
    screen = str(chapters(text)[0])
    assert screen.count("against tp1") == 3  # its row, the first beyond, and the nearest of those that pass
    assert "29 more comparisons: pass" in screen
    assert fold(text, "Worst steps").count("### ") == 1
    assert fold(text, "Checks").count("- ✅ tp3 against tp1: ") == 29
    assert len(tables(fold(text, "All 30 comparisons"))[0]) == 31


def test_of_too_many_comparisons_the_worst_are_shown() -> None:
    whole = result(LOSS)
    (passed,) = whole.comparisons
    failed = passed.model_copy(update={"verdict": "fail", "candidate": "odd"})
    text = render_markdown(whole.model_copy(update={"comparisons": [*[passed] * 300, failed]}))
    assert "101 of 301 comparisons are left out here." in text
    assert "odd against tp1" in str(chapters(text)[0])
    assert fold(text, "Checks").count("- ✅ ") == 199


def test_of_many_legs_those_that_did_not_end_well_are_shown() -> None:
    legs = [LegResult(name=f"leg{number}", status="finished") for number in range(300)]
    legs.append(LegResult(name="odd", status="failed"))
    text = render_markdown(result(LOSS, legs=legs))
    assert "101 of 301 legs are left out here." in text
    assert "| odd | 💥 **failed** |" in text


def test_a_failed_leg_shows_the_ends_of_its_logs_as_they_were_indented() -> None:
    tail = LogTail(path="legs/b/rank-1.log", lines=["Traceback:", "    raise ValueError", "ValueError"])
    leg = LegResult(name="b", status="failed", failing_rank=1, exit_code=3, error="rank 1 died", tails=[tail])
    text = fold(render_markdown(result(LOSS, legs=[leg])), "Legs: 1 failed")
    assert "### b: failed, rank 1 first, exit code 3\n\nrank 1 died\n\nEnd of legs/b/rank-1.log:\n" in text
    assert "```\nTraceback:\n    raise ValueError\nValueError\n```\n" in text


def test_a_check_that_did_not_run_is_told_from_one_that_passed_by_its_word_and_in_the_folds_title() -> None:
    text = fold(render_markdown(result(LOSS)), "Checks: ")
    assert re.search(r"<summary>Checks: \d+ pass, \d+ not run</summary>", text)
    assert re.search(r"\| gradients \| ➖ \*\*not run\*\*, not required \| \w", text)


def test_of_many_metrics_some_are_shown() -> None:
    whole = result(LOSS)
    (one,) = whole.comparisons
    many = one.model_copy(update={"metrics": one.metrics[:1] * 150})
    text = render_markdown(whole.model_copy(update={"comparisons": [many], "notes": ["x"] * 300}))
    assert "50 of 150 metrics of tp3 against tp1 are left out here." in text
    assert "100 of 300 notes are left out here." in text
