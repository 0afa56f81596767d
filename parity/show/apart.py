"""How far legs are from their baselines, parameter by parameter, for any sketched step."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import ParameterGap
from parity.checks.parameters import apart, common_steps, recorded
from parity.checks.per_parameter import gaps_by_parameter
from parity.plain import plain
from parity.report import text
from parity.report.columns import Columns
from parity.result import ComparisonResult, LegResult
from parity.show.opened import Opened

__all__ = ["KINDS", "Apart", "Pair", "furthest_first", "pairs", "parameter_table", "parameters_at", "sketched_steps"]

KINDS = ("gradients", "updates")


@dataclass(frozen=True)
class Pair:
    """A leg against a baseline.

    Attributes:
        told: the comparison's result.
        judged: what it was made of; None where there is a result alone.
        leg: the leg: the candidate, or one that measures noise.
    """

    told: ComparisonResult
    judged: Comparison | None
    leg: str

    @property
    def title(self) -> str:
        """`tp3 against tp1`"""
        role = "" if self.leg == self.told.candidate else ", which measures noise"
        return f"{self.leg} against {self.told.baseline}{role}"

    @property
    def other(self) -> Leg | None:
        """The leg as it was judged."""
        if self.judged is None:
            return None
        return next((one for one in self.judged.legs() if one.name == self.leg), None)


@dataclass(frozen=True)
class Apart:
    """One parameter's distance; None where a result alone does not tell."""

    name: str
    group: str
    step: int
    distance: float | None
    allowed: float | None = None
    times_allowed: float | None = None
    ratio: float | None = None
    cosine: float | None = None
    share: float | None = None
    times_floor: float | None = None


def pairs(opened: Opened, leg: LegResult | None = None) -> Iterator[Pair]:
    """Every candidate against its baseline; or, of one leg, each comparison that it takes part in."""
    for told in opened.result.comparisons:
        noise = [*told.controls, *told.repeats, *told.perturbed]
        if leg is None or leg.name in (told.candidate, told.baseline):
            yield Pair(told, opened.judged(told), told.candidate)
        elif leg.name in noise:
            yield Pair(told, opened.judged(told), leg.name)


def sketched_steps(pair: Pair, kind: str) -> list[int]:
    """Steps at which both legs sketched `gradients` or `updates`."""
    drawn = pair.told.gradients
    if pair.judged is None:
        return drawn.steps if drawn and kind == "gradients" and pair.leg == pair.told.candidate else []
    if pair.other is None or not recorded(pair.judged.baseline) or not recorded(pair.other):
        return []
    return common_steps(pair.judged, pair.other, kind)


def parameters_at(pair: Pair, kind: str, step: int) -> list[Apart]:
    """All parameters at a sketched step."""
    return _judged(pair, kind, step) if pair.judged is not None else _drawn(pair.told, step)


def furthest_first(rows: Iterable[Apart]) -> list[Apart]:
    """By how many times it is what was allowed, or where nobody knows that, by distance."""

    def out(one: Apart) -> float:
        size = one.distance if one.times_allowed is None else one.times_allowed
        return 0.0 if size is None else math.inf if math.isnan(size) else size

    return sorted(rows, key=out, reverse=True)


def _judged(pair: Pair, kind: str, step: int) -> list[Apart]:
    assert pair.judged is not None
    assert pair.other is not None
    bound = pair.judged.profile.gradient if kind == "gradients" else pair.judged.profile.update
    measured = apart(pair.judged, pair.other, kind, step)
    return [_told(gap) for gap in gaps_by_parameter(pair.judged, measured, kind, step, bound)]


def _told(gap: ParameterGap) -> Apart:
    return Apart(
        name=gap.name,
        group=gap.group,
        step=gap.step,
        distance=gap.distance,
        allowed=gap.allowed,
        times_allowed=gap.times_allowed,
        ratio=gap.ratio,
        cosine=gap.cosine,
        share=gap.share,
        times_floor=gap.times_floor,
    )


def _drawn(told: ComparisonResult, step: int) -> list[Apart]:
    drawn = told.gradients
    if drawn is None or step not in drawn.steps:
        return []
    at = drawn.steps.index(step)
    floors = drawn.times_floor or [[None] * len(drawn.steps)] * len(drawn.names)
    return [
        Apart(name, group, step, row[at], times_floor=times[at])
        for name, group, row, times in zip(drawn.names, drawn.groups, drawn.distance, floors, strict=True)
    ]


def parameter_table(rows: Iterable[Apart], by: str = "parameter") -> Columns:
    """A row for each, red where it is beyond what is allowed.

    Args:
        rows: the distances.
        by: what tells the rows apart: `parameter` or `step`.
    """
    numbers = ("relative L2", "allowed", "× allowed", "ratio", "cosine", "× floor", "squared error")
    table = Columns(by, "group", *numbers, left=2) if by == "parameter" else Columns(by, *numbers, left=0)
    for one in rows:
        over = one.times_allowed is not None and not one.times_allowed <= 1
        table.add(
            *((plain(one.name), one.group) if by == "parameter" else (str(one.step),)),
            text.gap(one.distance),
            text.gap(one.allowed),
            text.times(one.times_allowed),
            text.ratio(one.ratio),
            text.ratio(one.cosine),
            text.times(one.times_floor),
            text.percent(one.share),
            style="red" if over else "",
        )
    return table
