"""The comment's text: whole at any length, and the same around whatever a run says."""

import functools
import html
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entrypoint.body import BUDGET, marker, parse, render
from entrypoint.fitting import cut, fit, size
from entrypoint.runs import KEPT, Links, Run
from entrypoint.since import facts
from parity.plain import plain
from parity.report.first_screen import LINES
from parity.report.markdown import render_markdown
from parity.report.sections import Chapter, chapters
from parity.result import Result
from parity.result.drawn import LogTail
from tests.report.filling import replaced
from tests.report.test_markdown import FULL, GITHUB, TEXTS, tables

LINKS = Links("https://git.test", "org/project")
RUNS = [
    Run(sha=f"{number:040x}", verdict="fail", run=number, attempt=1, step=None, time="2026-01-01T00:00:00Z")
    for number in range(9, 0, -1)
]
LEFT_OUT = "This is not all."
TITLES = [
    "", "Worst steps", "Chart of the gap in units of what is allowed", "Checks", "Parameters with the largest error",
    "Whole run, sampled", "Environment", "Legs", "Sensitivity", "",
]  # fmt: skip
TAIL = LogTail(
    path="legs/a/rank-0.log", lines=["```", "````", "## y", "<details><summary>x</summary>", "</details>", "### z"]
)

PIECES = (
    "```",
    "````\n~~~",
    "| a | b |\n| - | - |",
    "</details><details><summary>x</summary>",
    "<!-- hidden",
    "--> <b>@maintainer</b>",
    "#1 GH-2 http://evil.example ::set-output name=x::y",
    "::error::z",
    "##[add-mask]secret",
    "\u202eright\u2066\u200b\x1b[31m\x00\r\u2028",
    "<script>x</script> [link](http://evil.example) ![image](x) `code` $x$ **bold**",
)
EVERYTHING = "\n".join(PIECES)


def many(times: int, text: str = "calm") -> Result:
    """A result of that many failed comparisons and legs, with the text in every field."""
    filled = replaced(FULL, {str: text})
    comparisons = [one.model_copy(update={"verdict": "fail"}) for one in filled.comparisons]
    return filled.model_copy(update={"comparisons": comparisons * times, "legs": filled.legs * times})


def comment(result: Result, runs: list[Run] = RUNS) -> str:
    return render("key", runs, chapters(render_markdown(result)), LINKS)


def balanced(markdown: str) -> None:
    """Nothing is left open: what follows the text stands outside of everything in it."""
    rendered = GITHUB.render(f"{markdown}\n\nthe end\n")
    assert rendered.endswith("<p>the end</p>\n")
    assert rendered.count("<details>") == rendered.count("</details>")
    for table in tables(markdown):
        assert len({len(row) for row in table}) == 1


def test_the_chapters_of_a_report_are_the_whole_report() -> None:
    for result in (FULL, many(3), many(2, EVERYTHING)):
        assert "".join(map(str, chapters(render_markdown(result)))) == render_markdown(result)
    assert [re.sub(":.*", "", chapter.title) for chapter in chapters(render_markdown(FULL))] == TITLES


def test_a_report_that_fits_is_whole() -> None:
    assert fit(chapters(render_markdown(FULL)), 10**6, LEFT_OUT) == render_markdown(FULL)


def test_what_is_no_fold_does_not_begin_one() -> None:
    """A log may end with what looks like one."""
    odd = FULL.model_copy(update={"legs": [FULL.legs[0].model_copy(update={"tails": [TAIL], "status": "failed"})]})
    found = chapters(render_markdown(odd))
    assert [re.sub(":.*", "", chapter.title) for chapter in found] == TITLES
    (legs,) = [chapter for chapter in found if chapter.title.startswith("Legs")]
    assert "```\n````\n## y\n<details><summary>x</summary>\n</details>\n### z\n" in legs.parts[1]


REPORT = render_markdown(many(2)).replace("| leg |", "````\n```\n## y\n<details>\n````\n\n| leg |")


@settings(max_examples=100)
@given(budget=st.integers(0, size(REPORT)))
def test_a_text_cut_anywhere_leaves_nothing_open(budget: int) -> None:
    text = cut(REPORT, budget)
    assert size(text) <= budget
    balanced(text)


