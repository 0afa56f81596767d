"""Untrusted text in a report shows as just that text."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from parity.plain import plain
from parity.report.text import code_block, escape, gap, sparkline, times

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


@pytest.mark.parametrize("text", ["@user", "see #12", "GH-3", "https://x.example", "www.x.example", "a@b.example"])
def test_nothing_is_left_that_github_would_link_after_rendering(text: str) -> None:
    visible = html.unescape(escape(text))
    assert not re.search(r"@\w|#\d|GH-\d|://\w|www\.\w", visible)


@given(st.text(max_size=200))
def test_a_code_block_cannot_be_left(text: str) -> None:
    tokens = GITHUB.parse(code_block(text) + "\n\nafter\n")
    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]


def test_numbers() -> None:
    assert [gap(n) for n in (None, 0.0, 1.234e-7, float("nan"), float("inf"))] == ["–", "0", "1.23e-07", "NaN", "∞"]
    assert [times(n) for n in (None, 0.0, 0.001, 1.234, 1234.5)] == ["–", "0", "<0.01", "1.23", "1.23e+03"]


def test_a_sparkline_shows_zero_and_what_is_not_finite_apart() -> None:
    assert sparkline([0.0, 1e-8, 1e-4, None]) == "·▁█×"
    assert sparkline([0.0, 0.0]) == "··"
    assert sparkline([]) == ""
