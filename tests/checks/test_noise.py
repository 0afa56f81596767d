"""Noise measured by repeat and perturbed legs: what it allows, up to where it tells, and who carries a bug."""

from dataclasses import replace

import numpy as np
import pytest

from parity.checks.comparison import Comparison, Leg
from parity.checks.noise import convicted, horizon, noise_floor, sane_legs
from parity.checks.outcome import Outcome, Status, Verdict
from parity.checks.profiles import PROFILES, with_bounds
from parity.checks.run import run_checks
from parity.checks.verdict import of_outcomes
from tests.drawing import LOSS, NORM, compare, leg, noisy

BASE = leg("tp1", loss=LOSS, grad_norm=NORM)
STEPS = np.arange(20)


def other(name: str, loss: float, norm: float, seed: int = 1) -> Leg:
    """A leg with a relative jitter of such sizes."""
    return leg(name, loss=noisy(LOSS, loss, seed), grad_norm=noisy(NORM, norm, seed + 100))


def growing(name: str, rate: float, seed: int = 1) -> Leg:
    """A leg that parts from the baseline by a factor of `rate` a step, from 1e-8 on, as a chaotic run does."""
    grown = 1 + 1e-8 * rate**STEPS * np.where(STEPS > 0, 1, 0) * (1 + 0.1 * np.sin(seed + STEPS))
    return leg(name, loss=LOSS * grown, grad_norm=NORM * grown)


def outcome(comparison: Comparison, check: str) -> Outcome:
    return next(one for one in run_checks(comparison) if one.check == check)


def verdict(comparison: Comparison) -> Verdict:
    return of_outcomes(run_checks(comparison))


PERTURBED = other("tp1.perturbed", 1e-6, 1e-6, 7)


def test_k_times_what_one_ulp_does_is_allowed_whatever_a_profile_guesses() -> None:
    # A gap of 1e-4 in the loss is within fp32-gpu's guess of 1e-3, and a hundred times the noise of this model.
    loose = PROFILES["fp32-gpu"]
    shifted = leg("tp3", loss=LOSS * (1 + 1e-4 * (STEPS > 0)), grad_norm=NORM)
    assert verdict(compare(BASE, shifted, profile=loose, steps=20)) is Verdict.PASS
    assert verdict(compare(BASE, shifted, profile=loose, steps=20, perturbed=(PERTURBED,))) is Verdict.FAIL
    quiet = compare(BASE, other("tp3", 2e-6, 2e-6), profile=loose, steps=20, perturbed=(PERTURBED,))
    assert verdict(quiet) is Verdict.PASS
    assert 0 < outcome(quiet, "loss").gaps[0].times_floor < 8  # type: ignore[operator]


def test_a_model_noisier_than_its_profile_supposes_passes_once_one_ulp_shows_it() -> None:
    # 1e-4 in the loss is five times beyond fp32-cpu; the baseline moved by one ulp is as far out.
    candidate, moved = other("tp3", 1e-4, 1e-4), other("tp1.perturbed", 1e-4, 1e-4, 7)
    assert verdict(compare(BASE, candidate, steps=20)) is not Verdict.PASS
    assert verdict(compare(BASE, candidate, steps=20, perturbed=(moved,))) is Verdict.PASS


def test_explicit_bounds_stand_whatever_was_measured() -> None:
    profile = with_bounds(PROFILES["fp32-cpu"], "loss", rtol=1e-5)
    comparison = compare(
        BASE, other("tp3", 1e-4, 1e-6), profile=profile, perturbed=(other("p", 1e-4, 1e-4, 7),), steps=20
    )
    assert outcome(comparison, "loss").status is Status.FAIL


def test_steps_are_judged_up_to_the_evidence_horizon_and_the_rest_is_shown() -> None:
    # 2^t · 1e-8: eight times that is beyond a thousandth from step 14 on; the floor looks ahead by four to six.
    comparison = compare(BASE, growing("tp3", 2.0, 5), perturbed=(growing("tp1.perturbed", 2.0),), steps=20)
    end = horizon(comparison, "loss")
    assert 7 <= end <= 10
    loss = outcome(comparison, "loss")
    assert loss.status is Status.PASS
    assert f"judged up to step {int(end)}, the evidence horizon" in loss.reason
    assert loss.gaps[0].worst_step <= end  # type: ignore[operator]
    assert verdict(comparison) is Verdict.PASS


def test_a_bug_before_the_horizon_fails_though_noise_would_hide_it_later() -> None:
    values = LOSS * (1 + np.where(STEPS > 0, 1e-4, 0.0))
    comparison = compare(
        BASE, leg("tp3", loss=values, grad_norm=NORM), perturbed=(growing("tp1.perturbed", 2.0),), steps=20
    )
    assert outcome(comparison, "loss").status is Status.FAIL


def test_a_collapse_after_the_horizon_is_not_passed_over() -> None:
    candidate = LOSS.copy()
    candidate[17:] *= 3.0
    comparison = compare(
        BASE, leg("tp3", loss=candidate, grad_norm=NORM), perturbed=(growing("tp1.perturbed", 1.9),), steps=20
    )
    assert horizon(comparison, "loss") < 17
    loss = outcome(comparison, "loss")
    assert loss.status is Status.NOT_RUN
    assert "after the evidence horizon" in loss.reason


