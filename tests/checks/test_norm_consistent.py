"""The logged gradient norm against the norm of the gradients."""

import numpy as np

from parity.checks import norm_consistent
from parity.checks.outcome import Status
from tests.checks.recorded import assert_fails, comparison, tp3
from tests.records.drawing import MODEL


def test_a_norm_of_the_local_shard_is_not_the_norm_of_the_gradients() -> None:
    candidate = tp3()
    true = float(np.sqrt(sum((value**2).sum() for value in MODEL.values())))
    candidate.grad_norms = {rank: {0: true / 3**0.5} for rank in range(3)}
    assert_fails(norm_consistent.check(comparison(candidate)), "(ratio 0.5774; 1 step)")


def test_ranks_that_log_different_norms_are_found_though_each_log_looks_fine() -> None:
    candidate = tp3()
    true = float(np.sqrt(sum((value**2).sum() for value in MODEL.values())))
    candidate.grad_norms = {0: {0: true}, 1: {0: true / 10}, 2: {0: true}}
    assert_fails(norm_consistent.check(comparison(candidate)), "rank 1 logs a gradient norm of")


def test_gradients_read_after_clipping_are_no_ground_for_a_verdict() -> None:
    candidate = tp3()
    candidate.read = "at the optimizer step"
    candidate.grad_norms = {rank: {0: 1e3, 1: 1e3} for rank in range(3)}
    outcome = norm_consistent.check(comparison(candidate))
    assert outcome.status is Status.NOT_RUN
    assert "call recorder.gradients() before it" in outcome.reason
