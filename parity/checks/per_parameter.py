"""Comparing gradients or updates parameter by parameter, from sketches; shared by the checks that do so."""

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Leg
from parity.checks.groups import group_of
from parity.checks.outcome import Kind, MetricGap, Outcome, ParameterGap, Status
from parity.checks.profiles import ParameterBound
from parity.checks.words import number, plural

__all__ = ["judge_parameters"]

# A parameter whose gradient is less than this part of the whole model's is measured against that part: rounding
# does not shrink with a gradient that cancels to nothing, as that of a key bias does.
_LEAST_SCALE = 1e-4
# Parameters named in a report.
_NAMED = 10

Sketches = dict[str, NDArray[np.float64]]


def judge_parameters(comparison: Comparison, check: str, kind: str, bound: ParameterBound) -> Outcome:
    """Is each parameter's gradient or update within what is allowed, at every step that both legs sketched?

    The sketch is linear, so the sketch of a difference is the difference of the sketches, and the squared length of a
    sketch is an unbiased estimate of the squared length of what was sketched (count sketch; Charikar, Chen,
    Farach-Colton 2002). At 64 slots a relative distance is within 17 % in 95 of 100 cases.

    Args:
        comparison: the legs.
        check: the check's name.
        kind: `gradients` or `updates`.
        bound: what is allowed.
    """
    legs = (comparison.baseline, comparison.candidate)
    recorded = [leg for leg in legs if leg.records is not None and leg.records.has_model]
    required = bool(recorded)

    def not_run(reason: str) -> Outcome:
        return Outcome(check, Kind.PARITY, Status.NOT_RUN, reason, required)

    if len(recorded) < 2:
        names = recorded[0].name if recorded else "neither leg"
        return not_run(f"{'only ' if recorded else ''}{names} recorded {kind}")
    steps = _common_steps(legs, kind)
    if not steps:
        return not_run(f"the legs have no sketched step of {kind} in common")
    found: list[ParameterGap] = []
    whole: list[tuple[int, float]] = []
    problems: list[str] = []
    for step in steps:
        gaps, distance, problem = _at_step(comparison, kind, step, bound)
        found += gaps
        whole.append((step, distance))
        problems += problem
    if not found:
        return not_run(problems[0] if problems else f"no parameter has {kind} in both legs")
    over = [gap for gap in found if not gap.times_allowed <= 1]
    first = [gap for gap in found if gap.step == steps[0]]
    problems += _median(comparison, first, bound)
    worst = max(found, key=lambda gap: gap.times_allowed)
    reason = "; ".join([*dict.fromkeys(problems), _sentence(found, over, worst, whole)])
    return Outcome(
        check,
        Kind.PARITY,
        Status.FAIL if over or problems else Status.PASS,
        reason,
        required,
        (_numbers(kind, worst, whole, over),),
        parameters=_named(over or first),
        shares=_shares(first),
    )


def _common_steps(legs: tuple[Leg, ...], kind: str) -> list[int]:
    sets = [set(leg.records.sketched_steps(kind)) for leg in legs if leg.records is not None]
    return sorted(set.intersection(*sets))


def _at_step(
    comparison: Comparison, kind: str, step: int, bound: ParameterBound
) -> tuple[list[ParameterGap], float, list[str]]:
    """Every parameter's gap, the whole model's relative distance, and parameters that only one leg has."""
    baseline, candidate = comparison.baseline.records, comparison.candidate.records
    assert baseline is not None
    assert candidate is not None
    left, right = baseline.sketches(kind, step), candidate.sketches(kind, step)
    norms, other_norms = baseline.norms(kind, step), candidate.norms(kind, step)
    problems = []
    for leg, only in ((comparison.baseline, left.keys() - right), (comparison.candidate, right.keys() - left)):
        if only:
            problems.append(f"only {leg.name} has {kind} of {', '.join(sorted(only)[:3])} at step {step}")
    total = float(np.sqrt(sum(norm**2 for norm in norms.values())))
    floors = _floors(comparison, kind, step, left, norms, total)
    is_first = step in (comparison.first_step, 0)
    squares = {name: float(np.sum((right[name] - left[name]) ** 2)) for name in left.keys() & right}
    error = sum(squares.values())
    gaps = []
    for name in (name for name in left if name in squares):
        scale = max(norms[name], _LEAST_SCALE * total, np.finfo(np.float64).tiny)
        distance = float(np.sqrt(squares[name])) / scale
        floor = None if floors is None else floors.get(name)
        allowed = bound.first if is_first else bound.later
        if floor is not None:
            widened = max(allowed, comparison.k * floor)
            allowed = min(widened, max(bound.widest, allowed)) if is_first else widened
        gaps.append(
            ParameterGap(
                name=name,
                group=group_of(name, left.keys()),
                step=step,
                distance=distance,
                ratio=other_norms[name] / norms[name] if norms[name] else (1.0 if not other_norms[name] else np.inf),
                cosine=_cosine(left[name], right[name]),
                share=squares[name] / error if error else 0.0,
                allowed=allowed,
                times_floor=distance / floor if floor else None,
            )
        )
    return gaps, float(np.sqrt(error)) / total if total else 0.0, problems


