"""The result as JUnit's XML, which any continuous integration shows.

Written to the schema of Apache Ant's tasks (github.com/windyroad/JUnit-Schema), the strictest of those in use: what
it takes, Jenkins, GitLab and whoever else reads such files take too. Something in the file is red exactly where the
verdict is not `pass`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

from parity.checks.words import plural
from parity.plain import plain
from parity.report import text
from parity.result import ComparisonResult, LegResult, OutcomeResult, ParameterResult, Result

__all__ = ["render_junit"]

# A suite of 200 comparisons of all checks has some 3,000 cases; what a hostile one has more is counted.
_MOST_SUITES = 500
_MOST_LEGS = 500
_MOST_CASES = 100  # of a comparison
_MOST_LINES = 40
_LONGEST = 2000

_GOOD = ("finished", "read")


@dataclass(frozen=True)
class _Case:
    """A test case; `kind` is empty where it passed."""

    name: str
    kind: Literal["", "failure", "error", "skipped"] = ""
    type: str = ""
    message: str = ""
    lines: Sequence[str] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class _Suite:
    name: str
    cases: Sequence[_Case]
    properties: Sequence[tuple[str, str]] = ()


def render_junit(result: Result) -> str:
    """The text of `junit.xml`."""
    suites = [_comparison(one) for one in result.comparisons[:_MOST_SUITES]]
    legs = [_leg(one, result) for one in result.legs[:_MOST_LEGS]]
    red = any(case.kind in ("failure", "error") for suite in suites for case in suite.cases)
    if result.verdict != "pass" and not red and not any(case.kind == "error" for case in legs):
        legs.append(_verdict(result.verdict, result.summary))
    if legs:
        suites.append(_Suite("legs", legs, [("verdict", result.verdict), ("reproduce", result.reproduce)]))
    root = ElementTree.Element("testsuites")
    for number, suite in enumerate(suites):
        root.append(_element(suite, number, result))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _comparison(comparison: ComparisonResult) -> _Suite:
    cases = [_check(one) for one in comparison.outcomes[:_MOST_CASES]]
    red = any(case.kind in ("failure", "error") for case in cases)
    if comparison.verdict != "pass" and not red:
        cases.append(_verdict(comparison.verdict, comparison.summary))
    told = [("verdict", comparison.verdict), ("profile", comparison.profile), ("summary", comparison.summary)]
    noise = [*comparison.controls, *comparison.repeats, *comparison.perturbed]
    told += [("noise measured by", ", ".join(noise))] if noise else []
    return _Suite(f"{comparison.candidate} against {comparison.baseline}", cases, told)


def _verdict(verdict: str, summary: str) -> _Case:
    return _Case("verdict", "failure" if verdict == "fail" else "error", verdict, summary)


def _check(outcome: OutcomeResult) -> _Case:
    if outcome.status == "pass":
        return _Case(outcome.check)
    if outcome.status == "not run":
        kind: Literal["error", "skipped"] = "error" if outcome.required else "skipped"
        return _Case(outcome.check, kind, "not run", f"not run: {outcome.reason}")
    return _Case(outcome.check, "failure", outcome.kind, outcome.reason, [*_numbers(outcome)])


def _numbers(outcome: OutcomeResult) -> Iterable[str]:
    for gap in outcome.gaps:
        at = "" if gap.worst_step is None else f" at step {gap.worst_step}"
        yield (
            f"{gap.metric}: {text.gap(gap.worst)}{at}, allowed {text.gap(gap.allowed)}:"
            f" {text.times(gap.times_allowed)} times what is allowed, {text.times(gap.times_floor)} times the floor"
        )
        if gap.first_over is not None:
            yield f"{gap.metric}: beyond at {plural(gap.steps_over, 'step')}, the first {gap.first_over}"
    yield from map(_parameter, outcome.parameters)
    yield from (f"warning: {warning}" for warning in outcome.warnings)


def _parameter(one: ParameterResult) -> str:
    return (
        f"{one.name} ({one.group}) at step {one.step}: relative L2 {text.gap(one.distance)}, allowed"
        f" {text.gap(one.allowed)}, ratio {text.ratio(one.ratio)}, cosine {text.ratio(one.cosine)}"
    )


def _leg(leg: LegResult, result: Result) -> _Case:
    seconds = leg.seconds or 0.0
    named = [one for one in result.comparisons if leg.name in _legs(one)]
    # One that died in teardown after its whole curve is judged by its curve, and its comparisons are no errors.
    judged = leg.status in ("failed", "timed out", "stopped") and any(one.verdict != "error" for one in named)
    if leg.status in _GOOD or judged:
        return _Case(leg.name, seconds=seconds)
    rank = "" if leg.failing_rank is None else f", rank {leg.failing_rank} first"
    message = f"{leg.status}{rank}" + (f": {leg.error}" if leg.error else "")
    if leg.status == "not run" and not named:
        return _Case(leg.name, "skipped", leg.status, message)
    lines = [f"command: {leg.command}"] if leg.command else []
    lines += [f"exit code: {leg.exit_code}"] if leg.exit_code is not None else []
    lines += [f"log: {path}" for path in leg.logs]
    return _Case(leg.name, "error", leg.status, message, lines, seconds)


def _legs(one: ComparisonResult) -> set[str | None]:
    return {one.baseline, one.candidate, *one.controls, *one.repeats, *one.perturbed, one.reference}


def _element(suite: _Suite, number: int, result: Result) -> ElementTree.Element:
    kinds = [case.kind for case in suite.cases]
    # The schema takes a time without a zone.
    time = result.created.removesuffix("Z")
    known = re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}", time)
    package = _token(f"parity.{result.suite}")
    element = ElementTree.Element(
        "testsuite",
        name=_token(suite.name),
        package=package,
        id=str(number),
        timestamp=time if known else "1970-01-01T00:00:00",
        hostname="localhost",
        tests=str(len(kinds)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=_seconds(sum(case.seconds for case in suite.cases)),
    )
    properties = ElementTree.SubElement(element, "properties")
    for name, value in suite.properties:
        ElementTree.SubElement(properties, "property", name=name, value=_clean(value))
    for case in suite.cases:
        element.append(_case(case, f"{package}.{_token(suite.name)}"))
    ElementTree.SubElement(element, "system-out")
    ElementTree.SubElement(element, "system-err")
    return element


def _case(case: _Case, classname: str) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase", name=_token(case.name), classname=classname, time=_seconds(case.seconds)
    )
    if case.kind:
        kind = {} if case.kind == "skipped" else {"type": _clean(case.type)}
        why = ElementTree.SubElement(element, case.kind, kind, message=_clean(case.message))
        # Some show the message, others the text.
        lines = [_clean(line) for line in (case.message, *case.lines[:_MOST_LINES])]
        more = len(case.lines) - _MOST_LINES
        why.text = "\n".join([*lines, *([f"and {more} lines more"] if more > 0 else [])])
    return element


def _seconds(number: float) -> str:
    return f"{number:.3f}" if 0 <= number < 1e9 else "0.000"


def _token(value: str) -> str:
    return _clean(value) or "–"


def _clean(value: object) -> str:
    """One line without any character that XML 1.0 forbids; those that `plain` leaves are all allowed (2.2, Char)."""
    return plain(value, _LONGEST)
