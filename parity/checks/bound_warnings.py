"""Bounds that say little: far wider than what was observed, or finer than can be told."""

import numpy as np
from numpy.typing import NDArray

from parity.checks.allowance import Allowance, allowance
from parity.checks.comparison import Comparison, Gap
from parity.checks.noise import measured_by_perturbing, noise_floor
from parity.checks.within import measure
from parity.checks.words import number, plural

__all__ = ["warnings"]

# A bound so many times wider than what was observed is worth a warning.
_WIDE = 10.0


@np.errstate(all="ignore")
def warnings(comparison: Comparison) -> tuple[str, ...]:
    """What is wrong with the bounds, by metric: far wider than what was observed, or finer than what can be told."""
    found: list[str] = []
    for metric in comparison.metrics():
        gap = comparison.gap(metric)
        if gap is None or not gap.finite.any():
            continue
        allowed = allowance(comparison, gap)
        told = (_wide(comparison, gap, allowed), _unprintable(gap, allowed), _unresolved(comparison, gap, allowed))
        found += filter(None, told)
    return tuple(found)


def _wide(comparison: Comparison, gap: Gap, allowed: Allowance) -> str:
    """Whether a bound that is written, or a profile's guess, is far wider than the gap at the worst step."""
    bound = comparison.bound(gap.metric)
    numbers = measure(gap, allowed.allowed, judged=allowed.judged)
    at = int(np.searchsorted(gap.steps, numbers.worst_step or 0))
    if not bound.explicit and _measured(comparison, gap, allowed, at):
        return ""
    if not (gap.finite & allowed.judged)[at] or allowed.allowed[at] != allowed.own[at]:
        return ""
    # The bound holds for all steps of its kind, and none can be held to less than rounding.
    updated = comparison.updates(gap.steps) > 0
    alike = gap.finite & allowed.judged & (updated == updated[at])
    rounding = float((np.maximum(gap.resolution, gap.spacing) / gap.scale)[alike].max())
    least = max(comparison.profile.least_floor, rounding)
    observed = max(float(gap.relative[alike].max()), least)
    given, seen = float(allowed.allowed[at] / gap.scale[at]), float(gap.relative[at])
    if not given > _WIDE * observed:
        return ""
    times = f"{number(given / seen)} times " if seen else "far beyond "
    key = ("rtol" if updated[at] else "first_rtol") + (" (and no atol)" if bound.atol else "")
    what = "what was observed" if observed > least else "the least that rounding does"
    return (
        f"the bound of {gap.metric}, {number(given)} relative at its worst step {int(gap.steps[at])}, is {times}the"
        f" {number(seen)} observed there: {key} of {number(_WIDE * observed)} would be {number(_WIDE)} times {what}"
    )


def _measured(comparison: Comparison, gap: Gap, allowed: Allowance, at: int) -> bool:
    """Whether it is the noise floor that a gap is held to, by the metric's own check or by `control`."""
    floor = noise_floor(comparison, gap)
    if floor is None:
        return False
    return measured_by_perturbing(comparison, gap.metric) or bool(comparison.k * floor[at] < allowed.allowed[at])


def _unprintable(gap: Gap, allowed: Allowance) -> str:
    """Whether a bound is finer than the log prints."""
    return _too_fine(gap, allowed, gap.resolution, f"the log prints {gap.metric} in steps of", "log full precision")


def _unresolved(comparison: Comparison, gap: Gap, allowed: Allowance) -> str:
    """Whether a bound is finer than the numbers that the run computed in. A bound of 0 asks for the same numbers."""
    profile = comparison.profile
    if gap.spacing.any():
        spacing, told = gap.spacing, f"the neighbours of a {gap.metric} in bfloat16 are apart by"
    else:
        # A mean over many tokens is known more finely than each of them; the profile says by how much.
        epsilon = profile.epsilon * min(profile.floor_epsilons, 1.0)
        spacing = np.ldexp(epsilon, np.frexp(gap.scale)[1] - 1)
        told = f"{profile.name} resolves {gap.metric} in steps of"
    bound = comparison.bound(gap.metric)
    if not (bound.rtol or bound.first_rtol or bound.atol):
        return ""
    coarse = profile.name == "bf16" or bool(gap.spacing.any())
    return _too_fine(gap, allowed, spacing, told, "train in fp32" if coarse else "train in float64")


def _too_fine(gap: Gap, allowed: Allowance, spacing: NDArray[np.float64], told: str, instead: str) -> str:
    times = np.where(gap.finite & allowed.judged & (allowed.allowed < spacing), spacing / allowed.allowed, 0.0)
    at = int(np.argmax(times))
    if not times[at]:
        return ""
    steps = plural(int((times > 0).sum()), "step")
    return (
        f"{told} {number(float(spacing[at]))} at {number(float(gap.baseline[at]))}, coarser than the"
        f" {number(float(allowed.allowed[at]))} allowed at step {int(gap.steps[at])} (too fine at {steps}):"
        f" {instead}, or give a bound of at least {number(float((spacing / gap.scale)[times > 0].max()))} relative"
    )
