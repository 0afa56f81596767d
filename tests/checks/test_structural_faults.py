"""Runs that published comparators let through: NaN, cut logs, dead runs, metrics that come and go."""

import numpy as np
import pytest

from parity.checks.comparison import Comparison
from parity.checks.outcome import Status, Verdict
from parity.checks.run import run_checks
from parity.checks.verdict import of_outcomes
from parity.curves.curve import Conflict
from tests.drawing import LOSS, NORM, compare, curve, leg


def verdict(comparison: Comparison) -> Verdict:
    return of_outcomes(run_checks(comparison))


def status(comparison: Comparison) -> dict[str, Status]:
    return {outcome.check: outcome.status for outcome in run_checks(comparison)}


def nan_from(values: np.ndarray, step: int) -> np.ndarray:
    return np.where(np.arange(values.size) >= step, np.nan, values)


BASE = leg("tp1", loss=LOSS, grad_norm=NORM)


def test_equal_runs_pass() -> None:
    comparison = compare(BASE, leg("tp3", loss=LOSS, grad_norm=NORM), steps=20)
    assert verdict(comparison) is Verdict.PASS
    assert status(comparison)["control"] is Status.NOT_RUN


@pytest.mark.parametrize("metrics", ["loss", "grad_norm", "both"])
def test_nan_in_the_candidate_alone_fails(metrics: str) -> None:
    loss = nan_from(LOSS, 11) if metrics != "grad_norm" else LOSS
    norm = nan_from(NORM, 11) if metrics != "loss" else NORM
    comparison = compare(BASE, leg("tp3", loss=loss, grad_norm=norm), steps=20)
    assert verdict(comparison) is Verdict.FAIL
    assert status(comparison)["finite"] is Status.FAIL


def test_nan_in_the_baseline_alone_fails() -> None:
    assert verdict(compare(leg("tp1", loss=nan_from(LOSS, 3)), leg("tp3", loss=LOSS), steps=20)) is Verdict.FAIL


def test_nan_in_both_is_inconclusive_even_if_it_is_at_every_step() -> None:
    for step in (0, 11, 19):
        dead = [leg(name, loss=nan_from(LOSS, step), grad_norm=nan_from(NORM, step)) for name in ("tp1", "tp3")]
        assert verdict(compare(*dead, steps=20)) is Verdict.INCONCLUSIVE


def test_infinity_in_both_is_inconclusive_though_infinity_equals_infinity() -> None:
    values = np.where(np.arange(20) == 5, np.inf, LOSS)
    assert verdict(compare(leg("tp1", loss=values), leg("tp3", loss=values), steps=20)) is Verdict.INCONCLUSIVE


def test_nan_sooner_in_one_run_than_in_the_other_fails() -> None:
    comparison = compare(leg("tp1", loss=nan_from(LOSS, 9)), leg("tp3", loss=nan_from(LOSS, 7)), steps=20)
    assert verdict(comparison) is Verdict.FAIL


def test_candidate_cut_at_5_of_20_steps_is_inconclusive_and_says_which_are_missing() -> None:
    comparison = compare(BASE, leg("tp3", loss=LOSS[:5], grad_norm=NORM[:5]))
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    complete = run_checks(comparison)[0]
    assert complete.reason == (
        "tp3 lacks loss at 15 of 20 steps (5–19); tp3 lacks grad_norm at 15 of 20 steps (5–19)"
    )
    assert status(comparison)["loss"] is Status.NOT_RUN


def test_a_cut_candidate_that_is_wrong_in_what_it_has_fails() -> None:
    assert verdict(compare(BASE, leg("tp3", loss=LOSS[:5] * 1.01, grad_norm=NORM[:5]))) is Verdict.FAIL


def test_two_logs_cut_alike_are_inconclusive_once_the_steps_are_known() -> None:
    cut = [leg(name, loss=LOSS[:5], grad_norm=NORM[:5]) for name in ("tp1", "tp3")]
    assert verdict(compare(*cut, steps=20)) is Verdict.INCONCLUSIVE
    assert "was not said" in run_checks(compare(*cut))[0].reason


def test_gradient_norm_on_1_of_6_steps_is_inconclusive_also_when_both_legs_lack_it() -> None:
    once = leg("tp3", curve("grad_norm", NORM[:1]), loss=LOSS[:6])
    assert verdict(compare(leg("tp1", loss=LOSS[:6], grad_norm=NORM[:6]), once)) is Verdict.INCONCLUSIVE
    both = leg("tp1", curve("grad_norm", NORM[:1]), loss=LOSS[:6])
    assert verdict(compare(both, once)) is Verdict.INCONCLUSIVE


