"""Judging gradients or updates parameter by parameter; shared by the checks that do so."""

import numpy as np

from parity.checks.comparison import Comparison
from parity.checks.noise import parameter_floors, perturbed_legs
from parity.checks.outcome import Kind, MetricGap, Outcome, ParameterGap, Status
from parity.checks.parameters import StepApart, apart, common_steps, recorded
from parity.checks.profiles import ParameterBound
from parity.checks.words import number, plural, ratio

__all__ = ["gaps_by_parameter", "judge_parameters"]

# Parameters named in a report.
_NAMED = 10


def judge_parameters(comparison: Comparison, check: str, kind: str, bound: ParameterBound) -> Outcome:
    """Is each parameter's gradient or update within what is allowed, at every step that both legs sketched?

    Args:
        comparison: the legs.
        check: the check's name.
        kind: `gradients` or `updates`.
        bound: what is allowed.
    """
    legs = [leg for leg in (comparison.baseline, comparison.candidate) if recorded(leg)]
    required = bool(legs)

    def not_run(reason: str) -> Outcome:
        return Outcome(check, Kind.PARITY, Status.NOT_RUN, reason, required)

    if len(legs) < 2:
        names = legs[0].name if legs else "neither leg"
        return not_run(f"{'only ' if legs else ''}{names} recorded {kind}")
    steps = common_steps(comparison, comparison.candidate, kind)
    if not steps:
        return not_run(f"the legs have no sketched step of {kind} in common")
    found: list[ParameterGap] = []
    whole: list[tuple[int, float]] = []
    problems: list[str] = []
    for step in steps:
        measured = apart(comparison, comparison.candidate, kind, step)
        found += gaps_by_parameter(comparison, measured, kind, step, bound)
        whole.append((step, measured.distance))
        for leg, only in ((comparison.baseline, measured.missing), (comparison.candidate, measured.extra)):
            problems += [f"only {leg.name} has {kind} of {', '.join(only[:3])} at step {step}"] if only else []
        still = [name for name, one in measured.parameters.items() if not one.ratio and one.norm >= one.scale]
        # No noise, however large, makes nothing at all of what the baseline computed.
        problems += [f"the {kind} of {', '.join(still[:3])} are exactly 0 at step {step}"] if still else []
    if not found:
        return not_run(problems[0] if problems else f"no parameter has {kind} in both legs")
    over = [gap for gap in found if not gap.times_allowed <= 1]
    first = [gap for gap in found if gap.step == steps[0]]
    median = _median(comparison, kind, first, bound)
    if median is not None:
        told = (
            f"{number(median.worst or 0)} apart at step {median.worst_step} ({number(median.allowed or 0)} allowed)"
        )
        problems.append(f"the median parameter is {told}")
    worst = max(found, key=lambda gap: gap.times_allowed)
    reason = "; ".join([*dict.fromkeys(problems), _sentence(found, over, worst, whole)])
    return Outcome(
        check,
        Kind.PARITY,
        Status.FAIL if over or problems else Status.PASS,
        reason,
        required,
        (_numbers(kind, worst, whole, over), *([] if median is None else [median])),
        parameters=_named(over or first),
        shares=_shares(first),
    )


def gaps_by_parameter(
    comparison: Comparison, measured: StepApart, kind: str, step: int, bound: ParameterBound
) -> list[ParameterGap]:
    """Every parameter's distance at a step, with what is allowed for it."""
    floors = parameter_floors(comparison, kind, step) or {}
    perturbed = any(step in common_steps(comparison, leg, kind) for leg in perturbed_legs(comparison))
    is_first = step in (comparison.first_step, 0)
    error = sum(one.square for one in measured.parameters.values())
    return [
        ParameterGap(
            name=one.name,
            group=one.group,
            step=step,
            distance=one.distance,
            ratio=one.ratio,
            cosine=one.cosine,
            share=one.square / error if error else 0.0,
            allowed=_allowed(comparison, kind, floors.get(one.name), bound, is_first, perturbed),
            times_floor=one.distance / floors[one.name] if floors.get(one.name) else None,
        )
        for one in measured.parameters.values()
    ]


def _allowed(
    comparison: Comparison, kind: str, floor: float | None, bound: ParameterBound, is_first: bool, perturbed: bool
) -> float:
    """At the first step `k` times the floor, where a perturbed leg tells noise from a bug. Otherwise the profile's
    guess, which measured noise widens: a control so far at the first step and no further.

    Later gradients, and what Adam makes of gradients that are nothing but rounding, differ by chance by more than any
    factor that one leg could tell: in 522 pairs by up to 21 and 36 times
    the floor, first gradients by 6 (`python -m tests.checks.bench_noise 2`).
    """
    guess = bound.first if is_first else bound.later
    if floor is None:
        return guess
    noise = comparison.k * floor
    if not perturbed:
        return min(max(guess, noise), max(bound.widest, guess)) if is_first else max(guess, noise)
    tight = is_first and kind == "gradients" and not comparison.profile.only_widens
    return noise if tight else max(guess, noise)


def _median(comparison: Comparison, kind: str, gaps: list[ParameterGap], bound: ParameterBound) -> MetricGap | None:
    """The median parameter, where it is beyond what is allowed: a fault that touches all of them a little."""
    if bound.median is None or not gaps:
        return None
    median = float(np.median([gap.distance for gap in gaps]))
    floors = [gap.distance / gap.times_floor for gap in gaps if gap.times_floor]
    floor = float(np.median(floors)) if floors else None
    allowed = bound.median if floor is None else max(bound.median, comparison.k * floor)
    if median <= allowed:
        return None
    return MetricGap(
        metric=f"median of {kind}",
        worst=median,
        worst_step=gaps[0].step,
        allowed=allowed,
        times_allowed=median / allowed,
        times_floor=None if not floor else median / floor,
        steps_over=1,
        first_over=gaps[0].step,
    )


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
        f" ({number(worst.allowed)} allowed), ratio {ratio(worst.ratio)}, cosine {ratio(worst.cosine)}"
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
