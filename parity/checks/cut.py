"""A comparison whose candidate was ended early, up to where it came."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from parity.checks.comparison import JUDGED, Comparison, Leg
from parity.curves.curve import Curve, LegCurves
from parity.records.record import LegRecords, RankRecord

__all__ = ["up_to_where_it_came"]

_T = TypeVar("_T")


def up_to_where_it_came(comparison: Comparison) -> Comparison:
    """The comparison over the steps that the candidate has whole, as if no leg had been to make more."""
    candidate = comparison.candidate
    lasts = [int(curve.steps[-1]) for metric in JUDGED if (curve := candidate.curve(metric)) is not None]
    lasts += [max(rank.losses) for rank in (candidate.records.ranks if candidate.records else ()) if rank.losses]
    if not lasts:
        return comparison
    last, expected = min(lasts), comparison.expected_steps
    return replace(
        comparison,
        baseline=_leg(comparison.baseline, last),
        candidate=_leg(candidate, last),
        controls=tuple(_leg(leg, last) for leg in comparison.controls),
        repeats=tuple(_leg(leg, last) for leg in comparison.repeats),
        perturbed=tuple(_leg(leg, last) for leg in comparison.perturbed),
        reference=None if comparison.reference is None else _leg(comparison.reference, last),
        expected_steps=None if expected is None else expected[expected <= last],
    )


def _leg(leg: Leg, last: int) -> Leg:
    records = leg.records and LegRecords(tuple(_rank(rank, last) for rank in leg.records.ranks))
    return replace(leg, curves=_curves(leg.curves, last), records=records)


def _curves(curves: LegCurves, last: int) -> LegCurves:
    cut = {metric: _curve(curve, last) for metric, curve in curves.curves.items() if curve.steps[0] <= last}
    return replace(curves, curves=cut, finished=None)


def _curve(curve: Curve, last: int) -> Curve:
    kept = curve.steps <= last
    return replace(
        curve,
        steps=curve.steps[kept],
        values=curve.values[kept],
        conflicts=tuple(one for one in curve.conflicts if one.step <= last),
        missing=tuple(step for step in curve.missing if step <= last),
    )


def _rank(rank: RankRecord, last: int) -> RankRecord:
    def cut(by_step: Mapping[int, _T]) -> dict[int, _T]:
        return {step: one for step, one in by_step.items() if step <= last}

    return replace(
        rank,
        gradients=cut(rank.gradients),
        updates=cut(rank.updates),
        batches=cut(rank.batches),
        losses=cut(rank.losses),
        grad_norms=cut(rank.grad_norms),
        buffer_hashes=cut(rank.buffer_hashes),
        final=(),
        final_buffers=(),
        ended=True,
    )
