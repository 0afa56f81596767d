"""From legs to a comparison's result: the checks' outcomes, and the steps a person needs to see. Pure."""

from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from parity.checks.allowance import allowance
from parity.checks.comparison import Comparison, Gap, Leg, named_steps
from parity.checks.hints import hints, reporting_bug
from parity.checks.noise import horizon, noise_floor
from parity.checks.run import run_checks
from parity.checks.sensitivity import describe, sensitivity, warnings
from parity.checks.verdict import deciding, of_outcomes, summary
from parity.checks.within import measure
from parity.display.curves import deviation
from parity.display.gradients import gradient_map
from parity.display.sampling import POINTS
from parity.result import (
    Chart,
    ComparisonResult,
    GapResult,
    LeastResult,
    MetricResult,
    OutcomeResult,
    ParameterResult,
    Row,
    SensitivityResult,
)

__all__ = ["compare"]

# Steps shown on each side of the worst one.
_AROUND = 3
# Rows of the sampled table, beside the steps that are always in it.
_SAMPLED = 12
# Buckets of a chart: as many as a terminal line has room for.
_BUCKETS = 60


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def compare(comparison: Comparison, profile_reason: str = "", points: int = POINTS) -> ComparisonResult:
    """Run every check and gather the diagnostics.

    Args:
        comparison: the legs.
        profile_reason: why the profile is this one.
        points: of each line to be drawn.
    """
    outcomes = run_checks(comparison)
    reporting = reporting_bug(comparison, outcomes)
    told = summary(comparison, outcomes)
    return ComparisonResult(
        baseline=comparison.baseline.name,
        candidate=comparison.candidate.name,
        controls=[leg.name for leg in comparison.controls],
        repeats=[leg.name for leg in comparison.repeats],
        perturbed=[leg.name for leg in comparison.perturbed],
        reference=comparison.reference.name if comparison.reference else None,
        beside=beside.name if (beside := _beside(comparison)) else None,
        profile=comparison.profile.name,
        profile_reason=profile_reason,
        k=comparison.k,
        verdict=of_outcomes(outcomes).value,
        summary=f"{told.rstrip('.')}; {reporting}." if reporting else told,
        hints=list(hints(comparison, outcomes)),
        sensitivity=_sensitivity(comparison),
        warnings=list(warnings(comparison)),
        deciding=[outcome.check for outcome in deciding(outcomes)],
        outcomes=[
            OutcomeResult(
                check=outcome.check,
                kind=outcome.kind.value,
                status=outcome.status.value,
                required=outcome.required,
                reason=outcome.reason,
                gaps=[GapResult(**asdict(gap)) for gap in outcome.gaps],
                warnings=list(outcome.warnings),
                parameters=[ParameterResult(**asdict(parameter)) for parameter in outcome.parameters],
                shares=dict(outcome.shares),
            )
            for outcome in outcomes
        ],
        metrics=[
            _metric(comparison, gap, points)
            for name in comparison.metrics()
            if (gap := comparison.gap(name)) is not None
        ],
        gradients=gradient_map(comparison),
    )


def _sensitivity(comparison: Comparison) -> SensitivityResult:
    found = sensitivity(comparison)
    return SensitivityResult(
        line=describe(found),
        gradient_factor=LeastResult(**asdict(found.gradient_factor)),
        group_factors={group: LeastResult(**asdict(one)) for group, one in found.group_factors.items()},
        loss_offset=LeastResult(**asdict(found.loss_offset)),
    )


def _beside(comparison: Comparison) -> Leg | None:
    """The leg that measures noise whose values are shown beside the two compared."""
    return next(comparison.floor_legs(), None)


def _metric(comparison: Comparison, gap: Gap, points: int) -> MetricResult:
    all_allowed = allowance(comparison, gap)
    allowed = all_allowed.allowed
    floor = noise_floor(comparison, gap)
    numbers = measure(gap, allowed, floor, all_allowed.judged)
    end = horizon(comparison, gap.metric)
    steps = _all_steps(comparison, gap.metric)
    worst = numbers.worst_step
    # Where no step can be judged, look where the values stop being finite.
    centre = worst if worst is not None else int(gap.steps[0])
    broken = gap.steps[~gap.finite]
    if broken.size and not numbers.steps_over:
        centre = int(broken[0])
    rows = _Rows(comparison, gap, allowed, floor)
    window = _around(steps, centre)
    peak = numbers.peak_step
    return MetricResult(
        metric=gap.metric,
        steps=int(gap.steps.size),
        worst_step=worst,
        peak_step=peak,
        first_divergent_step=numbers.first_over,
        horizon=None if end >= gap.steps[-1] else int(end),
        window=rows.at(window),
        peak_window=rows.at(_around(steps, peak)) if peak is not None and peak not in window else [],
        sample=rows.at(_sampled(steps, {centre, worst, peak, numbers.first_over})),
        chart=_chart(comparison, gap, allowed),
        deviation=deviation(
            comparison, gap, allowed, floor, most=points, always=(centre, worst, peak, numbers.first_over)
        ),
    )


