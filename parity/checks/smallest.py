"""The smallest change of gradients or loss that each check would see, in closed form."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parity.checks import drift, forward
from parity.checks.allowance import allowance
from parity.checks.comparison import Comparison, Gap, Leg
from parity.checks.control import allowed_by_noise
from parity.checks.groups import group_of
from parity.checks.noise import horizon
from parity.checks.outcome import ParameterGap
from parity.checks.parameters import apart, common_steps, recorded
from parity.checks.per_parameter import gaps_by_parameter

__all__ = ["Limit", "Seen", "by_factor", "by_mean", "by_offset", "by_parameter", "limits", "not_sketched", "shares"]


@dataclass(frozen=True, eq=False)
class Limit:
    """What one check allows of a gap: absolute, float64 (n,), and where it judges: bool (n,)."""

    check: str
    gap: Gap
    allowed: NDArray[np.float64]
    judged: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Seen:
    """The smallest changes that one check sees: float64 (n,), upwards and downwards, infinite where none is seen.

    `groups` says whose gradients each is about, where each is about a single parameter.
    """

    check: str
    steps: NDArray[np.int64] | None
    up: NDArray[np.float64]
    down: NDArray[np.float64]
    groups: NDArray[np.str_] = field(default_factory=lambda: np.array([], dtype=np.str_))

    def of_group(self, group: str) -> "Seen":
        """Those about parameters of one group."""
        here = self.groups == group
        steps = None if self.steps is None else self.steps[here]
        return Seen(self.check, steps, self.up[here], self.down[here], self.groups[here])


def limits(comparison: Comparison, metric: str) -> list[Limit]:
    """What the checks that judge a metric step by step allow, where any step is judged."""
    gap = comparison.gap(metric)
    if gap is None:
        return []
    found = []
    if metric == "loss" and forward.check(comparison).gaps:
        only = gap.first()
        found.append(_limit("forward", only, allowance(comparison, only).allowed, only.finite))
    own = allowance(comparison, gap)
    found.append(_limit(metric, gap, own.allowed, gap.finite & own.judged))
    noise = None if comparison.bound(metric).explicit else allowed_by_noise(comparison, gap)
    if noise is not None:
        judged = gap.finite & (gap.steps <= horizon(comparison, metric))
        found.append(_limit("control", gap, noise, judged))
    return [one for one in found if one.judged.any()]


def _limit(check: str, gap: Gap, allowed: NDArray[np.float64], judged: NDArray[np.bool_]) -> Limit:
    # A value that moves by as much is printed, or rounded to bfloat16, at most one spacing from where it belongs.
    return Limit(check, gap, allowed + np.maximum(gap.resolution, gap.spacing), judged)


def by_offset(limit: Limit) -> Seen:
    """The smallest offset."""
    up, down = _linear(limit.gap.other - limit.gap.baseline, np.ones(limit.gap.steps.shape), limit.allowed)
    return _seen(limit, up, down)


def by_factor(limit: Limit, share: NDArray[np.float64] | float = 1.0) -> Seen:
    """The smallest factor of gradients that have this part of the squared norm.

    They make c √(1 + ((1 ± e)² - 1) share) of a norm c.
    """
    norm = limit.gap.other
    up, down = _linear(norm - limit.gap.baseline, norm, limit.allowed)
    grown = np.expm1(0.5 * np.log1p(up * (2 + up) / share))
    # Nothing is taken away beyond all of it, which leaves c √(1 - share).
    left = np.where(down <= 1, -down * (2 - down) / share, -np.inf)
    shrunk = np.where(left >= -1, -np.expm1(0.5 * np.log1p(left)), np.inf)
    return _seen(
        limit, *(np.where(one == 0, 0.0, np.where(norm > 0, e, np.inf)) for one, e in ((up, grown), (down, shrunk)))
    )


def _seen(limit: Limit, up: NDArray[np.float64], down: NDArray[np.float64]) -> Seen:
    known = limit.judged & ~np.isnan(up) & ~np.isnan(down)
    return Seen(limit.check, limit.gap.steps[known], up[known], down[known])


def _linear(
    gap: NDArray[np.float64], effect: NDArray[np.float64], allowed: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The smallest e ≥ 0 with |gap + e · effect| > allowed, and with |gap - e · effect| > allowed."""
    size, towards = np.abs(effect), gap * np.sign(effect)
    over = np.abs(gap) > allowed
    up = np.where(size > 0, (allowed - towards) / size, np.inf)
    down = np.where(size > 0, (allowed + towards) / size, np.inf)
    return np.where(over, 0.0, up), np.where(over, 0.0, down)


