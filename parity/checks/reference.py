"""Is the candidate no further from the truth than the baseline is, times k? The truth is the baseline in float64."""

from parity.checks.comparison import Comparison
from parity.checks.impostors import impostors
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.per_parameter import judge_parameters
from parity.checks.profiles import PROFILES
from parity.checks.within import judge
from parity.checks.words import number

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Judge the candidate against the reference, where the noise is what the baseline itself is off.

    The baseline's gap to the reference is all the rounding of its own dtype, so a candidate that rounds in another
    order, and no worse, is as far out. Where the baseline is so far out that a fault could hide, nothing is judged.
    """
    if comparison.reference is None:
        return Outcome("reference", Kind.PARITY, Status.NOT_RUN, "no float64 reference", required=False)
    against = Comparison(
        baseline=comparison.reference,
        candidate=comparison.candidate,
        profile=PROFILES[comparison.profile.name],  # a person's bounds are for the baseline
        perturbed=(comparison.baseline,),
        expected_steps=comparison.expected_steps,
        k=comparison.k,
        against_reference=True,
    )
    elsewhere = "; ".join(impostors(against).values())
    if elsewhere:
        return Outcome("reference", Kind.PARITY, Status.NOT_RUN, _against(comparison, elsewhere))
    outcomes = [judge(against, metric) for metric in comparison.metrics()]
    if against.candidate.records is not None and against.baseline.records is not None:
        outcomes.append(judge_parameters(against, "gradients", "gradients", against.profile.gradient))
    if not outcomes:
        return Outcome("reference", Kind.PARITY, Status.NOT_RUN, "there are no curves to compare")
    failed = [one for one in outcomes if one.status is Status.FAIL]
    unknown = [one for one in outcomes if one.status is Status.NOT_RUN]
    gaps = tuple(gap for one in outcomes for gap in one.gaps)
    if failed:
        reason = "; ".join(f"{one.check}: {one.reason}" for one in failed)
        return Outcome("reference", Kind.PARITY, Status.FAIL, _against(comparison, reason), gaps=gaps)
    if unknown:
        reason = "; ".join(f"{one.check}: {one.reason}" for one in unknown)
        return Outcome("reference", Kind.PARITY, Status.NOT_RUN, _against(comparison, reason), gaps=gaps)
    reason = ", ".join(map(_times, gaps))
    return Outcome("reference", Kind.PARITY, Status.PASS, _against(comparison, reason), gaps=gaps)


def _against(comparison: Comparison, reason: str) -> str:
    assert comparison.reference is not None
    return f"against {comparison.reference.name}: {reason}"


def _times(gap: MetricGap) -> str:
    return f"{gap.metric} at most {number(gap.times_floor or 0)} times as far out as the baseline"
