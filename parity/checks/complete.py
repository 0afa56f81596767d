"""Does each curve have every expected step exactly once, with every metric?"""

import numpy as np

from parity.checks.comparison import Comparison, Leg, named_steps
from parity.checks.outcome import Kind, Outcome, Status
from parity.checks.words import number, plural, spans

__all__ = ["check"]


def check(comparison: Comparison) -> Outcome:
    """Fail where a leg lacks a metric that another has, lacks or repeats a step, or has one too many."""
    legs = list(comparison.legs())
    metrics = comparison.metrics()
    problems: list[str] = []
    if "loss" not in metrics:
        problems.append("no leg has a loss")
    expected = comparison.expected_steps
    if expected is None:
        expected = named_steps(
            curve for leg in legs for metric in metrics if (curve := leg.curve(metric)) is not None
        )
    for leg in legs:
        for metric in metrics:
            problems += _problems(leg, metric, expected)
    problems += [
        f"{leg.name} never wrote its end: it broke off, or does not call recorder.end()"
        for leg in legs
        if leg.curves.finished is False
    ]
    problems += [problem for leg in legs for problem in _ranks(leg)]
    problems += _shift(comparison)
    if problems:
        return Outcome("complete", Kind.COMPARABILITY, Status.FAIL, "; ".join(problems))
    reason = f"{plural(int(expected.size), 'step')} of {' and '.join(metrics)} in {plural(len(legs), 'leg')}"
    if comparison.expected_steps is None:
        reason += "; how many there should be was not said"
    return Outcome("complete", Kind.COMPARABILITY, Status.PASS, reason)


def _problems(leg: Leg, metric: str, expected: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    curve = leg.curve(metric)
    if curve is None:
        return [f"{leg.name} has no {metric}"]
    found = []
    same = np.array_equal(expected, curve.steps)
    absent = expected[:0] if same else np.setdiff1d(expected, curve.steps, assume_unique=True)
    if absent.size:
        found.append(
            f"{leg.name} lacks {metric} at {absent.size} of {plural(int(expected.size), 'step')}"
            f" ({spans(absent.tolist())})"
        )
    extra = expected[:0] if same else np.setdiff1d(curve.steps, expected, assume_unique=True)
    if extra.size:
        found.append(
            f"{leg.name} has {plural(int(extra.size), 'step')} of {metric} too many ({spans(extra.tolist())})"
        )
    for conflict in curve.conflicts[:3]:
        values = " and ".join(number(value) for value in conflict.values[:3])
        found.append(f"{leg.name} has several values of {metric} at step {conflict.step}: {values}")
    if len(curve.conflicts) > 3:
        found.append(f"{leg.name} has {len(curve.conflicts) - 3} more such steps of {metric}")
    return found


def _shift(comparison: Comparison) -> list[str]:
    """Name the usual reason for other steps: one log counts from 0, the other from 1."""
    baseline, candidate = comparison.baseline.curve("loss"), comparison.candidate.curve("loss")
    if not comparison.shift or baseline is None or candidate is None:
        return []
    ours, theirs = int(baseline.steps[0]), int(candidate.steps[0])
    first, name = max((ours, comparison.baseline.name), (theirs, comparison.candidate.name))
    options = f"--first-step {ours} --candidate-first-step {theirs}"
    return [
        f"{comparison.candidate.name} counts steps from {theirs} where {comparison.baseline.name} counts from {ours}:"
        f" say `first_step: {first}` for {name} ({options}) if these are the same steps"
    ]


def _ranks(leg: Leg) -> list[str]:
    """Ranks whose records are missing or stop before the others'."""
    # A recorder that was given no model only logs, which rank 0 may do alone.
    if leg.records is None or not any(rank.has_model for rank in leg.records.ranks):
        return []
    ranks = leg.records.ranks
    world = max(rank.world_size for rank in ranks)
    missing = sorted(set(range(world)) - {rank.rank for rank in ranks})
    if missing or len(ranks) != world:
        return [f"{leg.name}: {len(ranks)} of {plural(world, 'rank')} left a readable record, not {spans(missing)}"]
    every = set().union(*(rank.losses for rank in ranks))
    short = [rank for rank in ranks if rank.losses.keys() != every]
    if short:
        return [f"{leg.name} recorded {len(short[0].losses)} of {plural(len(every), 'step')} on rank {short[0].rank}"]
    unended = [rank.rank for rank in ranks if not rank.ended]
    if unended and len(unended) < len(ranks):
        return [f"{leg.name} never wrote its end on rank {spans(unended)}"]
    return []
