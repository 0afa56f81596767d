"""JUnit's XML: the schema's rules, what is red, and what hostile runs can do to it (nothing)."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parity.checks.outcome import Verdict
from parity.report.junit import render_junit
from parity.result import LegResult, OutcomeResult, Result
from tests.drawing import LOSS
from tests.report.filling import replaced
from tests.report.test_markdown import FULL, TEXTS, result
from tests.report.test_text import HOSTILE

# What github.com/windyroad/JUnit-Schema says: attributes that must be there, those that may, and the order of what is
# inside, by tag.
SUITE = {"name", "timestamp", "hostname", "tests", "failures", "errors", "time", "package", "id"}
RULES: dict[str, tuple[set[str], set[str], str]] = {
    "testsuites": (set(), set(), r"(testsuite )*"),
    "testsuite": (SUITE, {"skipped"}, r"properties (testcase )*system-out system-err "),
    "properties": (set(), set(), r"(property )*"),
    "property": ({"name", "value"}, set(), ""),
    "testcase": ({"name", "classname", "time"}, set(), r"((skipped|error|failure) )?"),
    "skipped": (set(), {"message"}, ""),
    "error": ({"type"}, {"message"}, ""),
    "failure": ({"type"}, {"message"}, ""),
    "system-out": (set(), set(), ""),
    "system-err": (set(), set(), ""),
}
PATTERNS = {
    "timestamp": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}",
    "time": r"\d{1,10}\.\d{3}",
    **dict.fromkeys(("tests", "failures", "errors", "skipped", "id"), r"\d+"),
    **dict.fromkeys(("name", "classname", "hostname", "package"), r"\S(.*\S)?"),
}
KINDS = ("failure", "error", "skipped")


def parsed(given: Result) -> ElementTree.Element:
    """The file's root; holds to the schema on the way."""
    root = ElementTree.fromstring(render_junit(given).encode())
    for element in root.iter():
        required, optional, inside = RULES[element.tag]
        assert required <= set(element.keys()) <= required | optional, element.tag
        assert re.fullmatch(inside, "".join(f"{one.tag} " for one in element)), element.tag
        for name, value in element.items():
            assert re.fullmatch(PATTERNS.get(name, ".*"), value), (name, value)
    for suite in root:
        found = {kind: len(suite.findall(f"testcase/{kind}")) for kind in KINDS}
        counts = {"failure": "failures", "error": "errors", "skipped": "skipped"}
        assert {kind: int(suite.attrib[name]) for kind, name in counts.items()} == found
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase"))
    assert [suite.attrib["id"] for suite in root] == [str(n) for n in range(len(root))]
    return root


def kinds(suite: ElementTree.Element) -> dict[str, str]:
    """By test case, what became of it; empty where it passed."""
    return {case.attrib["name"]: case[0].tag if len(case) else "" for case in suite.iter("testcase")}


def red(root: ElementTree.Element) -> bool:
    return root.find(".//failure") is not None or root.find(".//error") is not None


def test_a_comparison_is_a_suite_with_a_case_for_each_check() -> None:
    given = result(LOSS * 1.01)
    suite, legs = parsed(given)
    assert suite.attrib["name"] == "tp3 against tp1"
    found = kinds(suite)
    outcomes = {one.check: one for one in given.comparisons[0].outcomes}
    assert list(found) == list(outcomes)
    assert (found["loss"], found["finite"], found["layout"]) == ("failure", "", "skipped")
    failure = suite.find("testcase[@name='loss']/failure")
    assert failure is not None
    assert failure.attrib["message"] == outcomes["loss"].reason
    assert "times what is allowed" in str(failure.text)
    assert kinds(legs) == {"tp1": "", "tp3": "", "tp4": ""}


def test_a_check_that_did_not_run_is_skipped_where_nobody_needs_it_and_an_error_where_somebody_does() -> None:
    outcomes = [
        OutcomeResult(check=name, kind="parity", status="not run", required=required, reason="no records")
        for name, required in (("layout", False), ("gradients", True))
    ]
    given = result(LOSS)
    changed = given.comparisons[0].model_copy(update={"outcomes": outcomes, "verdict": "inconclusive"})
    root = parsed(given.model_copy(update={"comparisons": [changed], "verdict": "inconclusive"}))
    assert kinds(root[0]) == {"layout": "skipped", "gradients": "error"}


def test_a_leg_that_crashed_is_an_error_that_says_which_rank_and_where_the_logs_are() -> None:
    given = result(LOSS)
    broken = LegResult(
        name="tp3", status="failed", exit_code=1, failing_rank=2, error="ValueError: heads", seconds=3.25,
        command="train", logs=["legs/tp3/rank-2.log"],
    )  # fmt: skip
    comparison = given.comparisons[0].model_copy(update={"verdict": "error", "outcomes": [], "summary": "tp3 failed"})
    root = parsed(given.model_copy(update={"comparisons": [comparison], "legs": [broken], "verdict": "error"}))
    assert kinds(root[0]) == {"verdict": "error"}
    error = root[1].find("testcase/error")
    assert error is not None
    assert error.attrib["message"] == "failed, rank 2 first: ValueError: heads"
    assert "log: legs/tp3/rank-2.log" in str(error.text)
    assert root[1][1].attrib["time"] == "3.250"


def test_a_leg_that_died_after_its_whole_curve_is_no_error_in_a_green_run() -> None:
    given = result(LOSS)
    legs = [one.model_copy(update={"status": "failed", "error": "in teardown"}) for one in given.legs]
    assert not red(parsed(given.model_copy(update={"legs": legs, "verdict": "pass"})))


@pytest.mark.parametrize("verdict", [one.value for one in Verdict])
def test_a_result_of_nothing_is_red_unless_it_passes(verdict: str) -> None:
    given = Result.model_validate({"suite": "x", "verdict": verdict, "summary": "no legs", "reproduce": ""})
    assert red(parsed(given)) == (verdict != "pass")


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-7, 1 + 1e-5, 1.01, float("nan")])
def test_the_file_is_red_exactly_where_the_verdict_is_not_pass(factor: float) -> None:
    given = result(LOSS * factor)
    assert red(parsed(given)) == (given.verdict != "pass")


@settings(max_examples=60, deadline=None)
@given(text=st.one_of(TEXTS, st.sampled_from([*HOSTILE, "]]>", "<!--", "&#0;", "\x00\x0b￾\ud800", "\t a \r\n"])))
def test_hostile_text_in_every_field_leaves_a_valid_file_of_the_same_cases(text: str) -> None:
    calm, wild = (parsed(replaced(FULL, {str: one})) for one in ("calm", text))
    assert [one.tag for one in wild.iter()] == [one.tag for one in calm.iter()]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), -1.5, 5e-324, 1.7e308])
def test_a_file_of_any_numbers(number: float) -> None:
    parsed(replaced(FULL, {float: number}))


def test_a_file_is_of_a_size_that_can_be_shown() -> None:
    first = FULL.comparisons[0]
    many = FULL.model_copy(update={"comparisons": [first] * 1000, "legs": FULL.legs * 1000})
    root = parsed(many)
    assert len(root) <= 501
    assert red(root)