def _all_steps(comparison: Comparison, metric: str) -> NDArray[np.int64]:
    """Every step that baseline or candidate has, so that a table shows where one of them ends."""
    curves = [leg.curve(metric) for leg in (comparison.baseline, comparison.candidate)]
    return named_steps(curve for curve in curves if curve is not None)


def _around(steps: NDArray[np.int64], centre: int) -> list[int]:
    at = int(np.searchsorted(steps, centre))
    chosen: list[int] = steps[max(0, at - _AROUND) : at + _AROUND + 1].tolist()
    return chosen


def _sampled(steps: NDArray[np.int64], always: set[int | None]) -> list[int]:
    even = steps[np.unique(np.linspace(0, steps.size - 1, min(_SAMPLED, steps.size)).astype(np.int64))]
    return sorted({*even.tolist(), *(step for step in always if step is not None)})


class _Rows:
    """Rows of a table for any steps."""

    def __init__(
        self, comparison: Comparison, gap: Gap, allowed: NDArray[np.float64], floor: NDArray[np.float64] | None
    ) -> None:
        beside = _beside(comparison)
        self._values = [
            None if leg is None else leg.curve(gap.metric)
            for leg in (comparison.baseline, comparison.candidate, beside)
        ]
        self._gap = gap
        self._beside = None if beside is None else comparison.gap_of(gap.metric, beside)
        self._times_allowed = np.where(gap.absolute == 0, 0.0, gap.absolute / allowed)
        self._times_floor = None if floor is None else gap.absolute / floor
        self._allowed = allowed

    def at(self, steps: list[int]) -> list[Row]:
        return [self._row(step) for step in steps]

    def _row(self, step: int) -> Row:
        baseline, candidate, noise = (
            None if curve is None else _value(curve.steps, curve.values, step) for curve in self._values
        )
        gap = self._gap
        other = self._beside
        return Row(
            step=step,
            baseline=baseline,
            candidate=candidate,
            noise=noise,
            absolute=_value(gap.steps, gap.absolute, step),
            relative=_value(gap.steps, gap.relative, step),
            allowed=_value(gap.steps, self._allowed, step),
            times_allowed=_value(gap.steps, self._times_allowed, step),
            noise_absolute=None if other is None else _value(other.steps, other.absolute, step),
            noise_relative=None if other is None else _value(other.steps, other.relative, step),
            times_floor=None if self._times_floor is None else _value(gap.steps, self._times_floor, step),
        )


def _value(steps: NDArray[np.int64], values: NDArray[np.float64], step: int) -> float | None:
    at = int(np.searchsorted(steps, step))
    return float(values[at]) if at < steps.size and steps[at] == step else None


def _chart(comparison: Comparison, gap: Gap, allowed: NDArray[np.float64]) -> Chart:
    starts = np.unique(np.linspace(0, gap.steps.size, min(_BUCKETS, gap.steps.size), endpoint=False).astype(np.int64))
    noise = None
    for leg in comparison.floor_legs():
        theirs = comparison.gap_of(gap.metric, leg)
        if theirs is not None:
            noise = np.full(gap.steps.shape, np.nan) if noise is None else noise
            _, i, j = np.intersect1d(gap.steps, theirs.steps, assume_unique=True, return_indices=True)
            noise[i] = np.fmax(noise[i], theirs.relative[j])
    return Chart(
        first_steps=gap.steps[starts].tolist(),
        gap=_bucketed(gap.relative, starts),
        allowed=_bucketed(allowed / gap.scale, starts),
        noise=None if noise is None else _bucketed(noise, starts),
    )


def _bucketed(values: NDArray[np.float64], starts: NDArray[np.int64]) -> list[float | None]:
    """Largest value of each bucket; None where a value in it is not finite."""
    largest = np.maximum.reduceat(values, starts)
    return [float(value) if np.isfinite(value) else None for value in largest]