@settings(max_examples=60)
@given(budget=st.integers(200, size(render_markdown(many(3)))), times=st.integers(0, 3))
def test_a_report_of_any_length_leaves_nothing_open(budget: int, times: int) -> None:
    report = chapters(render_markdown(many(times)))
    text = fit(report, budget, LEFT_OUT)
    assert size(text) <= budget
    balanced(text)
    whole = "".join(map(str, report))
    assert (text == whole) is (size(whole) <= budget)
    assert text.endswith(f"\n{LEFT_OUT}\n") or text == whole


@settings(max_examples=100)
@given(
    texts=st.lists(st.text("ab|`<>-\n#", max_size=3000), max_size=6),
    budget=st.integers(300, 9000),
)
def test_any_parts_are_shown_whole_or_not_at_all(texts: list[str], budget: int) -> None:
    report = [Chapter("head", "# head\n", ("\nverdict\n",))]
    report += [Chapter(str(n), f"\n## {n}\n", (f"\n<{n}>\n{text}\n</{n}>\n",)) for n, text in enumerate(texts)]
    shown = fit(report, budget, LEFT_OUT)
    assert size(shown) <= budget
    assert shown.startswith("# head\n\nverdict\n")
    for number, text in enumerate(texts[1:], 1):
        assert (f"\n## {number}\n" in shown) is (f"\n<{number}>\n{text}\n</{number}>\n" in shown)


@pytest.mark.parametrize("times", [1, 15])
@pytest.mark.parametrize("text", ["calm", EVERYTHING * 1000, "x" * 200_000, "|" * 2000, "🤷" * 2000])
def test_a_comment_is_never_too_long(times: int, text: str) -> None:
    body = comment(many(times, text))
    assert size(body) <= BUDGET
    assert body.startswith(f"{marker('key')}\n<!-- parity-state {{")
    assert [run.run for run in parse(body)] == [9, 8, 7, 6, 5]
    assert "<summary>Last 5 runs</summary>" in body
    assert body.rstrip().endswith("has the whole report.")
    balanced(body)


def test_a_long_comment_says_where_the_rest_is() -> None:
    said = "This is not all: the rest is in the summary of [run 9](https://git.test/org/project/actions/runs/9/attempts/1)"
    assert said in comment(many(60))
    assert said not in comment(FULL)


@functools.cache
def seen(text: str) -> tuple[list[list[int]], list[str], list[str]]:
    """Widths of the tables, kinds of blocks and tags of a comment with `text` in every field."""
    markdown = comment(replaced(FULL, {str: text}))
    widths = [[len(row) for row in table] for table in tables(markdown)]
    return widths, [token.type for token in GITHUB.parse(markdown)], re.findall(r"<(/?\w+)", GITHUB.render(markdown))


@settings(max_examples=30)
@given(text=st.one_of(TEXTS, st.sampled_from(PIECES)).filter(plain))
def test_hostile_text_changes_nothing_outside_of_its_place(text: str) -> None:
    assert seen(text) == seen("calm")


def test_hostile_text_mentions_nobody_hides_nothing_and_commands_nothing() -> None:
    body = comment(replaced(FULL, {str: EVERYTHING}))
    rendered = GITHUB.render(body.split("\n", 2)[2])
    assert "<!--" not in rendered
    assert "<script" not in rendered
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\x1b\x00]", body)
    # GitHub looks for these in what is shown, other than in code.
    shown = html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<(pre|code)>.*?</\1>", "", rendered, flags=re.DOTALL)))
    assert "<script>x</script>" in shown.replace("\u200b", "")
    assert not re.search(r"[@#]\w|GH-\d|(?<!\u200b)://(?!git\.test)\w", shown)


def test_the_state_holds_no_text_and_comes_back() -> None:
    body = comment(replaced(FULL, {str: "secret"}), RUNS[:2])
    line = body.split("\n")[1]
    assert "secret" not in line
    assert "--" not in line.removeprefix("<!--").removesuffix("-->")
    assert parse(body) == RUNS[:2]


