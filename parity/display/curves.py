"""Curves and gaps of a whole run, down-sampled to be drawn. Pure."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import JUDGED, Comparison, Gap, Leg
from parity.display.sampling import POINTS, sampled
from parity.result.drawn import CurveResult, DeviationResult

__all__ = ["curves", "deviation", "points_for"]

# Points of all drawn lines of one kind, so that a suite of many legs has a result that is quick to read.
_MOST_POINTS = 16 * POINTS
# A log may hold dozens of metrics; the judged ones come first.
_MOST_METRICS = 6


def points_for(lines: int) -> int:
    """How many points each of so many lines may have."""
    return max(POINTS // 10, min(POINTS, _MOST_POINTS // max(1, lines)))


def curves(legs: Iterable[Leg]) -> list[CurveResult]:
    """The judged metrics of every leg, and a few others that several legs have."""
    legs = list(legs)
    names = dict.fromkeys(name for leg in legs for name in leg.curves.curves)
    shared = [name for name in names if name not in JUDGED and sum(bool(leg.curve(name)) for leg in legs) > 1]
    wanted = [name for name in JUDGED if name in names] + shared
    found = [
        (leg, curve) for name in wanted[:_MOST_METRICS] for leg in legs if (curve := leg.curve(name)) is not None
    ]
    most = points_for(len(found))
    results = []
    for leg, curve in found:
        values = np.where(np.isfinite(curve.values), curve.values, np.nan)
        at = sampled(values.size, [values], [values], broken=np.isnan(values), most=most)
        results.append(
            CurveResult(
                leg=leg.name,
                metric=curve.metric,
                count=values.size,
                steps=curve.steps[at].tolist(),
                values=curve.values[at].tolist(),
            )
        )
    return results


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def deviation(
    comparison: Comparison,
    gap: Gap,
    allowed: NDArray[np.float64],
    floor: NDArray[np.float64] | None,
    *,
    most: int = POINTS,
    always: Iterable[int | None] = (),
) -> DeviationResult:
    """A metric's gap over the whole run.

    Args:
        comparison: whose gap it is.
        gap: of n steps.
        allowed: float64 (n,), absolute.
        floor: float64 (n,), absolute, or None where no leg measured noise.
        most: points.
        always: steps that are kept.
    """
    times = np.where(gap.absolute == 0, 0.0, gap.absolute / allowed)
    kept = [step for step in always if step is not None]
    at = sampled(
        gap.steps.size,
        [gap.relative, times],
        [gap.relative],
        broken=~gap.finite,
        most=most,
        always=np.flatnonzero(np.isin(gap.steps, kept)).tolist(),
    )
    noise = _noise(comparison, gap)
    return DeviationResult(
        count=gap.steps.size,
        steps=gap.steps[at].tolist(),
        gap=gap.relative[at].tolist(),
        allowed=(allowed / gap.scale)[at].tolist(),
        times_allowed=times[at].tolist(),
        floor=None if floor is None else (floor / gap.scale)[at].tolist(),
        noise=None if noise is None else [None if np.isnan(one) else float(one) for one in noise[at]],
    )


def _noise(comparison: Comparison, gap: Gap) -> NDArray[np.float64] | None:
    """The largest relative gap of the legs that measure noise, float64 (n,), NaN at steps that they lack."""
    noise = None
    for leg in comparison.floor_legs():
        theirs = comparison.gap_of(gap.metric, leg)
        if theirs is not None:
            noise = np.full(gap.steps.shape, np.nan) if noise is None else noise
            _, i, j = np.intersect1d(gap.steps, theirs.steps, assume_unique=True, return_indices=True)
            noise[i] = np.fmax(noise[i], theirs.relative[j])
    return noise
