"""What every report shows before anything else, in at most `LINES` lines: the verdict, and why.

One value that Markdown, HTML and the terminal lay out, each in its own way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from parity.checks.outcome import Verdict
from parity.checks.words import plural
from parity.plain import plain
from parity.report import text
from parity.result import ComparisonResult, GapResult, MetricResult, OutcomeResult, Result, VerdictName

__all__ = [
    "LINES",
    "FirstScreen",
    "Line",
    "divergent_step",
    "first_screen",
    "line",
    "telling",
    "worst_first",
    "worst_gap",
    "worst_step",
]

LINES: Final = 12
"""Title, sentence, a table's head with the line below it, `_ROWS` rows, and four lines below the table."""

_ROWS = 4
_SENTENCE = 600
_COMMAND = 300
# Buckets of the sparkline: as many as a phone has room for beside a number.
_BARS = 16
_NO_GRADIENTS = "no gradients were compared, so no parameter can be named"
# Its gaps are the largest, and what it allows is for their mean.
_OF_MEANS = "drift"


@dataclass(frozen=True)
class Line:
    """One comparison, as a row of the table; numbers are spelled, a dash is where there is none.

    Attributes:
        comparison: `tp3 against tp1`, printable, not escaped.
        verdict: of it.
        metric: what was furthest out in units of what was allowed: a curve, `gradients`, `updates`; or the check
            that makes the verdict, where that is no gap.
        worst_step: where.
        gap: there, relative to the baseline.
        allowed: there.
        times_allowed: the one over the other.
        times_floor: the gap over the noise floor.
        curve: the metric of `sparkline`; empty without one.
        sparkline: the size of the gap over all steps.
    """

    comparison: str
    verdict: VerdictName
    metric: str = "–"
    worst_step: str = "–"
    gap: str = "–"
    allowed: str = "–"
    times_allowed: str = "–"
    times_floor: str = "–"
    curve: str = ""
    sparkline: str = ""


@dataclass(frozen=True)
class FirstScreen:
    """All texts are printable, and none is escaped; those that may be missing are empty then.

    Attributes:
        verdict: of the suite.
        suite: its name.
        sentence: the reason, with its numbers.
        rows: of the table, the comparisons that make the verdict first.
        others: of the comparisons that have no row, how many there are with which verdict, and the nearest to what
            is allowed.
        divergence: the first step beyond what is allowed, and the parameters furthest out.
        reproduce: the command that repeats the run.
        tested: which commit was tested, against the newest.
    """

    verdict: VerdictName
    suite: str
    sentence: str
    rows: tuple[Line, ...]
    others: str
    divergence: str
    reproduce: str
    tested: str


def first_screen(result: Result) -> FirstScreen:
    """The first screen of a result."""
    shown, others = _shown(result.comparisons)
    return FirstScreen(
        verdict=result.verdict,
        suite=plain(result.suite),
        sentence=plain(result.summary, _SENTENCE),
        rows=tuple(line(one) for one in shown),
        others=_others(others),
        divergence=_divergence(result),
        reproduce=plain(result.reproduce, _COMMAND),
        tested=plain(result.tested or ""),
    )


def telling(result: Result) -> ComparisonResult | None:
    """The comparison that makes the verdict what it is, or the first."""
    same = (one for one in result.comparisons if one.verdict == result.verdict)
    return next(same, next(iter(result.comparisons), None))


def worst_first(comparisons: Sequence[ComparisonResult]) -> list[ComparisonResult]:
    """By verdict; those of one verdict as they stood."""
    return sorted(comparisons, key=lambda one: -Verdict(one.verdict).severity)


def worst_gap(comparison: ComparisonResult) -> GapResult | None:
    """The largest deviation in units of what was allowed there; the first one that is not finite, if any."""
    broken = [gap for one in comparison.metrics if (gap := _not_finite(one)) is not None]
    if broken:
        return min(broken, key=lambda gap: gap.worst_step or 0)
    placed = [
        gap
        for outcome in comparison.outcomes
        if outcome.check != _OF_MEANS
        for gap in outcome.gaps
        if gap.worst_step is not None
    ]
    known = [gap for gap in placed if gap.times_allowed is not None and not math.isnan(gap.times_allowed)]
    return max(known or placed, key=lambda gap: gap.times_allowed or 0.0, default=None)


def _not_finite(metric: MetricResult) -> GapResult | None:
    drawn = metric.deviation
    at = next((at for at, gap in enumerate(drawn.gap) if not math.isfinite(gap)), None) if drawn else None
    if drawn is None or at is None:
        return None
    return GapResult(metric=metric.metric, worst=drawn.gap[at], worst_step=drawn.steps[at], allowed=drawn.allowed[at])


def worst_step(result: Result) -> int | None:
    """The step of the largest deviation in units of what was allowed there, in the telling comparison."""
    comparison = telling(result)
    gap = worst_gap(comparison) if comparison else None
    return gap.worst_step if gap else None


def divergent_step(result: Result) -> int | None:
    """The first step of any curve beyond what was allowed, in the telling comparison."""
    comparison = telling(result)
    steps = [one.first_divergent_step for one in comparison.metrics] if comparison else []
    return min((step for step in steps if step is not None), default=None)


def _nearness(comparison: ComparisonResult) -> float:
    gap = worst_gap(comparison)
    times = gap.times_allowed if gap else None
    return 0.0 if times is None or math.isnan(times) else times