@pytest.mark.parametrize(
    "state",
    [
        "",
        "no json",
        "[]",
        '{"runs": 1}',
        '{"runs": [{"sha": "x"}]}',
        json.dumps({"runs": [RUNS[0].model_dump()] * (KEPT + 2)}),
        json.dumps({"runs": [RUNS[0].model_dump() | {"more": 1}]}),
        json.dumps({"runs": [RUNS[0].model_dump() | {"verdict": "green"}]}),
        json.dumps({"runs": [RUNS[0].model_dump() | {"run": 1 << 70}]}),
        json.dumps({"runs": [RUNS[0].model_dump() | {"time": "<b>"}]}),
        '{"runs": ' + "[" * 3000,
    ],
)
def test_a_state_that_is_none_of_ours_is_none(state: str) -> None:
    assert parse(f"{marker('key')}\n<!-- parity-state {state} -->\n") == []


@given(st.text(max_size=300))
def test_any_text_can_be_looked_at_for_a_state(text: str) -> None:
    parse(text)


@pytest.mark.parametrize("key", ["a--b", "a-->b", "<!--", "a\nb", "ü / x", "---"])
def test_a_key_ends_no_comment(key: str) -> None:
    line = marker(key)
    assert re.fullmatch(r"<!-- parity-action v=1 key=[\w.~%-]+ -->", line)
    assert "--" not in line[4:-3]


def runs(*verdicts: str, **facts: dict[str, str]) -> list[Run]:
    """The newest first, of commits of their own."""
    return [
        Run.model_validate(
            {"sha": f"{number:040x}", "verdict": verdict, "run": number, "attempt": 1, "time": RUNS[0].time}
            | {"facts": facts.get(f"run{number}", {})}
        )
        for number, verdict in zip(range(len(verdicts), 0, -1), verdicts, strict=True)
    ]


def test_a_failed_run_names_what_is_other_than_at_the_last_pass() -> None:
    then = {"torch": "0" * 8, "legs": "1" * 8, "device": "2" * 8}
    body = comment(FULL, runs("fail", "fail", "pass", "pass", run4={**then, "torch": "f" * 8}, run2=then))
    (line,) = [one for one in body.splitlines() if "Since the last pass" in one]
    address = "https://git.test/org/project"
    assert line == (
        f"- **Since the last pass** ([run 2]({address}/actions/runs/2/attempts/1), 2026-01-01T00:00:00Z): commits"
        f" [`0000000...0000000`]({address}/compare/{2:040x}...{4:040x}); other than then: `torch`"
    )
    above = body.split("<details>")[0].splitlines()[2:]
    assert line in above
    assert len([one for one in above if one]) <= LINES


def test_a_failed_run_of_the_commit_that_passed_says_that_nothing_changed() -> None:
    last, first = runs("fail", "pass", run1={"torch": "0" * 8}, run2={"torch": "0" * 8})
    body = comment(FULL, [last.model_copy(update={"sha": first.sha}), first])
    assert "of the same commit; nothing that is known here is other than then" in body


@pytest.mark.parametrize("verdicts", [("pass", "pass"), ("fail", "fail"), ("fail",)])
def test_without_a_pass_before_it_nothing_is_said_of_one(verdicts: tuple[str, ...]) -> None:
    assert "Since the last pass" not in comment(FULL, runs(*verdicts))


def test_the_last_pass_is_remembered_however_many_runs_have_failed_since() -> None:
    known = runs("fail", "pass")
    for number in range(3, 20):
        known = parse(comment(FULL, [known[0].model_copy(update={"run": number}), *known]))
    assert [run.run for run in known] == [19, 18, 17, 16, 15, 1]


def test_what_a_run_depends_on_is_kept_as_hashes_of_what_can_be_told_apart() -> None:
    result = FULL.model_copy(update={"legs": [one.model_copy(update={"digest": "x"}) for one in FULL.legs]})
    known = facts(result)
    assert known.keys() == {"parity", "legs", "comparisons", "torch"}
    other = result.model_copy(
        update={"legs": [one.model_copy(update={"environment": {"torch": "3"}}) for one in result.legs]}
    )
    assert [key for key in known if facts(other)[key] != known[key]] == ["torch"]


def test_the_first_run_has_no_history() -> None:
    assert "Last" not in comment(FULL, RUNS[:1])
