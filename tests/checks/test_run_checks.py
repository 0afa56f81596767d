"""All checks together, on what ranks recorded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.checks import gradients, initial_state, layout, norm_consistent, replicas, update
from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Status, Verdict
from parity.checks.run import run_checks
from parity.checks.verdict import of_outcomes, summary
from parity.records.record import Batch, LegRecords
from tests.checks.recorded import LEGS, Q1, comparison, plain_run, scaled, tp3
from tests.drawing import LOSS, NORM, compare
from tests.drawing import leg as drawn_leg
from tests.records.drawing import MODEL, draw


@pytest.mark.parametrize("name", LEGS)
def test_a_correct_layout_passes_whatever_the_sharding(name: str) -> None:
    pair = comparison(LEGS[name](), name)
    for check in (initial_state, layout, norm_consistent, gradients, update, replicas):
        outcome = check.check(pair)
        assert outcome.status is Status.PASS, (check.__name__, outcome.reason)


def test_records_in_one_leg_alone_are_inconclusive() -> None:
    base = drawn_leg("base", loss=LOSS, grad_norm=NORM)
    pair = compare(base, Leg("tp3", base.curves, None, draw(tp3())), steps=20)
    assert of_outcomes(run_checks(pair)) is Verdict.INCONCLUSIVE


def test_another_start_keeps_later_checks_from_judging_and_is_inconclusive() -> None:
    candidate = tp3()
    candidate.weights = {**MODEL, Q1: MODEL[Q1] * 1.01}
    candidate.gradients = {0: scaled(Q1, 1.5)}
    pair = comparison(candidate)
    outcomes = run_checks(pair)
    assert of_outcomes(outcomes) is Verdict.INCONCLUSIVE
    assert next(one for one in outcomes if one.check == "gradients").status is Status.NOT_RUN
    assert summary(pair, outcomes).startswith("tp3 against base, initial_state: other initial values of 1 parameter")


def with_ranks(change: Callable[[Any], Any]) -> Comparison:
    """A leg of three ranks that logged 20 steps, the last of them changed."""
    pair = comparison(tp3())
    assert pair.candidate.records is not None
    losses = {step: float(value) for step, value in enumerate(LOSS)}
    ranks = [replace(rank, losses=losses) for rank in pair.candidate.records.ranks]
    changed = change(ranks[-1])
    kept = (*ranks[:-1], changed) if changed is not None else tuple(ranks[:-1])
    return replace(pair, candidate=replace(pair.candidate, records=LegRecords(kept)))


@pytest.mark.parametrize(
    ("change", "check", "verdict", "said"),
    [
        (lambda rank: None, "complete", Verdict.INCONCLUSIVE, "tp3: 2 of 3 ranks left a readable record, not 2"),
        (lambda rank: replace(rank, losses={0: 6.0}), "complete", Verdict.INCONCLUSIVE, "1 of 20 steps on rank 2"),
        (lambda rank: replace(rank, ended=False), "complete", Verdict.INCONCLUSIVE, "never wrote its end on rank 2"),
        (
            lambda rank: replace(rank, losses={**rank.losses, 7: np.nan}),
            "finite",
            Verdict.FAIL,
            "tp3 has NaN or infinite loss on rank 2 alone, first at step 7",
        ),
        (
            lambda rank: replace(rank, grad_norms={**rank.grad_norms, 1: np.nan}),
            "norm_consistent",
            Verdict.FAIL,
            "tp3: rank 2 logs a gradient norm of NaN at step 1",
        ),
    ],
)
def test_what_another_rank_than_the_first_shows(
    change: Callable[[Any], Any], check: str, verdict: Verdict, said: str
) -> None:
    outcome = next(one for one in run_checks(with_ranks(change)) if one.check == check)
    assert outcome.verdict is verdict
    assert said in outcome.reason


def test_a_first_gap_after_a_start_shown_to_be_the_same_is_the_forward_s_and_nothing_else_s() -> None:
    baseline, candidate = plain_run(), tp3()
    twenty = {step: Batch(step, 4, 2) for step in range(20)}
    baseline.batches, candidate.batches = {0: twenty}, dict.fromkeys(range(3), twenty)
    pair = comparison(candidate, baseline=baseline)
    wrong = drawn_leg("tp3", loss=LOSS * 1.01, grad_norm=NORM).curves
    outcomes = run_checks(replace(pair, candidate=replace(pair.candidate, curves=wrong)))
    forward = next(one for one in outcomes if one.check == "forward")
    assert forward.reason.endswith("the forward is wrong, for weights and data are the same")