def _shown(
    comparisons: Sequence[ComparisonResult],
) -> tuple[Sequence[ComparisonResult], Sequence[ComparisonResult]]:
    """Those that get a row, and the others; of many, the ones that pass are a line together."""
    ones = worst_first(comparisons)
    if len(ones) <= _ROWS:
        return ones, []
    rows = max(1, min(_ROWS - 1, sum(one.verdict != "pass" for one in ones)))
    return ones[:rows], ones[rows:]


def line(comparison: ComparisonResult) -> Line:
    """The row of one comparison."""
    who = _who(comparison)
    gap = worst_gap(comparison)
    curves = {one.metric: one for one in comparison.metrics}
    curve = curves.get(gap.metric if gap else "", next(iter(comparison.metrics), None))
    drawn = (plain(curve.metric), text.sparkline(curve.chart.gap, _BARS)) if curve else ("", "")
    if gap is None or _within_all(comparison, gap):
        # A table that names a gap for the reason of a verdict that has none would mislead.
        return Line(who, comparison.verdict, _decides(comparison), curve=drawn[0], sparkline=drawn[1])
    return Line(
        comparison=who,
        verdict=comparison.verdict,
        metric=plain(gap.metric),
        worst_step=str(gap.worst_step),
        gap=text.gap(gap.worst),
        allowed=text.gap(gap.allowed),
        times_allowed=text.times(gap.times_allowed),
        times_floor=text.times(gap.times_floor),
        curve=drawn[0],
        sparkline=drawn[1],
    )


def _within_all(comparison: ComparisonResult, worst: GapResult) -> bool:
    """Whether what makes the verdict is no gap: the largest is within what is allowed, and it is no pass."""
    return comparison.verdict != "pass" and worst.times_allowed is not None and worst.times_allowed <= 1


def _decides(comparison: ComparisonResult) -> str:
    return plain(next(iter(comparison.deciding), "–"))


def _who(comparison: ComparisonResult) -> str:
    return f"{plain(comparison.candidate)} against {plain(comparison.baseline)}"


def _others(others: Sequence[ComparisonResult]) -> str:
    """`2 more comparisons: fail; 25 more comparisons: pass, the nearest to its bound tp2 against tp1 at …`"""
    said = []
    for verdict in ("error", "fail", "inconclusive", "pass"):
        ones = [one for one in others if one.verdict == verdict]
        if ones:
            said.append(f"{plural(len(ones), 'more comparison')}: {verdict}{_nearest(ones)}")
    return "; ".join(said)


def _nearest(ones: Sequence[ComparisonResult]) -> str:
    nearest = max(ones, key=_nearness)
    gap = worst_gap(nearest)
    if gap is None or nearest.verdict != "pass":
        return ""
    return f", the nearest to its bound {_who(nearest)} at {text.times(gap.times_allowed)} times what is allowed"


def _divergence(result: Result) -> str:
    """Empty where nothing was compared."""
    about = telling(result)
    if about is None or not about.metrics:
        return ""
    first = _first_beyond(about)
    if first is None and result.verdict == "pass":
        return f"none; {_within(result.comparisons)}"
    who = f" ({_who(about)})" if len(result.comparisons) > 1 else ""
    where = f"step {first[0]}, {plain(first[1])}" if first else f"none; the verdict is that of {_decides(about)}"
    return f"{where}{who}; {_parameters(about)}"


def _within(comparisons: Sequence[ComparisonResult]) -> str:
    judged = sum(bool(_judged_parameters(one)) for one in comparisons)
    if judged == len(comparisons):
        return "every parameter is within what is allowed"
    if not judged:
        return _NO_GRADIENTS
    return f"gradients were compared in {judged} of {len(comparisons)} comparisons, every parameter within"


def _first_beyond(comparison: ComparisonResult) -> tuple[int, str] | None:
    """The first step beyond, and of what; where several are beyond there, what decides first."""
    order = {check: place for place, check in enumerate(comparison.deciding)}
    outcomes = sorted(comparison.outcomes, key=lambda one: order.get(one.check, len(order)))
    beyond = [
        (gap.first_over, gap.metric)
        for one in outcomes
        if one.status == "fail" and one.check != _OF_MEANS
        for gap in one.gaps
        if gap.first_over is not None
    ]
    return min(beyond, key=lambda pair: pair[0], default=None)


def _parameters(comparison: ComparisonResult) -> str:
    judged = _judged_parameters(comparison)
    if not judged:
        return _NO_GRADIENTS
    failed = next((one for one in judged if one.status == "fail"), None)
    return _furthest(failed) if failed else "every parameter is within what is allowed"


def _judged_parameters(comparison: ComparisonResult) -> list[OutcomeResult]:
    return [one for one in comparison.outcomes if one.check in ("gradients", "update") and one.status != "not run"]


def _furthest(outcome: OutcomeResult) -> str:
    """`attention has 59 % of the squared error of gradients, furthest layers.0.attention.k_norm.weight`."""
    said = []
    if outcome.shares:
        group, share = max(outcome.shares.items(), key=lambda pair: pair[1] if math.isfinite(pair[1]) else -1.0)
        said.append(f"{plain(group)} has {text.percent(share)} of the squared error of {outcome.check}")
    if outcome.parameters:
        said.append(f"furthest {plain(outcome.parameters[0].name)}")
    return ", ".join(said) or f"{outcome.check} fail"
