"""The logged gradient norm against the norm of the gradients."""

from dataclasses import replace

import numpy as np

from parity.checks import norm_consistent
from parity.checks.comparison import Comparison
from parity.checks.outcome import Status
from parity.curves.curve import Resolution
from tests.checks.recorded import assert_fails, comparison, tp3
from tests.records.drawing import MODEL


def test_a_norm_of_the_local_shard_is_not_the_norm_of_the_gradients() -> None:
    candidate = tp3()
    true = float(np.sqrt(sum((value**2).sum() for value in MODEL.values())))
    candidate.grad_norms = {rank: {0: true / 3**0.5} for rank in range(3)}
    assert_fails(norm_consistent.check(comparison(candidate)), "(ratio 0.57735; 1 step)")


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


def by_its_log(value: float, read: str = "before the engine's step") -> Comparison:
    """A pair whose candidate has its norm in a log of its own and not in its records."""
    candidate = tp3()
    candidate.read, candidate.grad_norms = read, {rank: {} for rank in range(3)}
    made = comparison(candidate)
    curve = replace(made.candidate.curves.curves["grad_norm"], values=np.full(20, value), resolution=Resolution(4, 5))
    own = replace(made.candidate.curves, curves={**made.candidate.curves.curves, "grad_norm": curve})
    return replace(made, candidate=replace(made.candidate, curves=own))


def test_a_norm_that_only_the_log_has_is_held_against_recorded_gradients_as_finely_as_it_was_printed() -> None:
    true = float(np.sqrt(sum((value**2).sum() for value in MODEL.values())))
    passed = norm_consistent.check(by_its_log(round(true, 4)))
    assert passed.status is Status.PASS, passed.reason
    assert "by its log" in passed.reason
    assert_fails(norm_consistent.check(by_its_log(true * 0.77)), "(ratio 0.77;")


def test_a_log_s_norm_is_not_held_against_gradients_that_may_have_been_clipped() -> None:
    outcome = norm_consistent.check(by_its_log(1e3, "at the optimizer step"))
    assert "tp3" not in outcome.reason
    assert outcome.status is Status.PASS, "by the baseline alone"