def test_a_metric_that_only_one_leg_has_is_inconclusive() -> None:
    for pair in ((BASE, leg("tp3", loss=LOSS)), (leg("tp1", loss=LOSS), leg("tp3", loss=LOSS, grad_norm=NORM))):
        comparison = compare(*pair, steps=20)
        assert verdict(comparison) is Verdict.INCONCLUSIVE
        assert status(comparison)["grad_norm"] is Status.NOT_RUN


def test_a_null_metric_at_one_step_is_inconclusive() -> None:
    steps = [step for step in range(20) if step != 7]
    gappy = leg("tp3", curve("grad_norm", NORM[steps], steps, missing=(7,)), loss=LOSS)
    assert verdict(compare(BASE, gappy)) is Verdict.INCONCLUSIVE


def test_two_values_for_one_step_are_inconclusive_whichever_of_them_agrees() -> None:
    torn = leg("tp3", curve("loss", LOSS, conflicts=(Conflict(0, (float(LOSS[0]), 99.0)),)), grad_norm=NORM)
    comparison = compare(BASE, torn, steps=20)
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    assert "tp3 has several values of loss at step 0: 6 and 99" in run_checks(comparison)[0].reason


def test_two_dead_runs_are_inconclusive_though_they_agree_bit_for_bit() -> None:
    flat = np.full(20, np.log(32000))
    dead = [leg(name, loss=flat, grad_norm=np.zeros(20)) for name in ("tp1", "tp3")]
    comparison = compare(*dead, steps=20)
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    assert status(comparison)["trained"] is Status.FAIL


def test_a_flat_loss_alone_is_enough_to_call_a_run_dead() -> None:
    flat = np.full(20, 10.37349) + np.linspace(0, 9e-5, 20)
    assert (
        verdict(compare(*(leg(n, loss=flat, grad_norm=NORM) for n in ("a", "b")), steps=20)) is Verdict.INCONCLUSIVE
    )


def test_a_learning_rate_of_zero_is_a_dead_run() -> None:
    frozen = [leg(n, loss=LOSS, grad_norm=NORM, lr=np.zeros(20)) for n in ("a", "b")]
    assert verdict(compare(*frozen, steps=20)) is Verdict.INCONCLUSIVE


def test_one_step_without_a_gradient_norm_does_not_tell_whether_the_run_trained() -> None:
    one = [leg(name, loss=LOSS[:1]) for name in ("a", "b")]
    assert verdict(compare(*one, steps=1)) is Verdict.INCONCLUSIVE
    known = [leg(name, loss=LOSS[:1], grad_norm=NORM[:1]) for name in ("a", "b")]
    assert verdict(compare(*known, steps=1)) is Verdict.PASS


def test_logs_without_a_common_step_are_inconclusive() -> None:
    later = leg("tp3", curve("loss", LOSS, np.arange(100, 120)))
    assert verdict(compare(leg("tp1", loss=LOSS), later)) is Verdict.INCONCLUSIVE


def test_a_log_that_counts_from_1_is_told_apart_from_missing_steps() -> None:
    from_one = leg("tp3", curve("loss", LOSS, np.arange(1, 21)))
    comparison = compare(leg("tp1", loss=LOSS), from_one, steps=20)
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    assert "tp3 counts steps from 1 where tp1 counts from 0" in run_checks(comparison)[0].reason


def test_logs_without_a_loss_are_inconclusive_even_if_their_gradient_norms_agree() -> None:
    norms = [leg(name, grad_norm=NORM) for name in ("a", "b")]
    assert verdict(compare(*norms, steps=20)) is Verdict.INCONCLUSIVE


def test_empty_legs_are_inconclusive() -> None:
    assert verdict(compare(leg("a"), leg("b"), steps=20)) is Verdict.INCONCLUSIVE


def test_a_required_check_that_cannot_run_is_inconclusive() -> None:
    pair = [leg(name, loss=LOSS) for name in ("a", "b")]
    assert verdict(compare(*pair, steps=20)) is Verdict.PASS
    for check in ("grad_norm", "control"):
        comparison = compare(*pair, steps=20, required=frozenset({check}))
        assert verdict(comparison) is Verdict.INCONCLUSIVE


def test_a_control_that_is_incomplete_or_not_finite_is_never_green() -> None:
    good = leg("tp3", loss=LOSS, grad_norm=NORM)
    for control in (
        leg("tp4", loss=LOSS[:5], grad_norm=NORM[:5]),
        leg("tp4", loss=np.full(20, np.nan), grad_norm=NORM),
        leg("tp4", loss=LOSS),
    ):
        assert verdict(compare(BASE, good, control, steps=20)) is Verdict.INCONCLUSIVE
