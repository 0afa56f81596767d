"""Do both legs train on the same samples, in as many micro-batches, at the same learning rate?"""

from dataclasses import replace

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import number, plural, spans
from parity.records.record import Batch, LegRecords, RankRecord

__all__ = ["check"]

# Axes whose ranks get different samples; ranks that differ on the others share theirs.
_DATA_AXES = ("dp", "fsdp")


def check(comparison: Comparison) -> Outcome:
    """Compare the hash of each step's global batch, which depends neither on order nor on who trained on what."""
    legs = (comparison.baseline, comparison.candidate)
    recorded = [leg for leg in legs if leg.records is not None and _steps(leg.records)]
    problems = _learning_rates(comparison)
    required = bool(recorded) or bool(problems)

    def outcome(status: Status, reason: str) -> Outcome:
        return Outcome("same_data", Kind.COMPARABILITY, status, reason, required)

    if len(recorded) < 2:
        if problems:
            return outcome(Status.FAIL, "; ".join(problems))
        names = f"only {recorded[0].name}" if recorded else "neither leg"
        return outcome(Status.NOT_RUN, f"{names} recorded its batches")
    unknown = [leg.name for leg in legs if _without_place(leg)]
    if unknown:
        return outcome(
            Status.NOT_RUN,
            f"{' and '.join(unknown)} did not record the ranks' coordinates, so whose batch is whose is unknown",
        )
    sums, within = [], []
    for leg in legs:
        batches, wrong = _global_batches(leg)
        sums.append(batches)
        within += wrong
    problems += _between(comparison, *sums)
    if within:
        # Ranks of one leg that should share samples, or should not, are that layout's fault.
        return replace(outcome(Status.FAIL, "; ".join(within + problems)), kind=Kind.PARITY)
    wanted = set() if comparison.expected_steps is None else set(comparison.expected_steps.tolist())
    lacking = sorted(wanted - sums[0].keys())
    if lacking:
        problems.append(f"batches were not recorded at {plural(len(lacking), 'step')} ({spans(lacking)})")
    if problems:
        return outcome(Status.FAIL, "; ".join(problems))
    one = next(iter(sums[0].values()))
    text = f"{plural(len(sums[0]), 'step')} of {plural(one.samples, 'sample')}"
    text += f" in {plural(one.micro_batches, 'micro-batch')}" if one.micro_batches is not None else ""
    return outcome(Status.PASS, f"{text}, equal")


def _steps(records: LegRecords) -> set[int]:
    """Steps at which every rank recorded its batch; but later pipeline stages see none, and an earlier one tells."""
    tell = [rank for rank in records.ranks if rank.batches]
    places = {_place(rank) for rank in tell}
    silent = [rank for rank in records.ranks if not rank.batches]
    if not tell or any(not rank.coordinates.get("pp") or _place(rank) not in places for rank in silent):
        return set()
    return set.intersection(*(set(rank.batches) for rank in tell))


def _place(rank: RankRecord) -> tuple[int, ...]:
    return tuple(rank.coordinates.get(axis, 0) for axis in _DATA_AXES)


def _without_place(leg: Leg) -> bool:
    assert leg.records is not None
    return len(leg.records.ranks) > 1 and not all(rank.coordinates for rank in leg.records.ranks)


def _global_batches(leg: Leg) -> tuple[dict[int, Batch], list[str]]:
    """Each step's global batch, and what is wrong within the leg."""
    assert leg.records is not None
    found: dict[int, Batch] = {}
    problems: list[str] = []
    for step in sorted(_steps(leg.records)):
        by_place: dict[tuple[int, ...], Batch] = {}
        for rank in leg.records.ranks:
            batch = rank.batches.get(step)
            if batch is None:
                continue
            if by_place.setdefault(_place(rank), batch) != batch and not problems:
                problems.append(
                    f"{leg.name}: ranks of one data-parallel group train on different samples at step {step}"
                )
        hashes = [batch.hash for batch in by_place.values()]
        if len(set(hashes)) < len(hashes) and not problems:
            problems.append(f"{leg.name}: several data-parallel ranks train on the same samples at step {step}")
        counts = {batch.micro_batches for batch in by_place.values()}
        found[step] = Batch(
            sum(hashes) % (1 << 64),
            sum(batch.samples for batch in by_place.values()),
            counts.pop() if len(counts) == 1 else None,
        )
    return found, problems


def _between(comparison: Comparison, left: dict[int, Batch], right: dict[int, Batch]) -> list[str]:
    a, b = comparison.baseline.name, comparison.candidate.name
    steps = sorted(left.keys() & right)
    problems = []
    if left.keys() != right.keys():
        odd = sorted(left.keys() ^ right)
        problems.append(f"only one leg recorded batches at {plural(len(odd), 'step')} ({spans(odd)})")
    samples = [step for step in steps if left[step].samples != right[step].samples]
    if samples:
        step = samples[0]
        problems.append(f"other global batch: {left[step].samples} samples in {a}, {right[step].samples} in {b}")
    counts = [step for step in steps if left[step].micro_batches != right[step].micro_batches]
    if counts:
        step = counts[0]
        problems.append(
            f"other number of micro-batches: {left[step].micro_batches} in {a}, {right[step].micro_batches} in {b}"
        )
    hashes = [step for step in steps if step not in samples and left[step].hash != right[step].hash]
    if hashes:
        problems.append(f"other samples at {plural(len(hashes), 'step')} ({spans(hashes)})")
    return problems


def _learning_rates(comparison: Comparison) -> list[str]:
    """Steps at which both legs log a learning rate, and another one."""
    gap = comparison.gap("lr")
    if gap is None:
        return []
    # A schedule computed in other order of operations may differ in the last digits of a float64.
    differs = np.flatnonzero(gap.finite & (gap.absolute > np.maximum(gap.resolution, 1e-9 * gap.scale)))
    if not differs.size:
        return []
    i = int(differs[0])
    return [
        f"other learning rate at {plural(int(differs.size), 'step')}, first {number(float(gap.baseline[i]))} against"
        f" {number(float(gap.other[i]))} at step {int(gap.steps[i])}"
    ]
