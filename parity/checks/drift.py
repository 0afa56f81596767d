"""Does the gap jitter, as rounding does, or compound and lean one way, as a bug does?"""

from dataclasses import replace

import numpy as np

from parity.checks.allowance import DOUBT, MOST_WIDENING
from parity.checks.comparison import Comparison, Gap
from parity.checks.noise import horizon, measured_by_perturbing, sane_legs
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.words import number

__all__ = ["check", "growth", "lean"]

# Fewer later steps than this say nothing of a trend.
_LEAST_STEPS = 4
# 6.0001 - 6 is not 0.0001 to the last bit.
_LAST_DIGIT = 1e-6


def lean(gap: Gap) -> float:
    """Size of the signed mean over the mean size, 0 to 1: near 0 the gap jitters, at 1 it has one sign."""
    signed = gap.signed[1:][gap.finite[1:]]
    size = float(np.abs(signed).mean()) if signed.size else 0.0
    return abs(float(signed.mean())) / size if size else 0.0


def growth(gap: Gap) -> float:
    """Mean gap of the last third over that of the first third of the later steps; infinite from exact zero."""
    later = gap.relative[1:][gap.finite[1:]]
    third = max(1, later.size // 3)
    early, late = (float(part.mean()) if part.size else 0.0 for part in (later[:third], later[-third:]))
    if early == 0:
        return float("inf") if late else 1.0
    return late / early


def check(comparison: Comparison) -> Outcome:
    """Fail where the signed mean of a gap over the later steps is beyond what is allowed for it.

    Lean and growth alone do not fail: correct layouts were measured to lean fully and to grow 300 times in 20 steps
    at a gap of 1e-6, since training amplifies rounding too. They tell what a gap beyond the bound looks like.
    """
    numbers: list[MetricGap] = []
    words: list[str] = []
    failed = unclear = False
    for metric in comparison.metrics():
        gap = comparison.gap(metric)
        gap = None if gap is None else gap.until(horizon(comparison, metric))
        if gap is None or int(gap.finite[1:].sum()) < _LEAST_STEPS:
            continue
        measured, ceiling = _measure(comparison, gap)
        mean = abs(measured.mean or 0.0)
        failed |= mean > ceiling
        unclear |= (measured.allowed or 0.0) < mean <= ceiling
        numbers.append(measured)
        words.append(_describe(comparison, gap, measured))
    if not numbers:
        reason = f"fewer than {_LEAST_STEPS} steps after the first in common"
        return Outcome("drift", Kind.PARITY, Status.NOT_RUN, reason, required=False)
    status = Status.FAIL if failed else Status.NOT_RUN if unclear else Status.PASS
    if status is Status.NOT_RUN:
        words.append("not by enough to tell a fault from rounding, or from a bug that the control carries too")
    return Outcome("drift", Kind.PARITY, status, "; ".join(words), gaps=tuple(numbers))


def _measure(comparison: Comparison, gap: Gap) -> tuple[MetricGap, float]:
    """The numbers of the signed mean, and the mean beyond which it is surely too large."""
    later = gap.finite.copy()
    later[0] = False
    bound = comparison.bound(gap.metric)
    updates = comparison.updates(gap.steps[later])
    own = bound.mean_rtol if bound.mean_explicit else bound.mean_rtol * float(bound.factor(updates).mean())
    own += float((bound.atol / gap.scale[later]).mean())
    allowed = own
    ceiling = own if bound.mean_explicit else DOUBT * own
    noise = _mean_noise(comparison, gap)
    if noise is not None and not bound.mean_explicit:
        ceiling = max(own, comparison.k * noise)
        # A perturbed leg tells noise from a bug that a control carries too.
        most = np.inf if measured_by_perturbing(comparison, gap.metric) else MOST_WIDENING
        allowed = min(ceiling, most * own)
    # Rounding to the printed spacing averages out no better than one spacing over the root of the steps, and where no
    # step is off by more than the last printed digit it need not average out at all: on a plateau it always goes the
    # same way.
    printed = float((gap.resolution[later] / gap.scale[later]).mean())
    last_digit = bool((gap.absolute[later] <= (1 + _LAST_DIGIT) * gap.resolution[later]).all())
    ceiling += printed if last_digit else printed / np.sqrt(later.sum())
    mean = float(gap.signed[later].mean())
    worst = int(np.argmax(np.where(later, gap.relative, -1.0)))
    measured = MetricGap(
        metric=gap.metric,
        first=float(gap.relative[0]) if gap.finite[0] else None,
        mean=mean,
        worst=float(gap.relative[worst]),
        worst_step=int(gap.steps[worst]),
        allowed=allowed,
        times_allowed=abs(mean) / allowed if allowed else (float("inf") if mean else 0.0),
        times_floor=abs(mean) / noise if noise else None,
    )
    if abs(mean) > ceiling:
        measured = replace(measured, steps_over=int(later.sum()), first_over=int(gap.steps[later][0]))
    return measured, ceiling


def _describe(comparison: Comparison, gap: Gap, measured: MetricGap) -> str:
    mean, allowed = measured.mean or 0.0, measured.allowed or 0.0
    leaning, grown = lean(gap), growth(gap)
    manner = "leans one way" if leaning >= 0.5 else "jitters"
    if grown >= 3:
        manner += f" and grows {number(grown)} times" if np.isfinite(grown) else " and grows from nothing"
    text = f"{gap.metric} {manner}, signed mean {_signed(mean)}"
    text += f", beyond the {number(allowed)} allowed" if abs(mean) > allowed else f" ({number(allowed)} allowed)"
    for leg in comparison.controls:
        theirs = comparison.gap_of(gap.metric, leg)
        if theirs is not None and theirs.finite[1:].any():
            text += f"; control {leg.name} {_signed(float(theirs.signed[1:][theirs.finite[1:]].mean()))}"
    return text


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{number(value)}"


def _mean_noise(comparison: Comparison, gap: Gap) -> float | None:
    """The largest mean size of the gaps of the legs that measure noise, up to the last step of `gap`; not their
    signed mean, which may be small by luck."""
    sizes = []
    for leg in sane_legs(comparison):
        theirs = comparison.gap_of(gap.metric, leg)
        theirs = None if theirs is None else theirs.until(float(gap.steps[-1]))
        if theirs is not None and theirs.finite[1:].any():
            sizes.append(float(theirs.relative[1:][theirs.finite[1:]].mean()))
    return max(sizes, default=None)
