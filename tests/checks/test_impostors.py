"""Legs that are given as noise and are none: no comparison passes with one, and none of them widens anything."""

import numpy as np
import pytest

from parity.checks.comparison import Comparison, Leg
from parity.checks.impostors import impostors
from parity.checks.noise import perturbed_legs
from parity.checks.outcome import Outcome, Status, Verdict
from parity.checks.run import run_checks
from parity.checks.verdict import of_outcomes, summary
from parity.layout import Layout
from tests.drawing import LOSS, NORM, compare, leg, noisy

STEPS = np.arange(20)
LR = np.full(20, 1e-3)
BASE = leg("tp1", loss=LOSS, grad_norm=NORM, lr=LR)
GOOD = leg("p", loss=noisy(LOSS, 1e-6, 7), grad_norm=noisy(NORM, 1e-6, 8), lr=LR)
BUG = leg("tp3", loss=LOSS * (1 + 2e-2 * (STEPS > 0)), grad_norm=NORM * (1 + 1e-1 * (STEPS > 0)), lr=LR)
SMALL_BUG = leg("tp3", loss=LOSS * (1 + 1e-4 * (STEPS > 0)), grad_norm=NORM, lr=LR)
OTHER_DATA = leg("other", loss=noisy(LOSS, 1e-2, 3), grad_norm=noisy(NORM, 5e-2, 4), lr=LR)


def copy(name: str, of: Leg) -> Leg:
    return Leg(name, of.curves, of.layout)


def verdict(comparison: Comparison) -> Verdict:
    return of_outcomes(run_checks(comparison))


def outcome(comparison: Comparison, check: str) -> Outcome:
    return next(one for one in run_checks(comparison) if one.check == check)


@pytest.mark.parametrize("more", [(), (GOOD,)])
def test_other_data_is_no_noise_though_the_first_loss_agrees(more: tuple[Leg, ...]) -> None:
    for bug in (BUG, SMALL_BUG):
        assert verdict(compare(BASE, bug, perturbed=(OTHER_DATA, *more), steps=20)) is not Verdict.PASS


def test_the_candidate_s_own_log_is_no_perturbed_leg() -> None:
    comparison = compare(BASE, SMALL_BUG, perturbed=(copy("p", SMALL_BUG),), steps=20)
    assert "equal to tp3 to the last digit, so it is a copy" in outcome(comparison, "control").reason
    assert verdict(comparison) is not Verdict.PASS
    assert verdict(compare(BASE, SMALL_BUG, perturbed=(copy("p", SMALL_BUG), GOOD), steps=20)) is Verdict.FAIL
    assert verdict(compare(BASE, SMALL_BUG, repeats=(copy("r", SMALL_BUG),), steps=20)) is not Verdict.PASS


def test_a_leg_that_was_not_moved_accuses_nobody() -> None:
    good = leg("tp3", loss=noisy(LOSS, 5e-6, 1), grad_norm=noisy(NORM, 5e-6, 2), lr=LR)
    comparison = compare(BASE, good, perturbed=(copy("p", BASE),), steps=20)
    assert "so its weights were not moved" in outcome(comparison, "control").reason
    assert verdict(comparison) is Verdict.INCONCLUSIVE


def test_another_learning_rate_or_layout_is_another_run() -> None:
    faster = leg("p", loss=noisy(LOSS, 1e-6, 7), grad_norm=noisy(NORM, 1e-6, 8), lr=2 * LR)
    assert "other learning rate" in outcome(compare(BASE, BUG, perturbed=(faster,)), "control").reason
    split = Leg("p", GOOD.curves, Layout(tp=2))
    one = compare(Leg("tp1", BASE.curves, Layout()), BUG, perturbed=(split,))
    assert impostors(one)[split] == "p measures no noise: it ran under tp=2, tp1 under one rank"
    assert perturbed_legs(one) == ()


def test_a_repeat_is_held_to_the_perturbed_leg_as_a_control_is() -> None:
    wild = leg("r", loss=noisy(LOSS, 5e-3, 3), grad_norm=noisy(NORM, 5e-3, 4), lr=LR)
    comparison = compare(BASE, BUG, repeats=(wild,), perturbed=(GOOD,), steps=20)
    assert verdict(comparison) is Verdict.FAIL
    assert "r carries a bug too" in outcome(comparison, "control").reason
    assert outcome(comparison, "loss").status is Status.FAIL


def test_a_control_under_the_limit_widens_no_further_than_the_limit() -> None:
    shift = 1 + 1.5e-5 * (STEPS > 0)  # about ten times the perturbed leg's floor
    control = leg("tp4", loss=LOSS * shift, grad_norm=NORM, lr=LR)
    wrong = leg("tp3", loss=LOSS * (1 + 1e-4 * (STEPS > 0)), grad_norm=NORM, lr=LR)
    comparison = compare(BASE, wrong, control, perturbed=(GOOD,), steps=20)
    assert outcome(comparison, "control").status is Status.FAIL
    assert outcome(comparison, "loss").status is Status.FAIL


def test_counting_from_another_step_is_told_in_one_sentence() -> None:
    from tests.drawing import curve

    later = [curve("loss", LOSS, STEPS + 1), curve("grad_norm", NORM, STEPS + 1), curve("lr", LR, STEPS + 1)]
    comparison = compare(BASE, leg("tp3", loss=LOSS, grad_norm=NORM, lr=LR), perturbed=(leg("p", *later),), steps=20)
    assert "counts its steps from another number than tp1 (by +1)" in outcome(comparison, "control").reason


def chaotic(name: str, seed: int, rate: float = 4.0) -> Leg:
    grown = np.minimum(1e-7 * rate**STEPS, 5e-2) * (STEPS > 0) * np.random.default_rng(seed).normal(size=20)
    return leg(name, loss=LOSS * (1 + grown), grad_norm=NORM * (1 + grown), lr=LR)


def test_a_run_of_which_hardly_a_step_is_evidence_does_not_pass() -> None:
    comparison = compare(BASE, chaotic("tp3", 1, 30.0), perturbed=(chaotic("p", 2, 30.0),), steps=20)
    loss = outcome(comparison, "loss")
    assert loss.status is Status.NOT_RUN
    assert "the evidence ends at step" in loss.reason
    assert verdict(comparison) is Verdict.INCONCLUSIVE


def test_a_pass_says_up_to_which_step_it_was_judged() -> None:
    comparison = compare(BASE, chaotic("tp3", 1, 1.9), perturbed=(chaotic("p", 2, 1.9),), steps=20)
    outcomes = run_checks(comparison)
    assert of_outcomes(outcomes) is Verdict.PASS, summary(comparison, outcomes)
    assert "loss judged up to step" in summary(comparison, outcomes)


def test_a_sparse_perturbed_log_is_read_up_to_its_next_step() -> None:
    from tests.drawing import curve

    every = STEPS[::5]
    sparse = leg(
        "p", *(curve(metric, GOOD.curves.curves[metric].values[::5], every) for metric in ("loss", "grad_norm"))
    )
    good = leg("tp3", loss=noisy(LOSS, 1e-6, 1), grad_norm=noisy(NORM, 1e-6, 2), lr=LR)
    assert outcome(compare(BASE, good, perturbed=(sparse,)), "loss").status is Status.PASS