def test_a_leg_of_other_data_is_no_perturbed_leg() -> None:
    wrong = leg("tp1.perturbed", loss=LOSS * 1.01, grad_norm=NORM * 1.01)
    comparison = compare(BASE, other("tp3", 1e-7, 1e-7), perturbed=(wrong,), steps=20)
    control = outcome(comparison, "control")
    assert control.status is Status.NOT_RUN
    assert "measures no noise" in control.reason
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    # Nor does it let a wrong forward through.
    shifted = compare(BASE, leg("tp3", loss=LOSS * 1.01, grad_norm=NORM), perturbed=(wrong,), steps=20)
    assert outcome(shifted, "forward").status is Status.FAIL


@pytest.mark.parametrize("times", [20.0, 300.0])
def test_a_control_that_carries_the_candidate_s_bug_fails_as_a_control_and_hides_nothing(times: float) -> None:
    def buggy(name: str, seed: int) -> Leg:
        shift = 1 + times * 3e-6 * (STEPS > 0)
        return leg(name, loss=noisy(LOSS, 1e-7, seed) * shift, grad_norm=noisy(NORM, 1e-7, seed))

    alone = compare(BASE, buggy("tp3", 1), buggy("tp4", 2), steps=20)
    assert verdict(alone) is not Verdict.FAIL  # nothing tells the control's bug from noise
    comparison = compare(BASE, buggy("tp3", 1), buggy("tp4", 2), perturbed=(PERTURBED,), steps=20)
    assert [one.leg.name for one in convicted(comparison)] == ["tp4"]
    assert [one.name for one in sane_legs(comparison)] == ["tp1.perturbed"]
    control = outcome(comparison, "control")
    assert control.status is Status.FAIL
    assert "the control tp4 carries a bug too: its loss is" in control.reason
    assert outcome(comparison, "loss").status is Status.FAIL


def test_a_control_as_noisy_as_rounding_is_a_control() -> None:
    comparison = compare(
        BASE, other("tp3", 2e-6, 2e-6), other("tp4", 3e-6, 3e-6, 9), perturbed=(PERTURBED,), steps=20
    )
    assert convicted(comparison) == ()
    assert verdict(comparison) is Verdict.PASS


def test_a_repeat_says_whether_the_trainer_is_deterministic() -> None:
    same = compare(BASE, other("tp3", 1e-7, 1e-7), repeats=(leg("tp1.repeat", loss=LOSS, grad_norm=NORM),), steps=20)
    assert "tp1.repeat is equal to the last digit: the trainer is deterministic" in outcome(same, "control").reason
    parted = LOSS.copy()
    parted[7:] += 1e-9
    loose = compare(BASE, other("tp3", 1e-7, 1e-7), repeats=(leg("r", loss=parted, grad_norm=NORM),), steps=20)
    assert "r parts from the baseline at step 7: the trainer is not deterministic" in outcome(loose, "control").reason


def test_the_floor_is_the_largest_of_all_legs_and_begins_three_steps_and_a_quarter_earlier() -> None:
    early, late = LOSS.copy(), LOSS.copy()
    early[8] *= 1 + 1e-5
    late[16] *= 1 + 4e-5
    comparison = compare(
        BASE,
        other("tp3", 1e-7, 1e-7),
        perturbed=(leg("p1", loss=early, grad_norm=NORM), leg("p2", loss=late, grad_norm=NORM)),
        steps=20,
    )
    gap = comparison.gap("loss")
    assert gap is not None
    floor = noise_floor(comparison, gap)
    assert floor is not None
    relative = floor / LOSS
    least = 2 * 2.0**-23
    assert relative[:4] == pytest.approx(least)
    assert relative[4:11] == pytest.approx(1e-5, rel=0.02)
    assert relative[11:] == pytest.approx(4e-5, rel=0.02)


def test_a_candidate_no_further_from_float64_than_the_baseline_passes_and_one_that_is_fails() -> None:
    truth = other("tp1.reference", 1e-7, 1e-7, 11)
    as_far = compare(BASE, other("tp3", 2e-7, 2e-7, 12), reference=truth, steps=20)
    assert outcome(as_far, "reference").status is Status.PASS
    assert "times as far out as the baseline" in outcome(as_far, "reference").reason
    further = compare(BASE, other("tp3", 1e-5, 1e-5, 13), reference=truth, steps=20)
    assert outcome(further, "reference").status is Status.FAIL
    assert outcome(compare(BASE, BASE), "reference").status is Status.NOT_RUN


def test_a_profile_coarser_than_what_was_computed_in_stands_whatever_moving_weights_shows() -> None:
    # Gradients summed in bf16 by legs that compute in fp32: no weight moved by one ulp shows that noise.
    summed = leg("ep2", loss=noisy(LOSS, 3e-4, 3), grad_norm=noisy(NORM, 5e-3, 4))
    coarse = replace(PROFILES["bf16"], only_widens=True)
    comparison = compare(BASE, summed, profile=coarse, perturbed=(PERTURBED,), steps=20)
    assert verdict(comparison) is Verdict.PASS
    assert verdict(replace(comparison, profile=PROFILES["fp32-cpu"])) is Verdict.FAIL