def _median(comparison: Comparison, gaps: list[ParameterGap], bound: ParameterBound) -> list[str]:
    """What is wrong with the median parameter, if anything: a fault that touches all of them a little."""
    if bound.median is None or not gaps:
        return []
    median = float(np.median([gap.distance for gap in gaps]))
    floors = [gap.distance / gap.times_floor for gap in gaps if gap.times_floor]
    allowed = max(bound.median, comparison.k * float(np.median(floors))) if floors else bound.median
    if median <= allowed:
        return []
    return [f"the median parameter is {number(median)} apart at step {gaps[0].step} ({number(allowed)} allowed)"]


def _floors(
    comparison: Comparison, kind: str, step: int, left: Sketches, norms: dict[str, float], total: float
) -> dict[str, float] | None:
    """The control's relative distance per parameter, at least a multiple of the dtype's epsilon."""
    control = comparison.control.records if comparison.control else None
    if control is None or step not in control.sketched_steps(kind):
        return None
    theirs = control.sketches(kind, step)
    least = comparison.profile.epsilon * comparison.profile.floor_epsilons
    return {
        name: max(
            float(np.sqrt(np.sum((theirs[name] - left[name]) ** 2)))
            / max(norms[name], _LEAST_SCALE * total, np.finfo(np.float64).tiny),
            least,
        )
        for name in left.keys() & theirs
    }


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.clip(np.dot(a, b) / size, -1.0, 1.0)) if size else 1.0


def _named(gaps: list[ParameterGap]) -> tuple[ParameterGap, ...]:
    """The parameters furthest out, and those with the largest share of the error, furthest out first."""
    furthest = sorted(gaps, key=lambda gap: -gap.times_allowed)
    largest = sorted(gaps, key=lambda gap: -gap.share)
    chosen = {(gap.name, gap.step) for gap in (*furthest[: _NAMED // 2], *largest[: _NAMED // 2])}
    return tuple(gap for gap in furthest if (gap.name, gap.step) in chosen)


def _shares(gaps: list[ParameterGap]) -> tuple[tuple[str, float], ...]:
    by_group: dict[str, float] = {}
    for gap in gaps:
        by_group[gap.group] = by_group.get(gap.group, 0.0) + gap.share
    return tuple(sorted(by_group.items(), key=lambda item: -item[1]))


def _sentence(
    found: list[ParameterGap], over: list[ParameterGap], worst: ParameterGap, whole: list[tuple[int, float]]
) -> str:
    model = ", ".join(f"{number(distance)} at step {step}" for step, distance in whole)
    text = (
        f"worst {worst.name} at step {worst.step}: relative L2 {number(worst.distance)}"
        f" ({number(worst.allowed)} allowed), ratio {worst.ratio:.4g}, cosine {worst.cosine:.6f}"
    )
    if over:
        step = over[0].step
        count = sum(gap.step == step for gap in over)
        names = {gap.name for gap in found}
        text = f"{count} of {plural(len(names), 'parameter')} beyond what is allowed at step {step}; {text}"
    return f"{text}; whole model {model}"


def _numbers(kind: str, worst: ParameterGap, whole: list[tuple[int, float]], over: list[ParameterGap]) -> MetricGap:
    return MetricGap(
        metric=kind,
        first=whole[0][1],
        mean=float(np.mean([distance for _, distance in whole])),
        worst=worst.distance,
        worst_step=worst.step,
        allowed=worst.allowed,
        times_allowed=worst.times_allowed,
        times_floor=worst.times_floor,
        steps_over=len({gap.step for gap in over}),
        first_over=over[0].step if over else None,
    )
