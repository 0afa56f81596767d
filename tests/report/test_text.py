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
from parity.report.text import (
    Safe,
    code_block,
    code_span,
    escape,
    fixed,
    gap,
    memory,
    percent,
    ratio,
    seconds,
    sparkline,
    times,
    value,
)

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


def test_sizes_have_three_digits_whatever_their_size() -> None:
    given = [None, 0.0, 1.234e-7, 0.0252, 1.0, 13_234, 999.6, 1.5e6, math.nan, math.inf, -0.5, -math.inf]
    told = ["–", "0", "1.23e-07", "0.0252", "1", "13,200", "1,000", "1.5e+06", "NaN", "∞", "-0.5", "-∞"]
    assert [gap(n) for n in given] == told
    assert [times(n) for n in given] == ["–" if one == "NaN" else one for one in told]


def test_logged_values_and_ratios_keep_the_digits_that_tell_them_apart() -> None:
    assert [value(n) for n in (5.123456789, 1e-9, math.nan)] == ["5.12345679", "1e-09", "NaN"]
    assert [ratio(n) for n in (2.0, 1.9999, math.inf)] == ["2", "1.9999", "∞"]
    assert [percent(n) for n in (0.0, 0.004, 0.976, None, math.nan)] == ["0 %", "<1 %", "98 %", "–", "NaN"]


def test_lengths_of_time_and_memory_are_in_the_unit_that_fits() -> None:
    given = [None, 0.0, 0.04, 0.9999, 6.41, 99.96, 125, 3700, 1e12, math.inf]
    told = ["–", "0.0 s", "40 ms", "1.0 s", "6.4 s", "1 min 40 s", "2 min 5 s", "1 h 1 min", "1e+12 s", "∞"]
    assert [seconds(n) for n in given] == told
    assert [memory(n) for n in (None, 0, 1536, 139 << 30, math.nan)] == ["–", "0 B", "1.5 KiB", "139 GiB", "NaN"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_fixed_number_has_no_exponent_and_is_within_a_thousandth_where_it_can_be(number: float) -> None:
    assert re.fullmatch(r"-?\d{1,10}(\.\d{1,6})?", fixed(number))
    if 1e-3 <= abs(number) <= 1e9:
        assert abs(float(fixed(number)) - number) <= 6e-3 * abs(number)


@pytest.mark.parametrize("text", [*HOSTILE, "`", "``", "a`", "a ``b`` c"])
def test_code_in_a_line_renders_as_itself(text: str) -> None:
    html_ = GITHUB.render(f"x {code_span(text)} y\n")
    assert html_.count("<code>") == 1
    assert html.unescape(re.findall(r"<code>(.*)</code>", html_)[0]) == plain(text)


def test_a_long_sparkline_is_drawn_from_the_largest_of_each_part() -> None:
    numbers: list[float | None] = [1e-8] * 1000
    numbers[503] = 1e-4
    assert sparkline(numbers, 10) == "▁▁▁▁▁█▁▁▁▁"
    numbers[503] = None
    assert sparkline(numbers, 10) == "█████×████"


def test_a_sparkline_of_one_spike_or_of_sizes_much_alike_shows_them_large() -> None:
    assert sparkline([0.0, 1e-4, 0.0]) == "·█·"
    assert sparkline([1e-4, 1e-4, 2e-5]) == "██▃"


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
