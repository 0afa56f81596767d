"""Are parameters and buffers that several ranks hold still bitwise equal after the steps, and are gradients?"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import number, plural
from parity.records.record import Holders, RankRecord

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Compare the state hashes of every part that several ranks hold, at all steps that took them and at the end, of
    parameters and of such buffers as routing biases.

    No tolerance: replicas that start equal and get the same update stay equal to the last bit. The norms of their
    gradients are compared at every step: a gradient that was never summed over its ranks differs from the start.
    """
    legs = [leg for leg in (comparison.baseline, comparison.candidate) if leg.records and leg.records.has_model]
    required = bool(legs)
    problems: list[str] = []
    compared = 0
    for leg in legs:
        problem, count = _leg(leg)
        problems += problem + _gradients(leg, comparison.profile.norm_rtol)
        compared += count
    if problems:
        return Outcome("replicas", Kind.PARITY, Status.FAIL, "; ".join(problems), required)
    if len(legs) < 2:
        reason = (
            "no leg recorded what its ranks hold" if not legs else f"only {legs[0].name} recorded what its ranks hold"
        )
        return Outcome("replicas", Kind.PARITY, Status.NOT_RUN, reason, required)
    if not compared:
        replicated = any(
            len(holders) > len(leg.records.distinct[name])
            for leg in legs
            if leg.records
            for name, holders in leg.records.holders.items()
        )
        if replicated:
            return Outcome("replicas", Kind.PARITY, Status.NOT_RUN, "no hashes were taken after any step", required)
        return Outcome("replicas", Kind.PARITY, Status.PASS, "no rank holds what another holds", required)
    reason = f"{plural(compared, 'comparison')} of replicas after steps, all bitwise equal"
    return Outcome("replicas", Kind.PARITY, Status.PASS, reason, required)


def _shared(all_holders: Mapping[str, Holders]) -> Iterator[tuple[str, list[RankRecord]]]:
    """Each part that several ranks hold, by its parameter's or buffer's name, and those ranks."""
    for name, holders in all_holders.items():
        by_box = defaultdict(list)
        for rank, part in holders:
            by_box[part.box].append(rank)
        yield from ((name, ranks) for ranks in by_box.values() if len(ranks) > 1)


def _leg(leg: Leg) -> tuple[list[str], int]:
    """The first step at which replicas differ, and how many comparisons were made."""
    assert leg.records is not None
    compared = 0
    differing: dict[int, list[str]] = defaultdict(list)
    for all_holders, hashes_of in ((leg.records.holders, _parameter), (leg.records.buffer_holders, _buffer)):
        for name, ranks in _shared(all_holders):
            taken, final = zip(*(hashes_of(rank, name) for rank in ranks), strict=True)
            last = max((step for rank in ranks for step in rank.losses), default=-1)
            steps = sorted(set.intersection(*(set(one) for one in taken)))
            # What the last step left comes apart from the steps, and tells of those that were not hashed.
            for step, hashes in (*((step, [one[step] for one in taken]) for step in steps), (last, list(final))):
                if any(one is None for one in hashes):
                    continue
                compared += 1
                odd = [rank.rank for rank, one in zip(ranks, hashes, strict=True) if one != hashes[0]]
                if odd:
                    differing[step].append(f"{name} (rank {ranks[0].rank} against {', '.join(map(str, odd))})")
    if not differing:
        return [], compared
    step = min(differing)
    return [f"{leg.name}: after step {step} replicas differ of {_some(differing[step])}"], compared


def _parameter(rank: RankRecord, name: str) -> tuple[dict[int, int | None], int | None]:
    """A parameter's hashes after each step that took them, and after the last."""
    at = rank.index[name]
    taken = {step: one.hashes[at] for step, one in rank.updates.items() if one.hashes}
    return taken, rank.final[at] if rank.final else None


def _buffer(rank: RankRecord, name: str) -> tuple[dict[int, int | None], int | None]:
    at = rank.buffer_index[name]
    return {step: one[at] for step, one in rank.buffer_hashes.items()}, (
        rank.final_buffers[at] if rank.final_buffers else None
    )


def _gradients(leg: Leg, rtol: float) -> list[str]:
    """The first step at which ranks that hold the same part have gradients of other size."""
    found: dict[int, list[str]] = defaultdict(list)
    assert leg.records is not None
    for name, ranks in _shared(leg.records.holders):
        for step in set.intersection(*(set(rank.gradients) for rank in ranks)):
            if any(rank.gradients[step].summed_over for rank in ranks):
                continue  # each saw another piece
            first, *others = (float(rank.gradients[step].norms[rank.index[name]]) for rank in ranks)
            for rank, norm in zip(ranks[1:], others, strict=True):
                both_absent = np.isnan(norm) and np.isnan(first)
                if not both_absent and not abs(norm - first) <= rtol * abs(first):
                    told = f"{number(first)} on rank {ranks[0].rank}, {number(norm)} on rank {rank.rank}"
                    found[step].append(f"{name} ({told})")
    if not found:
        return []
    step = min(found)
    return [f"{leg.name}: at step {step} ranks have other gradients of {_some(found[step])}"]


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
