"""Is the candidate's gap within k times the noise floor that the control measured?"""

import numpy as np

from parity.checks.comparison import Comparison, Gap
from parity.checks.floor import noise_floor
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.within import MOST_WIDENING, attribution, control_beyond, measure
from parity.checks.words import number

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Compare the candidate's gap at every step with k times the running maximum of the control's gap.

    A spike of the trajectory lifts candidate and control alike, so it does not fail; a fault of the split lifts the
    candidate alone. A control that carries the same fault hides it from this check, so a control that is far beyond
    the profile's own bound says nothing.
    """
    if comparison.control is None:
        return Outcome("control", Kind.PARITY, Status.NOT_RUN, "no control leg", required=False)
    numbers: list[MetricGap] = []
    words: list[str] = []
    unknown: list[str] = []
    failed = False
    for metric in comparison.metrics():
        gap = comparison.gap(metric)
        floor = None if gap is None else noise_floor(comparison, gap)
        if gap is None or floor is None:
            unknown.append(f"the control has no finite {metric} in common with the baseline")
            continue
        measured = measure(gap, np.maximum(comparison.k * floor, gap.resolution), floor)
        failed |= bool(measured.steps_over)
        numbers.append(measured)
        words.append(_sentence(comparison, gap, measured))
        times, step = control_beyond(comparison, gap)
        if times > MOST_WIDENING and not comparison.bound(metric).explicit:
            unknown.append(
                f"the control {comparison.control.name} is itself up to {number(times)} times beyond the {metric}"
                f" bound of {comparison.profile.name}, first at step {step}: it carries a bug, or the model is noisy"
            )
    if unknown and not failed:
        return Outcome("control", Kind.PARITY, Status.NOT_RUN, "; ".join(unknown), gaps=tuple(numbers))
    status = Status.FAIL if failed else Status.PASS
    return Outcome("control", Kind.PARITY, status, "; ".join(words), gaps=tuple(numbers))


def _sentence(comparison: Comparison, gap: Gap, measured: MetricGap) -> str:
    text = (
        f"{gap.metric} is at most {number(measured.times_floor or 0)} times the floor, at step {measured.worst_step}"
    )
    if measured.steps_over:
        text += f", and beyond {number(comparison.k)} times at {measured.steps_over} steps from {measured.first_over}"
    story = attribution(comparison, gap, measured)
    return f"{text} ({story})" if story else text