def by_mean(comparison: Comparison, metric: str) -> list[Seen]:
    """What the signed mean of the later steps shows of a constant offset of the loss, or factor of the norm."""
    outcome = comparison.once(("drift",), lambda: drift.check(comparison))
    numbers = next((one for one in outcome.gaps if one.metric == metric), None)
    gap = comparison.gap(metric)
    gap = None if gap is None else gap.until(horizon(comparison, metric))
    if numbers is None or numbers.mean is None or numbers.allowed is None or gap is None:
        return []
    later = gap.finite & (gap.steps != gap.steps[0])
    moved = (np.ones(gap.steps.shape) if metric == "loss" else gap.other) / gap.scale
    rounding = np.maximum(gap.resolution, gap.spacing) / gap.scale
    allowed = np.array([numbers.allowed + rounding[later].mean()])
    up, down = _linear(np.array([numbers.mean]), np.array([moved[later].mean()]), allowed)
    if metric != "loss":
        down = np.where(down > 1, np.inf, down)
    return [Seen("drift", None, up, down)]


def by_parameter(comparison: Comparison) -> Seen:
    """What the sketches show of a factor of each parameter's gradient: where |r (1 ± e) - l| is more than allowed."""
    steps = [] if not_sketched(comparison) else common_steps(comparison, comparison.candidate, "gradients")
    found: list[ParameterGap] = []
    ups, downs = [np.zeros(0)], [np.zeros(0)]
    for step in steps:
        measured = apart(comparison, comparison.candidate, "gradients", step)
        gaps = gaps_by_parameter(comparison, measured, "gradients", step, comparison.profile.gradient)
        if not gaps:
            continue
        names = [gap.name for gap in gaps]
        left, right = (_sketches(leg, names, step) for leg in (comparison.baseline, comparison.candidate))
        difference = right - left
        size = np.einsum("ij,ij->i", right, right)
        towards = np.einsum("ij,ij->i", difference, right) / size
        distance = np.array([gap.distance for gap in gaps])
        allowed = np.array([gap.allowed for gap in gaps])
        scale = np.array([measured.parameters[name].scale for name in names])
        room = (allowed**2 - distance**2) * scale**2 / size
        for sign, into in ((1.0, ups), (-1.0, downs)):
            # The larger root of e² + 2 along e - room, in the form that loses no digits.
            along = sign * towards
            root = np.sqrt(along**2 + room)
            e = np.where(along > 0, room / (along + root), root - along)
            into.append(np.where(~(distance <= allowed), 0.0, np.where(size > 0, e, np.inf)))
        found += gaps
    up, down = np.concatenate(ups), np.concatenate(downs)
    known = ~np.isnan(up) & ~np.isnan(down)
    at = np.array([gap.step for gap in found], dtype=np.int64)
    groups = np.array([gap.group for gap in found], dtype=np.str_)
    return Seen("gradients", at[known], up[known], down[known], groups[known])


def _sketches(leg: Leg, names: list[str], step: int) -> NDArray[np.float64]:
    """Sketches of the leg's gradients: float64 (names, slots)."""
    assert leg.records is not None
    sketches = leg.records.sketches("gradients", step)
    return np.array([sketches[name] for name in names])


def shares(comparison: Comparison, gap: Gap | None) -> dict[str, NDArray[np.float64]]:
    """By group, its part of the squared gradient norm at each step of `gap`: float64 (n,), NaN where unknown."""
    leg = next((one for one in (comparison.candidate, comparison.baseline) if recorded(one)), None)
    if leg is None or leg.records is None:
        return {}
    groups = {name: group_of(name, leg.records.distinct) for name in leg.records.distinct}
    steps = [] if gap is None else gap.steps.tolist()
    found = {group: np.full(len(steps), np.nan) for group in groups.values()}
    for at, step in enumerate(steps):
        if not all(step in rank.gradients for rank in leg.records.ranks):
            continue
        squares = dict.fromkeys(found, 0.0)
        for name, norm in leg.records.norms("gradients", step).items():
            squares[groups[name]] += norm**2
        whole = sum(squares.values())
        for group, square in squares.items():
            found[group][at] = square / whole if whole else np.nan
    return found


def not_sketched(comparison: Comparison) -> str:
    """Why no gradients were judged; empty if they were."""
    legs = [leg.name for leg in (comparison.baseline, comparison.candidate) if recorded(leg)]
    if len(legs) < 2:
        return f"only {legs[0]} recorded gradients" if legs else "no gradients were recorded"
    if not common_steps(comparison, comparison.candidate, "gradients"):
        return "the legs sketched gradients at no step in common"
    return ""
