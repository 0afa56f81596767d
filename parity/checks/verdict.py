"""From outcomes to one verdict and one sentence."""

from collections.abc import Iterable, Sequence

from parity.checks.comparison import Comparison
from parity.checks.noise import horizon
from parity.checks.outcome import Kind, Outcome, Status, Verdict
from parity.checks.words import number

__all__ = ["deciding", "merge", "of_outcomes", "summary"]

_CAUSES = (
    "complete",
    "finite",
    "trained",
    "layout",
    "initial_state",
    "same_data",
    "forward",
    "replicas",
    "norm_consistent",
    "gradients",
    "update",
)


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several; inconclusive when there is none, for nothing was compared."""
    return max(verdicts, key=lambda verdict: verdict.severity, default=Verdict.INCONCLUSIVE)


def of_outcomes(outcomes: Sequence[Outcome]) -> Verdict:
    """The worst that any outcome makes of the comparison; never pass unless some parity check passed."""
    worst = merge(outcome.verdict for outcome in outcomes)
    compared = any(o.kind is Kind.PARITY and o.status is Status.PASS for o in outcomes)
    return Verdict.INCONCLUSIVE if worst is Verdict.PASS and not compared else worst


def deciding(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes that make the verdict what it is, the most telling first; none for a pass."""
    verdict = of_outcomes(outcomes)
    if verdict is Verdict.PASS:
        return []
    found = [o for o in outcomes if o.verdict is verdict and o.status is not Status.PASS]
    # A cause says more than what it caused; what cannot be judged says least.
    updated = next((o for o in found if o.check == "update" and o.status is Status.FAIL), None)

    def order(outcome: Outcome) -> tuple[bool, float]:
        place: float = _CAUSES.index(outcome.check) if outcome.check in _CAUSES else len(_CAUSES)
        if outcome.check == "gradients" and updated is not None and _since(outcome) > _since(updated):
            place = _CAUSES.index("update") + 0.5  # gradients that follow from a wrong update
        return outcome.status is Status.NOT_RUN, place

    return sorted(found, key=order)


def _since(outcome: Outcome) -> int:
    """The first step beyond what is allowed; 0 where no step was named."""
    return min((gap.first_over for gap in outcome.gaps if gap.first_over is not None), default=0)


def summary(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    """One sentence: why, and by how much."""
    verdict = of_outcomes(outcomes)
    pair = f"{comparison.candidate.name} against {comparison.baseline.name}"
    if verdict is Verdict.PASS:
        return f"{pair}: {_closest(outcomes)}{_scope(comparison)}."
    found = deciding(outcomes)
    if not found:
        return f"{pair}: no parity check ran."
    rest = f" (also: {', '.join(o.check for o in found[1:])})" if len(found) > 1 else ""
    first = found[0]
    what = f"{first.check} did not run" if first.status is Status.NOT_RUN else first.check
    return f"{pair}, {what}: {first.reason.rstrip('.')}{rest}."


def _closest(outcomes: Sequence[Outcome]) -> str:
    """How near the nearest step came to its bound; the gaps of `drift` are not what is held to its own."""
    gaps = [gap for o in outcomes if o.check != "drift" for gap in o.gaps if gap.worst_step is not None]
    if not gaps:
        return "within bounds"
    gap = max(gaps, key=lambda gap: gap.times_allowed or 0.0)
    text = (
        f"worst step {gap.worst_step}, {gap.metric} {number(gap.worst or 0)} apart of"
        f" {number(gap.allowed or 0)} allowed"
    )
    return text + (f" ({number(gap.times_floor)} times the noise floor)" if gap.times_floor is not None else "")


def _scope(comparison: Comparison) -> str:
    """What the verdict does not speak of."""
    metrics = comparison.metrics()
    words = "; loss only" if metrics == ("loss",) else ""
    known = {*metrics, "lr"}
    for metric in metrics:
        gap, end = comparison.gap(metric), horizon(comparison, metric)
        if gap is not None and end < gap.steps[-1]:
            words += f"; {metric} judged up to step {int(end)} of {int(gap.steps[-1])}"
    others = [m for m in comparison.baseline.curves.curves if m not in known and comparison.candidate.curve(m)]
    return words + (f"; not judged: {', '.join(others)}" if others else "")
