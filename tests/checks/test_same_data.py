"""The samples, the batch and the learning rate of every step."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.checks import same_data
from parity.checks.comparison import Comparison
from parity.checks.outcome import Status, Verdict
from parity.records.record import Batch
from tests.checks.recorded import LEGS, assert_fails, comparison, plain_run
from tests.drawing import LOSS, compare, curve
from tests.drawing import leg as drawn_leg


def batches(*hashes: int, samples: int = 4, micro: int | None = 2) -> dict[int, Batch]:
    return {step: Batch(value, samples, micro) for step, value in enumerate(hashes)}


def data_pair(mine: dict[int, dict[int, Batch]], whole: dict[int, Batch], name: str = "dp2") -> Comparison:
    baseline, candidate = plain_run(), LEGS[name]()
    baseline.batches, candidate.batches = {0: whole}, mine
    return replace(comparison(candidate, name, baseline), expected_steps=np.arange(len(whole)))


def test_samples_dealt_over_data_parallel_ranks_are_the_same_samples() -> None:
    pair = data_pair({0: batches(2**64 - 1, 5, samples=2), 1: batches(8, 6, samples=2)}, batches(7, 11))
    outcome = same_data.check(pair)
    assert outcome.status is Status.PASS
    assert outcome.reason == "2 steps of 4 samples in 2 micro-batches, equal"


def test_tensor_parallel_ranks_share_their_samples() -> None:
    assert same_data.check(data_pair({r: batches(7) for r in range(3)}, batches(7), "tp3")).status is Status.PASS
    odd = {0: batches(7), 1: batches(7), 2: batches(9)}
    assert_fails(
        same_data.check(data_pair(odd, batches(7), "tp3")), "ranks of one data-parallel group train on different"
    )


def test_a_later_pipeline_stage_sees_no_samples_and_the_first_tells() -> None:
    assert same_data.check(data_pair({0: batches(7), 1: {}}, batches(7), "pp2")).status is Status.PASS
    silent = same_data.check(data_pair({0: {}, 1: batches(7)}, batches(7), "pp2"))
    assert (silent.status, silent.required) == (Status.NOT_RUN, True)
    unseen = same_data.check(data_pair({0: batches(7), 1: {}}, batches(7), "dp2"))
    assert (unseen.status, unseen.required) == (Status.NOT_RUN, True)


@pytest.mark.parametrize(
    ("ranks", "whole", "said"),
    [
        ({0: batches(7, 5), 1: batches(8, 6)}, batches(15, 12, samples=8), "other samples at 1 step (1)"),
        (
            {0: batches(7), 1: batches(7)},
            batches(14, samples=8),
            "several data-parallel ranks train on the same samples",
        ),
        ({0: batches(7), 1: batches(8)}, batches(15), "other global batch: 4 samples in base, 8 in dp2"),
        (
            {0: batches(7), 1: batches(8)},
            batches(15, samples=8, micro=1),
            "other number of micro-batches: 1 in base, 2",
        ),
    ],
)
def test_other_data_is_no_ground_for_a_comparison(ranks: Any, whole: Any, said: str) -> None:
    outcome = same_data.check(data_pair(ranks, whole))
    assert_fails(outcome, said)
    # Ranks of one leg that share samples they should not are that layout's fault; other data is no comparison.
    assert outcome.verdict is (Verdict.FAIL if "several data-parallel" in said else Verdict.INCONCLUSIVE)


def test_another_learning_rate_is_told_even_without_records() -> None:
    rates = np.full(20, 1e-3)
    legs = [
        drawn_leg(n, curve("lr", r), loss=LOSS)
        for n, r in (("a", rates), ("b", np.where(np.arange(20) > 4, 9e-4, rates)))
    ]
    assert_fails(
        same_data.check(compare(*legs)), "other learning rate at 15 steps, first 0.001 against 0.0009 at step 5"
    )
