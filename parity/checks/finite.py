"""Is every value finite?"""

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import plural, spans

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """NaN or infinity in one run fails, for the runs differ; in both it is inconclusive, and never passes."""
    one_sided: list[str] = []
    shared: list[str] = []
    for metric in comparison.metrics():
        left, right = _bad_steps(comparison.baseline, metric), _bad_steps(comparison.candidate, metric)
        for leg, only in (
            (comparison.baseline, np.setdiff1d(left, right)),
            (comparison.candidate, np.setdiff1d(right, left)),
        ):
            if only.size:
                one_sided.append(f"{leg.name} alone has {_where(metric, only)}")
        both = np.intersect1d(left, right)
        if both.size:
            shared.append(f"both legs have {_where(metric, both)}")
        for leg in comparison.floor_legs():
            theirs = np.setdiff1d(_bad_steps(leg, metric), np.union1d(left, right))
            if theirs.size:
                role = "the control " if leg in comparison.controls else ""
                shared.append(f"{role}{leg.name} has {_where(metric, theirs)}")
    one_sided += [problem for leg in comparison.legs() for problem in _ranks(leg)]
    if one_sided:
        return Outcome("finite", Kind.PARITY, Status.FAIL, "; ".join(one_sided + shared))
    if shared:
        return Outcome("finite", Kind.COMPARABILITY, Status.FAIL, "; ".join(shared))
    if not comparison.metrics():
        return Outcome("finite", Kind.COMPARABILITY, Status.NOT_RUN, "there are no values")
    return Outcome("finite", Kind.COMPARABILITY, Status.PASS, "every value is finite")


def _bad_steps(leg: Leg, metric: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    curve = leg.curve(metric)
    return np.array([], dtype=np.int64) if curve is None else curve.steps[~np.isfinite(curve.values)]


def _where(metric: str, steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    return f"NaN or infinite {metric} at {plural(int(steps.size), 'step')} ({spans(steps.tolist())})"


def _ranks(leg: Leg) -> list[str]:
    """A value that is finite on rank 0 and not on another rank, which logs of rank 0 never show."""
    if leg.records is None:
        return []
    first = leg.records.ranks[0]
    for rank in leg.records.ranks[1:]:
        for metric, mine, theirs in (
            ("loss", first.losses, rank.losses),
            ("grad_norm", first.grad_norms, rank.grad_norms),
        ):
            for step, value in theirs.items():
                reference = mine.get(step)
                if value is None or reference is None or not np.isfinite(reference) or np.isfinite(value):
                    continue
                return [f"{leg.name} has NaN or infinite {metric} on rank {rank.rank} alone, first at step {step}"]
    return []
