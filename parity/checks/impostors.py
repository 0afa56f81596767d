"""Which legs that should measure noise are not what they are said to be: other data, other weights, or a copy."""

from collections.abc import Iterator, Mapping

import numpy as np

from parity.checks import initial_state, same_data
from parity.checks.comparison import WHOLE, Comparison, Leg
from parity.checks.outcome import Status
from parity.checks.profiles import PROFILES
from parity.checks.words import number

__all__ = ["impostors"]

# Moving every weight by one ulp moved first losses and norms by up to 6e-7 in fp32, under a profile's first bounds.
_MOST_AT_FIRST = 32.0


def impostors(comparison: Comparison) -> Mapping[Leg, str]:
    """Legs that measure no noise, and why not. They widen nothing, and no comparison passes with one."""

    def find() -> dict[Leg, str]:
        found = {}
        for leg in comparison.floor_legs():
            reason = next(_reasons(comparison, leg), "")
            if reason:
                found[leg] = f"{leg.name} measures no noise: {reason}"
        return found

    return comparison.once(("impostors",), find)


def _reasons(comparison: Comparison, leg: Leg) -> Iterator[str]:
    baseline, candidate = comparison.baseline, comparison.candidate
    against = Comparison(baseline, leg, comparison.profile, expected_steps=comparison.expected_steps)
    control = leg in comparison.controls
    if against.shift:
        yield f"it counts its steps from another number than {baseline.name} (by {against.shift:+d})"
    checks = (same_data.check,) if leg in comparison.perturbed else (same_data.check, initial_state.check)
    for one in (check(against) for check in checks):
        if one.status is Status.FAIL:
            yield one.reason
    if not control:
        if leg.layout is not None and baseline.layout is not None and leg.layout != baseline.layout:
            yield f"it ran under {leg.layout}, {baseline.name} under {baseline.layout}"
        if comparison.against_reference:
            yield from _far_at_first(comparison, leg)
            return
        if leg in comparison.perturbed and _equal(comparison, leg, baseline):
            yield f"it is equal to {baseline.name} to the last digit, so its weights were not moved"
        if _equal(comparison, leg, candidate) and not _equal(comparison, leg, baseline):
            yield f"it is equal to {candidate.name} to the last digit, so it is a copy of it"
        yield from _far_at_first(comparison, leg)


def _equal(comparison: Comparison, leg: Leg, other: Leg) -> bool:
    """Whether two legs logged the same numbers, all of them whole, at more than one step."""
    pairs = [(leg.curve(metric), other.curve(metric)) for metric in comparison.metrics()]
    if not pairs:
        return False
    for one, two in pairs:
        if one is None or two is None or one.steps.size < 2 or not np.array_equal(one.steps, two.steps):
            return False
        whole = one.resolution.at(one.values) <= WHOLE * np.abs(one.values)
        if not np.array_equal(one.values, two.values) or not whole[np.isfinite(one.values)].all():
            return False
    return True


def _far_at_first(comparison: Comparison, leg: Leg) -> Iterator[str]:
    """A gap before any update that no rounding makes."""
    for metric in comparison.metrics():
        gap = comparison.gap_of(metric, leg)
        if gap is None or not gap.finite[0] or comparison.updates(gap.steps[:1])[0] > 0:
            continue
        bound = PROFILES[comparison.profile.name].bounds[metric]
        most = _MOST_AT_FIRST * bound.first_rtol * gap.scale[0]
        if gap.absolute[0] > max(most, gap.spacing[0], gap.resolution[0]):
            yield (
                f"its first {metric} differs from that of {comparison.baseline.name} by"
                f" {number(float(gap.relative[0]))}, which no rounding explains: other weights or data"
            )
