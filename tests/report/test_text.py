"""Untrusted text in a report shows as just that text."""

import html
import math
import re

import cmarkgfm
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from parity.plain import plain
from parity.report.text import Safe, code_block, escape, gap, percent, ratio, seconds, sparkline, times, value

GITHUB = MarkdownIt("gfm-like", {"html": True, "linkify": False})
HOSTILE = [
    "| cell | more |",
    "```\nfence",
    "<script>alert(1)</script>",
    "<!-- hide the rest",
    "@maintainer #1 GH-2 http://evil.example www.evil.example",
    "[link](http://evil.example) ![image](x)",
    "# heading",
    "- item",
    "1. item",
    "**bold** _em_ ~~gone~~ `code`",
    "\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x1b]8;;\x07",
    "\u202eright to left\u2066",
    "line\nbreak\rreturn\u2028separator",
    "&lt;b&gt; &amp; \\| \\",
    "grad_norm _a_ a__b",
    "---",
    "    indented",
    "$x^2$ :tada:",
]


def shown(markdown: str) -> str:
    """What a reader sees of rendered Markdown."""
    text = re.sub(r"<[^>]*>", "", GITHUB.render(markdown))
    return html.unescape(text).replace("\u200b", "").strip()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_renders_as_itself_in_a_paragraph_and_in_a_cell(text: str) -> None:
    assert shown(escape(text)) == plain(text)
    table = GITHUB.render(f"| a | b |\n| - | - |\n| {escape(text)} | end |\n")
    assert table.count("<td>") == 2
    assert "<td>end</td>" in table


@given(st.text(max_size=80))
def test_any_text_renders_as_itself(text: str) -> None:
    wanted = plain(text)
    assert shown(f"x {escape(text)} x") == f"x {wanted} x"


@given(st.text(max_size=80))
def test_any_text_stays_in_its_cell_and_makes_no_tag(text: str) -> None:
    table = GITHUB.render(f"| a | b |\n| - | - |\n| {escape(text)} | end |\n")
    assert re.findall(r"</?(\w+)", table) == re.findall(
        r"</?(\w+)", GITHUB.render("| a | b |\n| - | - |\n| text | end |\n")
    )


@pytest.mark.parametrize("text", ["@user", "see #12", "GH-3", "a@b.example"])
def test_nothing_is_left_that_github_would_link_after_rendering(text: str) -> None:
    assert not re.search(r"@\w|#\d|GH-\d", html.unescape(escape(text)))


LINKISH = ["http://", "HTTPS://", "www.", "ftp://", "a@", "evil.example", "/x", " ", ".", "("]


@given(st.lists(st.sampled_from(LINKISH)))
def test_github_s_own_parser_makes_no_link(parts: list[str]) -> None:
    assert "<a" not in cmarkgfm.github_flavored_markdown_to_html(f"x {escape(''.join(parts))} y")


@given(st.text(max_size=200))
def test_a_code_block_cannot_be_left(text: str) -> None:
    tokens = GITHUB.parse(code_block(text) + "\n\nafter\n")
    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]


def test_numbers() -> None:
    assert [gap(n) for n in (None, 0.0, 1.234e-7, float("nan"), float("inf"))] == ["–", "0", "1.23e-07", "NaN", "∞"]
    assert [gap(n) for n in (-0.5, -math.inf)] == ["-5.00e-01", "-∞"]
    assert [times(n) for n in (-0.5, math.inf, -math.inf, math.nan)] == ["-0.50", "∞", "-∞", "–"]
    assert [value(n) for n in (0.1, math.nan, math.inf, -math.inf)] == ["0.1", "NaN", "∞", "-∞"]
    assert [ratio(n) for n in (2.0, 0.9999876, -1.0, math.nan)] == ["2", "0.999988", "-1", "NaN"]
    assert [percent(n) for n in (0.976, 0.004, 0.0, 1.0, math.nan)] == ["98 %", "<1 %", "0 %", "100 %", "NaN"]
    assert [seconds(n) for n in (None, 1.25, math.inf)] == ["–", "1.2 s", "∞"]
    assert [times(n) for n in (None, 0.0, 0.001, 1.234, 1234.5)] == ["–", "0", "<0.01", "1.23", "1.23e+03"]


def test_a_sparkline_shows_zero_and_what_is_not_finite_apart() -> None:
    assert sparkline([0.0, 1e-8, 1e-4, None]) == "·▁█×"
    assert sparkline([0.0, 0.0]) == "··"
    assert sparkline([]) == ""


def test_a_sparkline_of_numbers_that_have_no_logarithm_is_drawn_all_the_same() -> None:
    assert sparkline([math.inf, -math.inf, math.nan, None, 1e-4, -1e-8]) == "××××█▁"
    assert sparkline([math.inf]) == "×"
    assert sparkline([5e-324, 1.7e308]) == "▁█"


def test_what_filters_make_is_marked_and_joining_it_to_other_text_is_not() -> None:
    made = [
        escape("x"),
        code_block("x"),
        gap(1),
        times(1),
        value(1),
        ratio(1),
        percent(1),
        seconds(1),
        sparkline([1]),
    ]
    assert all(isinstance(one, Safe) for one in made)
    assert not isinstance(escape("x") + "x", Safe)
