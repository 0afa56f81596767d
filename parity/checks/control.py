"""Is the candidate's gap within k times the noise floor that the control measured?"""

from parity.checks.comparison import Comparison
from parity.checks.floor import noise_floor
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.within import attribution, measure
from parity.checks.words import number

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Compare the candidate's gap at every step with k times the running maximum of the control's gap.

    A spike of the trajectory lifts candidate and control alike, so it does not fail; a fault of the split lifts the
    candidate alone. A control that carries the same fault hides it from this check: see the warnings of `loss`.
    """
    if comparison.control is None:
        required = "control" in comparison.required
        return Outcome("control", Kind.PARITY, Status.NOT_RUN, "no control leg", required)
    numbers: list[MetricGap] = []
    words: list[str] = []
    unknown: list[str] = []
    failed = False
    for metric in comparison.metrics():
        gap = comparison.gap(metric)
        floor = None if gap is None else noise_floor(comparison, metric, gap)
        if gap is None or floor is None:
            unknown.append(metric)
            continue
        measured = measure(gap, comparison.k * floor, floor)
        failed |= bool(measured.steps_over)
        numbers.append(measured)
        text = (
            f"{metric} is at most {number(measured.times_floor or 0)} times the floor, at step {measured.worst_step}"
        )
        if measured.steps_over:
            text += (
                f", and beyond {number(comparison.k)} times at {measured.steps_over} steps from {measured.first_over}"
            )
        story = attribution(comparison, gap, measured)
        words.append(f"{text} ({story})" if story else text)
    if unknown and not failed:
        reason = f"the control has no finite {' and '.join(unknown)} in common with the baseline"
        return Outcome("control", Kind.PARITY, Status.NOT_RUN, reason, True, tuple(numbers))
    status = Status.FAIL if failed else Status.PASS
    return Outcome("control", Kind.PARITY, status, "; ".join(words), True, tuple(numbers))
