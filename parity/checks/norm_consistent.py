"""Does the logged gradient norm equal the norm of the gradients, and is it the same on every rank?"""

import math

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Kind, MetricGap, Outcome, Status
from parity.checks.words import number, plural, ratio

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Recompute each step's norm from the recorded norms of all parts, every replica counted once.

    A norm of the local shard, or one that counts replicas several times, looks fine in the log of each rank. The norm
    is the recorder's or, where that got none, the leg's own log's.
    """
    legs = [leg for leg in (comparison.baseline, comparison.candidate) if _usable(leg)]
    if not legs:
        reason = "no leg recorded both gradients and a logged gradient norm"
        return Outcome("norm_consistent", Kind.PARITY, Status.NOT_RUN, reason, required=False)
    problems: list[str] = []
    clipped: list[str] = []
    rtol = comparison.profile.norm_rtol
    gaps: dict[tuple[str, int], float] = {}
    for leg in legs:
        differing = _across_ranks(leg, rtol)
        recomputed, after_clipping, found = _recomputed(leg, rtol)
        problems += differing + recomputed
        clipped += after_clipping
        gaps |= {(leg.name, step): gap for step, gap in found.items()}
    worst = max(gaps.values(), default=0.0)
    if problems:
        return Outcome("norm_consistent", Kind.PARITY, Status.FAIL, "; ".join(problems), gaps=_numbers(gaps, rtol))
    if clipped:
        return Outcome("norm_consistent", Kind.PARITY, Status.NOT_RUN, "; ".join(clipped))
    counts = ", ".join(f"{leg.name} {plural(len(_steps(leg)), 'step')} {_where(leg)}" for leg in legs)
    alike = ", on every rank alike" if all(_by_ranks(leg) for leg in legs) else ""
    reason = f"logged and recomputed norms differ by at most {number(worst)} relative{alike} ({counts})"
    warnings = tuple(warning for leg in legs for warning in _rank_losses(leg))
    return Outcome("norm_consistent", Kind.PARITY, Status.PASS, reason, warnings=warnings)


def _numbers(gaps: dict[tuple[str, int], float], rtol: float) -> tuple[MetricGap, ...]:
    """How far logged norms are from recomputed ones, over all legs."""
    if not gaps:
        return ()
    (_, step), worst = max(gaps.items(), key=lambda item: item[1])
    over = sorted(at for (_, at), gap in gaps.items() if gap > rtol)
    return (
        MetricGap(
            metric="grad_norm",
            worst=worst,
            worst_step=step,
            allowed=rtol,
            times_allowed=worst / rtol,
            steps_over=len(set(over)),
            first_over=over[0] if over else None,
        ),
    )


def _usable(leg: Leg) -> bool:
    records = leg.records
    return records is not None and records.has_model and bool(_logged(leg)) and bool(_steps(leg))


def _by_ranks(leg: Leg) -> bool:
    return leg.records is not None and any(rank.grad_norms for rank in leg.records.ranks)


def _where(leg: Leg) -> str:
    assert leg.records is not None
    return f"on {len(leg.records.ranks)}" if _by_ranks(leg) else "by its log"


def _logged(leg: Leg) -> dict[int, tuple[float, float]]:
    """By step, the norm that was logged and how finely it was printed.

    A log's own is not held against gradients that were read when they may have been clipped already: nobody asked for
    that, as a call of the recorder's does.
    """
    assert leg.records is not None
    if _by_ranks(leg):
        return {step: (norm, 0.0) for step, norm in leg.records.ranks[0].grad_norms.items()}
    curve = leg.curves.curves.get("grad_norm")
    reads = {one.read for rank in leg.records.ranks for one in rank.gradients.values()}
    if curve is None or "at the optimizer step" in reads:
        return {}
    fine = curve.resolution.at(curve.values)
    return dict(zip(curve.steps.tolist(), zip(curve.values.tolist(), fine.tolist(), strict=True), strict=True))


def _steps(leg: Leg) -> list[int]:
    assert leg.records is not None
    return sorted(set.intersection(*(set(rank.gradients) for rank in leg.records.ranks)))


def _across_ranks(leg: Leg, rtol: float) -> list[str]:
    """Ranks that log another norm than rank 0 does."""
    assert leg.records is not None
    logged = [rank for rank in leg.records.ranks if rank.grad_norms]
    if not logged:
        return []
    first = logged[0]
    for step, norm in sorted(first.grad_norms.items()):
        for rank in logged[1:]:
            other = rank.grad_norms.get(step)
            if other is None or not (math.isfinite(norm) or math.isfinite(other)):
                continue  # that neither is finite is for the check of that name to say
            if not abs(other - norm) <= rtol * abs(norm):
                return [
                    f"{leg.name}: rank {rank.rank} logs a gradient norm of {number(other)} at step {step},"
                    f" rank {first.rank} {number(norm)}"
                ]
    return []


def _recomputed(leg: Leg, rtol: float) -> tuple[list[str], list[str], dict[int, float]]:
    """Steps whose logged norm is not that of the gradients; the same where clipping explains it; every step's gap."""
    assert leg.records is not None
    logged = _logged(leg)
    wrong, clipped, gaps = [], [], {}
    for step in _steps(leg):
        told, fine = logged.get(step, (math.nan, 0.0))
        if not math.isfinite(told):
            continue
        norm = sum(one**2 for one in leg.records.norms("gradients", step).values()) ** 0.5
        gap = max(abs(told - norm) - fine, 0.0) / norm if norm else float(told != 0)
        gaps[step] = gap
        if gap <= rtol:
            continue
        read = leg.records.ranks[0].gradients[step].read
        if read == "at the optimizer step" and norm < told:
            clipped.append(step)
        else:
            wrong.append((step, told, norm))
    problems, unclear = [], []
    if wrong:
        step, told, norm = wrong[0]
        times = told / norm if norm else float("inf")
        problems.append(
            f"{leg.name}: logs a gradient norm of {number(told)} at step {step}, its gradients have {number(norm)}"
            f" (ratio {ratio(times)}; {plural(len(wrong), 'step')})"
        )
    if clipped:
        unclear.append(
            f"{leg.name}: gradients were read after clipping ({plural(len(clipped), 'step')}): call"
            " recorder.gradients() before it"
        )
    return problems, unclear, gaps


def _rank_losses(leg: Leg) -> list[str]:
    """Ranks that log another loss: a local one, or a fault of the report."""
    assert leg.records is not None
    first = leg.records.ranks[0]
    for rank in leg.records.ranks[1:]:
        for step, loss in rank.losses.items():
            mine = first.losses.get(step)
            if loss is not None and mine is not None and abs(loss - mine) > 1e-5 * abs(mine):
                return [
                    f"{leg.name}: rank {rank.rank} logs a loss of {number(loss)} at step {step}, rank {first.rank}"
                    f" {number(mine)}; only rank {first.rank}'s is compared"
                ]
    return []
