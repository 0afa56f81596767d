"""What noise is here: how far two correct runs differ, as control, repeat and perturbed legs show."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Gap, Leg
from parity.checks.impostors import impostors
from parity.checks.parameters import apart, common_steps, furthest
from parity.checks.profiles import ParameterBound

__all__ = [
    "CONTROL_LIMIT",
    "Convicted",
    "convicted",
    "horizon",
    "measured_by_perturbing",
    "noise_floor",
    "parameter_floors",
    "perturbed_legs",
    "sane_legs",
]

# A value less than a tenth of the run's median is measured against that: a loss that crosses zero would otherwise
# make any difference there infinite, and a running maximum keep it.
_LEAST_OF_MEDIAN = 0.1

# The floor looks ahead by a quarter of the steps done, and three.
_STEPS_AHEAD = 3
_PART_AHEAD = 4

CONTROL_LIMIT = 16.0
"""A control so many times further out than the perturbed legs is no noise. Measured on one set of faults that were
put into candidate and control alike: 60 of 60 are seen in fp32, and no correct control is taken for one. Nor does a
control that is nearer widen what is allowed any further than this, or `k` times, if that is more."""


@dataclass(frozen=True)
class Convicted:
    """A control or repeat that is further out than noise.

    Attributes:
        leg: it.
        what: the metric, or the parameter, in which it is furthest out.
        step: where it is furthest out.
        times: how many times the perturbed legs' floor it is out.
    """

    leg: Leg
    what: str
    step: int
    times: float


def noise_floor(comparison: Comparison, gap: Gap) -> NDArray[np.float64] | None:
    """Absolute noise floor at each step of `gap`, float64 (n,), or None where no leg measured it."""
    floor = _floor_of(comparison, gap, sane_legs(comparison))
    least = _floor_of(comparison, gap, perturbed_legs(comparison))
    return floor if floor is None or least is None else np.minimum(floor, _most(comparison) * least)


def parameter_floors(comparison: Comparison, kind: str, step: int) -> dict[str, float] | None:
    """Noise floor of the relative distance by parameter, or None where no leg measured it.

    Args:
        comparison: the legs.
        kind: `gradients` or `updates`.
        step: a step that baseline and candidate sketched.
    """
    least_floor = comparison.profile.least_floor
    floors = furthest(comparison, sane_legs(comparison), kind, step, least_floor)
    least = furthest(comparison, perturbed_legs(comparison), kind, step, least_floor)
    if floors is None or least is None:
        return floors
    return {name: min(floor, _most(comparison) * least.get(name, np.inf)) for name, floor in floors.items()}


def _most(comparison: Comparison) -> float:
    """How many times the perturbed legs' floor another leg's may be, so that `k` times it is within the limit."""
    return max(1.0, CONTROL_LIMIT / comparison.k)


def sane_legs(comparison: Comparison) -> tuple[Leg, ...]:
    """The legs that measure noise, without those that carry a bug themselves or are not what they are said to be."""
    out = {one.leg for one in convicted(comparison)} | set(impostors(comparison))
    return tuple(leg for leg in comparison.floor_legs() if leg not in out)


def perturbed_legs(comparison: Comparison) -> tuple[Leg, ...]:
    """The perturbed legs that are what they are said to be."""
    return tuple(leg for leg in comparison.perturbed if leg not in impostors(comparison))


def measured_by_perturbing(comparison: Comparison, metric: str) -> bool:
    """Whether a perturbed leg shows what noise is in a metric."""
    gaps = (comparison.gap_of(metric, leg) for leg in perturbed_legs(comparison))
    return any(gap is not None and gap.finite.any() for gap in gaps)


def convicted(comparison: Comparison) -> tuple[Convicted, ...]:
    """Controls and repeats that are more than `CONTROL_LIMIT` times further out than the perturbed legs, at any step
    up to the horizon, or in any parameter at the first sketched step; each where it is furthest out.

    A control may carry the candidate's bug and would then hide it; a leg of which each weight is one ulp off cannot.
    Empty where no perturbed leg says what noise is.
    """

    def find() -> tuple[Convicted, ...]:
        found = []
        accused = [leg for leg in (*comparison.controls, *comparison.repeats) if leg not in impostors(comparison)]
        for leg in accused if perturbed_legs(comparison) else ():
            one = max(_suspicions(comparison, leg), key=lambda one: one.times, default=None)
            found += [] if one is None else [one]
        return tuple(found)

    return comparison.once(("convicted",), find)


def horizon(comparison: Comparison, metric: str) -> float:
    """The evidence horizon: the last step at which `k` times the perturbed legs' floor is within what the check must
    resolve (`Bound.resolve`), or that a person's bound holds for. Infinite where the run does not reach it, no
    perturbed leg has the metric, or a person's bound says what is allowed whatever the noise.

    Beyond it a correct run may be further from its baseline than a fault would take it, so that a gap means nothing.
    """
    until = comparison.bound(metric).until
    ends = [] if until is None else [float(until)]
    if comparison.bound(metric).explicit:
        return min(ends, default=float("inf"))
    for leg in perturbed_legs(comparison):
        gap = comparison.gap_of(metric, leg)
        if gap is None or not gap.finite.any():
            continue
        beyond = np.flatnonzero(comparison.k * _running(gap, gap.steps) > comparison.bound(metric).resolve)
        if beyond.size:
            at = int(beyond[0])
            ends.append(float(gap.steps[at - 1]) if at else float(gap.steps[0]) - 1)
    return min(ends, default=float("inf"))


def _running(gap: Gap, steps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Running maximum of a leg's relative gap, three steps and a quarter of the way ahead: float64, shape of `steps`.

    A maximum, because a leg that happens to agree at one step does not claim that the run has no noise there. Ahead,
    because rounding is amplified from a chance event on, which two correct runs meet at different steps. With it, 522
    pairs of correct and of perturbed runs were at most 7.9 times beyond one perturbed leg's floor
    (`python -m tests.checks.bench_noise 2`); without it a gemma4 was 13.7
    times. At least up to the next step that the leg logged. Steps that are not finite add nothing.
    """
    relative = np.where(gap.finite, gap.absolute / _scale(gap.baseline), 0.0)
    begin = gap.steps[0]
    ahead = np.where(steps <= begin, steps, steps + _STEPS_AHEAD + (steps - begin) // _PART_AHEAD)
    at = np.searchsorted(gap.steps, ahead, side="right") - 1
    at = np.maximum(at, np.searchsorted(gap.steps, steps, side="left"))
    largest: NDArray[np.float64] = np.maximum.accumulate(relative)[np.minimum(at, relative.size - 1)]
    return largest


def _floor_of(comparison: Comparison, gap: Gap, legs: Iterable[Leg]) -> NDArray[np.float64] | None:
    """The largest `_running` of any of the legs at each step of `gap`, at least a multiple of the dtype's epsilon at
    the value: absolute, float64 (n,). None where none of them has the metric."""
    measured = None
    for leg in legs:
        theirs = comparison.gap_of(gap.metric, leg)
        if theirs is None or not theirs.finite.any():
            continue
        of_leg = _running(theirs, gap.steps)
        measured = of_leg if measured is None else np.maximum(measured, of_leg)
    if measured is None:
        return None
    return np.maximum(measured, comparison.profile.least_floor) * _scale(gap.baseline)


def _suspicions(comparison: Comparison, control: Leg) -> Iterator[Convicted]:
    for metric in comparison.metrics():
        gap = comparison.gap_of(metric, control)
        floor = None if gap is None else _floor_of(comparison, gap, perturbed_legs(comparison))
        if gap is None or floor is None:
            continue
        judged = gap.finite & (gap.steps <= horizon(comparison, metric))
        if comparison.profile.only_widens:
            judged &= gap.absolute > comparison.bound(metric).allowed(comparison.updates(gap.steps), gap.scale)
        times = np.where(judged, (gap.absolute - gap.resolution) / floor, 0.0)
        at = int(np.argmax(times))
        if times[at] > CONTROL_LIMIT:
            yield Convicted(control, metric, int(gap.steps[at]), float(times[at]))
    bounds = {"gradients": comparison.profile.gradient, "updates": comparison.profile.update}
    for kind, bound in bounds.items():
        yield from _suspicious_parameters(comparison, control, kind, bound)


def _suspicious_parameters(
    comparison: Comparison, control: Leg, kind: str, bound: ParameterBound
) -> Iterator[Convicted]:
    for step in common_steps(comparison, control, kind)[:1]:
        least = comparison.profile.least_floor
        floors = furthest(comparison, perturbed_legs(comparison), kind, step, least) or {}
        for name, one in apart(comparison, control, kind, step).parameters.items():
            floor = floors.get(name)
            if floor and one.distance > max(bound.first, CONTROL_LIMIT * floor):
                yield Convicted(control, f"{kind} of {name}", step, one.distance / floor)


def _scale(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What noise is relative to: the size of each value, at least a tenth of the median's; float64, same shape."""
    finite = np.isfinite(values)
    median = float(np.median(np.abs(values[finite]))) if finite.any() else 0.0
    least = max(_LEAST_OF_MEDIAN * median, float(np.finfo(np.float64).tiny))
    scale: NDArray[np.float64] = np.maximum(np.abs(np.where(finite, values, 0.0)), least)
    return scale
