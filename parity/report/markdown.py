"""The Markdown report."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from parity.checks.outcome import Verdict
from parity.checks.words import plural
from parity.report import legs, text
from parity.report.chart import draw
from parity.report.first_screen import first_screen, line, worst_first
from parity.report.sections import tidy
from parity.result import ComparisonResult, Result

__all__ = ["MARKS", "environment", "render_markdown", "templates"]

_T = TypeVar("_T")

MARKS = {"pass": "✅", "fail": "❌", "inconclusive": "❔", "error": "💥", "not run": "➖"}
"""What stands before a verdict's or an outcome's word, never instead of it."""

# Whoever wrote the suite and the logs, a report is of a size that can be made and read.
_MOST_LEGS = 200
_MOST_COMPARISONS = 200
_MOST_METRICS = 100  # of a comparison
_MOST_NOTES = 200
_MOST_ROWS = 100  # of the environment
# Of so many comparisons those that pass are shown as those that do not.
_FEW = 4


def environment(kind: type[Environment] = Environment) -> Environment:
    """The templates, in which every expression is escaped for Markdown, whoever wrote it, unless a filter made it.

    Args:
        kind: of environment, as a sandboxed one.
    """
    environment = kind(  # autoescape is for HTML
        loader=PackageLoader("parity.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finished,
    )
    environment.filters.update(
        code_block=text.code_block,
        code_lines=lambda lines: text.code_block("\n".join(lines)),
        code_span=text.code_span,
        gap=text.gap,
        layout=legs.layout,
        memory=text.memory,
        percent=text.percent,
        place=legs.place,
        ratio=text.ratio,
        seconds=text.seconds,
        sparkline=text.sparkline,
        state=legs.state,
        template=text.Safe,  # what a macro made: its own expressions were escaped
        times=text.times,
        value=text.value,
    )
    environment.globals["mark"] = {key: text.Safe(mark) for key, mark in MARKS.items()}
    return environment


@cache
def templates() -> Environment:
    """All of them, compiled."""
    made = environment()
    for name in made.list_templates(filter_func=lambda name: name.endswith(".md.j2")):
        made.get_template(name)
    return made


def _finished(value: object) -> str:
    return value if isinstance(value, text.Safe) else text.escape(value)


def render_markdown(result: Result) -> str:
    """The whole report, the first screen first, then folds; ends with a line break."""
    screen = first_screen(result)
    caps = _Caps()
    result = caps.result(result)
    few = len(result.comparisons) <= _FEW
    detailed = [one for one in result.comparisons if (few or one.verdict != "pass") and one.outcomes]
    facts = legs.environment(result.legs)
    report = (
        templates()
        .get_template("report.md.j2")
        .render(
            screen=screen,
            result=result,
            left_out=caps.left_out,
            every_row=[line(one) for one in worst_first(result.comparisons)] if screen.others else [],
            detailed=detailed,
            drawings=[(one, drawing) for one in detailed if (drawing := draw(one))],
            passing=[(one, _counted(one)) for one in result.comparisons if one not in detailed],
            counted=_all_counted(result.comparisons),
            with_parameters=[one for one in detailed if any(o.parameters or o.shares for o in one.outcomes)],
            sampled=[one for one in detailed if one.metrics],
            sensitive=[one for one in detailed if one.sensitivity],
            asymmetries=legs.asymmetries(result.legs),
            environment=facts[:_MOST_ROWS],
            more=max(0, len(facts) - _MOST_ROWS),
            legs_counted=_words(Counter(leg.status for leg in result.legs)),
        )
    )
    return tidy(report)


def _counted(comparison: ComparisonResult) -> str:
    """`12 pass, 2 not run (reference, drift)`."""
    not_run = [one.check for one in comparison.outcomes if one.status == "not run"]
    counts = _words(Counter(one.status for one in comparison.outcomes)) or "nothing was compared"
    return counts + (f" ({', '.join(not_run)})" if not_run else "")


def _all_counted(comparisons: Sequence[ComparisonResult]) -> str:
    counts = _words(Counter(outcome.status for one in comparisons for outcome in one.outcomes))
    return f"{counts}, in {plural(len(comparisons), 'comparison')}" if counts and len(comparisons) > 1 else counts


def _words(counts: Counter[str]) -> str:
    """`2 fail, 11 pass, 1 not run`: what went well stands after what did not, if that is known."""
    order = ("error", "fail", "failed", "timed out", "pass", "finished", "read")
    known = sorted(counts, key=lambda word: order.index(word) if word in order else len(order))
    return ", ".join(f"{counts[word]} {word}" for word in known)


class _Caps:
    """As much of a result as a report shows, and what is left out of it."""

    def __init__(self) -> None:
        self.left_out: list[str] = []

    def result(self, whole: Result) -> Result:
        legs = self._cap("legs", whole.legs, _MOST_LEGS, lambda leg: int(leg.status in ("finished", "read")))
        worst_first: Callable[[ComparisonResult], int] = lambda one: -Verdict(one.verdict).severity  # noqa: E731
        comparisons = self._cap("comparisons", whole.comparisons, _MOST_COMPARISONS, worst_first)
        changed = {
            "legs": legs,
            "comparisons": [self._comparison(one) for one in comparisons],
            "notes": self._cap("notes", whole.notes, _MOST_NOTES),
        }
        return whole.model_copy(update=changed)

    def _comparison(self, whole: ComparisonResult) -> ComparisonResult:
        who = f"{whole.candidate} against {whole.baseline}"
        outcomes = [
            one.model_copy(update={"gaps": self._cap(f"gaps of {one.check}, {who},", one.gaps, _MOST_METRICS)})
            for one in whole.outcomes
        ]
        metrics = self._cap(f"metrics of {who}", whole.metrics, _MOST_METRICS)
        return whole.model_copy(update={"outcomes": outcomes, "metrics": metrics})

    def _cap(self, what: str, ones: list[_T], most: int, order: Callable[[_T], int] = lambda _: 0) -> list[_T]:
        """Those that come first by `order`, as they stood."""
        if len(ones) <= most:
            return ones
        self.left_out.append(f"{len(ones) - most} of {len(ones)} {what} are left out here.")
        kept = sorted(range(len(ones)), key=lambda index: order(ones[index]))[:most]
        return [ones[index] for index in sorted(kept)]
