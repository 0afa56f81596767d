"""Is the candidate's gap within k times the noise floor, and is the control itself no further out than noise?"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from parity.checks.allowance import MOST_WIDENING, allowance, control_beyond
from parity.checks.comparison import Comparison, Gap
from parity.checks.impostors import impostors
from parity.checks.noise import CONTROL_LIMIT, Convicted, convicted, horizon, measured_by_perturbing, noise_floor
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.within import attribution, measure
from parity.checks.words import number

__all__ = ["allowed_by_noise", "check"]


def check(comparison: Comparison) -> Outcome:
    """Compare the candidate's gap at every step, up to the evidence horizon, with k times the running maximum of what
    control, repeat and perturbed legs show.

    A spike of the trajectory lifts candidate and control alike, so it does not fail; a fault of the split lifts the
    candidate alone. A control that carries the same fault would hide it, so a control that is far beyond the
    perturbed legs fails itself and measures nothing; without perturbed legs, one that is far beyond the profile's own
    bound says nothing.
    """
    if next(comparison.floor_legs(), None) is None:
        return Outcome("control", Kind.PARITY, Status.NOT_RUN, "no control, repeat or perturbed leg", required=False)
    out = convicted(comparison)
    numbers: list[MetricGap] = []
    words = [_sentence_of(comparison, one) for one in out]
    unknown = list(impostors(comparison).values())
    failed = bool(out)
    for metric in comparison.metrics():
        if comparison.bound(metric).explicit:
            words.append(f"{metric} has a bound of its own")
            continue
        gap = comparison.gap(metric)
        floor = None if gap is None else noise_floor(comparison, gap)
        allowed = None if gap is None else allowed_by_noise(comparison, gap)
        if gap is None or floor is None or allowed is None:
            unknown.append(f"no leg that measures noise has a finite {metric} in common with the baseline")
            continue
        judged = gap.steps <= horizon(comparison, metric)
        measured = measure(gap, np.maximum(allowed, gap.resolution), floor, judged)
        if measured.worst_step is None:
            unknown.append(f"no step of {metric} is before the evidence horizon")
            continue
        failed |= bool(measured.steps_over)
        numbers.append(measured)
        words.append(_sentence(comparison, gap, measured))
        unknown += _unexplained(comparison, gap)
    words += _determinism(comparison)
    if unknown and not failed:
        return Outcome("control", Kind.PARITY, Status.NOT_RUN, "; ".join(unknown), gaps=tuple(numbers))
    status = Status.FAIL if failed else Status.PASS
    return Outcome("control", Kind.PARITY, status, "; ".join(words), gaps=tuple(numbers))


def allowed_by_noise(comparison: Comparison, gap: Gap) -> NDArray[np.float64] | None:
    """`k` times the noise floor at each step, absolute, float64 (n,); None where no leg measured it.

    Without a perturbed leg no less than the profile's own bound: a repeat, or a control that sums in the baseline's
    order, shows less than the noise of other layouts. Correct layouts were 41 times beyond a deterministic repeat.
    """
    floor = noise_floor(comparison, gap)
    if floor is None:
        return None
    noise = np.maximum(comparison.k * floor, gap.spacing)
    if comparison.profile.only_widens or not measured_by_perturbing(comparison, gap.metric):
        return np.maximum(noise, allowance(comparison, gap).own)
    return noise


def _sentence_of(comparison: Comparison, one: Convicted) -> str:
    role = "the control " if one.leg in comparison.controls else ""
    return (
        f"{role}{one.leg.name} carries a bug too: its {one.what} is {number(one.times)} times the noise of the"
        f" perturbed leg at step {one.step} ({number(CONTROL_LIMIT)} allowed), so it measures no noise here"
    )


def _unexplained(comparison: Comparison, gap: Gap) -> Iterator[str]:
    """A control far beyond the profile's bound, where no perturbed leg tells a noisy model from a bug."""
    if comparison.bound(gap.metric).explicit or measured_by_perturbing(comparison, gap.metric):
        return
    times, step, name = control_beyond(comparison, gap)
    if times > MOST_WIDENING:
        yield (
            f"the control {name} is itself up to {number(times)} times beyond the {gap.metric} bound of"
            f" {comparison.profile.name}, first at step {step}: it carries a bug, or the model is noisy; a perturbed"
            " leg tells which"
        )


def _determinism(comparison: Comparison) -> Iterator[str]:
    """Whether the baseline run again is the same to the last digit."""
    for leg in comparison.repeats:
        gaps = [gap for metric in comparison.metrics() if (gap := comparison.gap_of(metric, leg)) is not None]
        if gaps:
            yield f"{leg.name} {_likeness(gaps)}"


def _likeness(gaps: list[Gap]) -> str:
    parted = [int(gap.steps[at[0]]) for gap in gaps if (at := np.flatnonzero(gap.finite & (gap.absolute > 0))).size]
    if not parted:
        return "is equal to the last digit: the trainer is deterministic"
    return f"parts from the baseline at step {min(parted)}: the trainer is not deterministic"


def _sentence(comparison: Comparison, gap: Gap, measured: MetricGap) -> str:
    text = (
        f"{gap.metric} is at most {number(measured.times_floor or 0)} times the floor, at step {measured.worst_step}"
    )
    if measured.steps_over:
        text += f", and beyond {number(comparison.k)} times at {measured.steps_over} steps from {measured.first_over}"
    story = attribution(comparison, gap, measured)
    return f"{text} ({story})" if story else text
