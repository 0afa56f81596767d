"""What is allowed: profiles, a person's bounds, the noise floor, and the precision of a log."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.allowed import choose_profile
from parity.checks.comparison import Comparison
from parity.checks.outcome import Outcome, Status, Verdict
from parity.checks.profiles import PROFILES, with_bounds
from parity.checks.run import run_checks
from parity.checks.verdict import of_outcomes, summary
from parity.curves.curve import Resolution
from parity.suite import Bounds, BoundsByMetric
from tests.drawing import LOSS, NORM, compare, curve, leg, noisy

BASE = leg("tp1", loss=LOSS, grad_norm=NORM)


def outcome(comparison: Comparison, check: str) -> Outcome:
    return next(one for one in run_checks(comparison) if one.check == check)


def verdict(comparison: Comparison) -> Verdict:
    return of_outcomes(run_checks(comparison))


def test_a_gap_at_the_first_step_is_a_wrong_forward_and_named_first() -> None:
    comparison = compare(BASE, leg("tp3", loss=LOSS * (1 + 4.4e-5), grad_norm=NORM), steps=20)
    forward = outcome(comparison, "forward")
    assert forward.status is Status.FAIL
    assert forward.gaps[0].worst == pytest.approx(4.4e-5)
    text = summary(comparison, run_checks(comparison))
    assert text.startswith(
        "tp3 against tp1, forward: the loss already differs by 4.4e-05 at step 0, before any update"
    )


def test_a_single_wrong_step_fails_and_is_the_worst_step() -> None:
    loss = LOSS.copy()
    loss[13] *= 1 + 1e-4
    comparison = compare(BASE, leg("tp3", loss=loss, grad_norm=NORM), steps=20)
    gap = outcome(comparison, "loss").gaps[0]
    assert (gap.worst_step, gap.steps_over, gap.first_over) == (13, 1, 13)
    assert gap.worst == pytest.approx(1e-4)
    assert gap.allowed == pytest.approx(2e-5)
    assert gap.times_allowed == pytest.approx(5.0)
    assert verdict(comparison) is Verdict.FAIL


def test_the_worst_step_is_the_one_furthest_over_what_was_allowed_there_not_the_largest_gap() -> None:
    norm = NORM.copy()
    norm[0] *= 1 + 5e-5
    norm[10] *= 1 + 9e-5
    gap = outcome(compare(BASE, leg("tp3", loss=LOSS, grad_norm=norm), steps=20), "grad_norm").gaps[0]
    assert (gap.worst_step, gap.peak_step) == (0, 10)
    assert gap.times_allowed == pytest.approx(5.0)


def test_gradient_norm_wrong_by_a_constant_fails_though_the_loss_is_equal() -> None:
    comparison = compare(BASE, leg("tp3", loss=LOSS, grad_norm=NORM * 1.41), steps=20)
    assert outcome(comparison, "loss").status is Status.PASS
    assert outcome(comparison, "grad_norm").status is Status.FAIL
    assert verdict(comparison) is Verdict.FAIL


def test_a_profile_gives_way_to_measured_noise_after_the_first_step() -> None:
    noise = 1e-4
    candidate = leg("tp3", loss=noisy(LOSS, noise, 1), grad_norm=noisy(NORM, noise, 2))
    control = leg("tp4", loss=noisy(LOSS, noise, 3), grad_norm=noisy(NORM, noise, 4))
    assert verdict(compare(BASE, candidate, steps=20)) is Verdict.FAIL
    comparison = compare(BASE, candidate, control, steps=20)
    assert verdict(comparison) is Verdict.PASS
    assert "the control tp4 is itself" in outcome(comparison, "loss").warnings[0]


def test_a_control_far_beyond_the_profile_proves_nothing_for_it_may_carry_the_same_bug() -> None:
    later = np.arange(20) > 0
    for factor in (1.001, 1.3):
        wrong = [leg(n, loss=np.where(later, LOSS * factor, LOSS), grad_norm=NORM) for n in ("tp3", "tp4")]
        comparison = compare(BASE, *wrong, steps=20)
        assert verdict(comparison) is Verdict.INCONCLUSIVE
        assert "or both carry the same bug" in outcome(comparison, "loss").reason
        assert verdict(compare(BASE, wrong[0], steps=20)) is Verdict.FAIL


def test_a_control_that_is_dead_or_nan_is_no_control() -> None:
    good = leg("tp3", loss=LOSS, grad_norm=NORM)
    flat = leg("tp4", loss=np.full(20, 6.0), grad_norm=NORM, lr=np.zeros(20))
    partly = leg("tp4", loss=np.where(np.arange(20) > 2, np.nan, LOSS), grad_norm=NORM)
    for control in (flat, partly):
        assert verdict(compare(BASE, good, control, steps=20)) is Verdict.INCONCLUSIVE


def test_a_value_near_zero_does_not_poison_the_noise_floor_of_all_later_steps() -> None:
    loss = LOSS.copy()
    loss[2] = 1e-9
    control, candidate = loss.copy(), loss.copy()
    control[2] += 1e-7
    candidate[10:] *= 1.5
    comparison = compare(leg("a", loss=loss), leg("b", loss=candidate), leg("c", loss=control), steps=20)
    assert outcome(comparison, "control").status is Status.FAIL
    assert verdict(comparison) is Verdict.FAIL


def test_a_gap_that_the_printed_spacing_may_have_made_is_neither_within_nor_beyond() -> None:
    printed = Resolution(decimals=4, significant=5)
    profile = with_bounds(PROFILES["fp32-cpu"], "loss", rtol=2.5e-5, first_rtol=2.5e-5, mean_rtol=1e-3)
    a = leg("a", curve("loss", np.round(LOSS, 4), resolution=printed))
    for gap, status in ((0.0001, Status.PASS), (0.0002, Status.NOT_RUN), (0.0004, Status.FAIL)):
        other = np.round(LOSS, 4)
        other[5] += gap
        b = leg("b", curve("loss", other, resolution=printed))
        assert outcome(compare(a, b, profile=profile), "loss").status is status


def test_a_person_s_mean_bound_alone_neither_grows_nor_gives_way() -> None:
    profile = with_bounds(PROFILES["fp32-cpu"], "loss", mean_rtol=1e-8)
    candidate = leg("tp3", loss=LOSS * (1 + 1e-6 * (np.arange(20) > 0)), grad_norm=NORM)
    control = leg("tp4", loss=noisy(LOSS, 1e-5, 3), grad_norm=NORM)
    assert outcome(compare(BASE, candidate, control, profile=profile), "drift").status is Status.FAIL


def test_bounds_of_a_comparison_and_of_its_suite_are_merged_number_by_number() -> None:
    suite = BoundsByMetric(loss=Bounds(mean_rtol=1e-6, rtol=1e-4))
    merged = choose_profile("fp32-cpu", [], bounds=(suite, BoundsByMetric(loss=Bounds(rtol=1e-3))))[0].bounds["loss"]
    assert (merged.rtol, merged.mean_rtol) == (1e-3, 1e-6)


def test_a_bound_does_not_grow_beyond_the_steps_that_anybody_measured() -> None:
    steps = np.arange(5000)
    loss = 6 - steps / 2000
    wrong = np.where(steps >= 3000, loss * 1.5, loss)
    assert verdict(compare(leg("a", loss=loss), leg("b", loss=wrong), steps=5000)) is Verdict.FAIL


def test_a_log_that_begins_late_is_not_allowed_more_than_any_run_that_was_measured() -> None:
    steps = np.arange(100_000, 100_020)
    legs = [
        leg(n, curve("loss", LOSS * f, steps), curve("grad_norm", NORM * f, steps)) for n, f in (("a", 1), ("b", 2))
    ]
    assert verdict(compare(*legs)) is Verdict.FAIL


def test_beyond_the_steps_that_were_measured_a_small_gap_is_inconclusive_and_a_large_one_fails() -> None:
    steps = np.arange(100)
    loss = 6 - steps / 50
    for gap, expected in ((5e-4, Verdict.INCONCLUSIVE), (1e-2, Verdict.FAIL)):
        jitter = np.where(steps > 60, gap * (-1.0) ** steps, 0.0)
        legs = [leg("a", loss=loss), leg("b", loss=loss * (1 + jitter))]
        assert verdict(compare(*legs, steps=100)) is expected


def test_losses_logged_in_bf16_are_not_held_to_less_than_its_spacing_by_a_profile() -> None:
    coarse = np.array([10.875, 10.75, 10.6875, 10.5, 10.4375, 10.25])
    other = coarse.copy()
    other[0] = 10.9375
    legs = [leg(n, loss=v, grad_norm=NORM[:6]) for n, v in (("a", coarse), ("b", other))]
    assert verdict(compare(*legs, profile=PROFILES["bf16"])) is Verdict.PASS
    other[0] = 11.0
    assert outcome(compare(*legs, profile=PROFILES["bf16"]), "forward").status is not Status.PASS


def test_a_loss_of_exactly_zero_is_measured_against_the_run_s_size() -> None:
    loss = LOSS.copy()
    loss[7] = 0.0
    other = loss.copy()
    other[7] = 1e-12
    comparison = compare(leg("a", loss=loss), leg("b", loss=other), steps=20)
    assert verdict(comparison) is Verdict.PASS
    assert outcome(comparison, "loss").gaps[0].worst == pytest.approx(1e-12 / (1e-3 * float(np.median(loss))))


def test_a_recorder_s_file_without_an_end_is_of_a_run_that_broke_off() -> None:
    whole = leg("a", loss=LOSS, grad_norm=NORM)
    broken = replace(whole, curves=replace(whole.curves, finished=False))
    comparison = compare(whole, broken)
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    assert "never wrote its end" in run_checks(comparison)[0].reason


def test_a_metric_that_a_person_named_and_nobody_judges_is_said_not_to_be_judged() -> None:
    legs = [leg(name, loss=LOSS, grad_norm=NORM, aux_loss=LOSS * f) for name, f in (("a", 1), ("b", 2))]
    comparison = compare(*legs, steps=20)
    assert summary(comparison, run_checks(comparison)).endswith("; not judged: aux_loss.")


def test_a_person_s_bound_never_gives_way_to_measured_noise() -> None:
    profile = with_bounds(PROFILES["fp32-cpu"], "loss", rtol=1e-4)
    candidate = leg("tp3", loss=noisy(LOSS, 1e-3, 1), grad_norm=NORM)
    control = leg("tp4", loss=noisy(LOSS, 1e-3, 3), grad_norm=NORM)
    assert outcome(compare(BASE, candidate, control, profile=profile), "loss").status is Status.FAIL


def test_measured_noise_never_excuses_the_first_step() -> None:
    wrong = leg("tp3", loss=LOSS * (1 + 1e-4), grad_norm=NORM)
    same_bug = leg("tp4", loss=LOSS * (1 + 1e-4), grad_norm=NORM)
    comparison = compare(BASE, wrong, same_bug, steps=20)
    assert outcome(comparison, "forward").status is Status.FAIL
    assert outcome(comparison, "loss").status is Status.FAIL


def test_a_control_quieter_than_other_layouts_accuses_nobody_and_a_perturbed_leg_as_quiet_does() -> None:
    # A control that sums in the baseline's order: correct layouts of real frameworks were up to 41 times further out.
    candidate = leg("tp3", loss=noisy(LOSS, 5e-6, 1), grad_norm=NORM)
    quiet = leg("tp4", loss=noisy(LOSS, 1e-7, 3), grad_norm=NORM)
    comparison = compare(BASE, candidate, quiet, steps=20)
    assert outcome(comparison, "loss").status is Status.PASS
    assert outcome(comparison, "control").status is Status.PASS
    assert outcome(comparison, "control").gaps[0].times_floor > 8  # type: ignore[operator]
    assert outcome(compare(BASE, candidate, perturbed=(quiet,), steps=20), "loss").status is Status.FAIL


def test_a_candidate_that_agrees_with_its_control_and_not_with_the_baseline_is_not_passed() -> None:
    shift = np.where(np.arange(20) > 0, 8e-5, 0.0)
    bug = leg("tp3", loss=noisy(LOSS, 1e-7, 1) * (1 + shift), grad_norm=NORM)
    same = leg("tp4", loss=noisy(LOSS, 1e-7, 3) * (1 + shift), grad_norm=NORM)
    loss = outcome(compare(BASE, bug, same, steps=20), "loss")
    assert loss.status is Status.NOT_RUN
    assert "tp3 and tp4 agree with each other" in loss.reason
    apart = leg("tp4", loss=noisy(LOSS, 1e-7, 3) * (1 - shift), grad_norm=NORM)
    assert outcome(compare(BASE, bug, apart, steps=20), "loss").status is Status.PASS


def test_a_control_that_agrees_by_luck_at_one_step_does_not_claim_that_there_is_no_noise() -> None:
    control_loss = noisy(LOSS, 1e-5, 3)
    control_loss[12] = LOSS[12]
    candidate = leg("tp3", loss=noisy(LOSS, 1e-5, 1), grad_norm=NORM)
    comparison = compare(BASE, candidate, leg("tp4", loss=control_loss, grad_norm=NORM), steps=20)
    assert outcome(comparison, "control").status is Status.PASS


def test_a_spike_that_the_control_shows_at_the_same_step_belongs_to_the_trajectory() -> None:
    candidate_loss, control_loss = noisy(LOSS, 1e-6, 1), noisy(LOSS, 1e-6, 3)
    candidate_loss[14] = LOSS[14] * (1 + 2.5e-3)
    control_loss[14] = LOSS[14] * (1 - 2.7e-3)
    comparison = compare(
        BASE,
        leg("tp3", loss=candidate_loss, grad_norm=NORM),
        leg("tp4", loss=control_loss, grad_norm=NORM),
        profile=PROFILES["fp32-gpu"],
    )
    assert outcome(comparison, "control").status is Status.PASS
    assert (
        "largest gap 0.0025 at step 14, where the control tp4 is 0.0027 off too: that spike belongs to the"
        " trajectory, not to the split" in outcome(comparison, "loss").reason
    )


def test_a_spike_that_only_the_candidate_shows_is_its_own() -> None:
    loss = noisy(LOSS, 1e-6, 1)
    loss[14] = LOSS[14] * (1 + 2.5e-3)
    comparison = compare(
        BASE, leg("tp3", loss=loss, grad_norm=NORM), leg("tp4", loss=noisy(LOSS, 1e-6, 3), grad_norm=NORM)
    )
    assert verdict(comparison) is Verdict.FAIL
    assert "that spike is the candidate's own" in outcome(comparison, "loss").reason


def published(mean: float, worst: float, seed: int) -> np.ndarray:
    """A curve over 500 steps with the published mean and worst gap, the worst at step 467, the first exact."""
    generator = np.random.default_rng(seed)
    size = np.abs(generator.normal(size=500))
    size[[0, 467]] = 0.0
    size *= (mean * 500 - worst) / size.sum()
    size[467] = worst
    values: np.ndarray = (14.1 - 0.005 * np.arange(500)) * (1 + size * generator.choice([-1.0, 1.0], 500))
    return values


@pytest.mark.parametrize("profile", ["fp32-cpu", "fp32-gpu"])
def test_the_published_uneven_autotp_run_passes_and_its_spike_is_the_trajectory_s(profile: str) -> None:
    # DeepSpeedExamples#1008, 500 steps over NCCL: uneven 7.69e-5 and 2.52e-3, even control 7.58e-5 and 2.72e-3.
    comparison = compare(
        leg("tp1", loss=14.1 - 0.005 * np.arange(500)),
        leg("tp3", loss=published(7.69e-5, 2.52e-3, 1)),
        leg("tp4", loss=published(7.58e-5, 2.72e-3, 2)),
        profile=PROFILES[profile],
        steps=500,
    )
    assert verdict(comparison) is Verdict.PASS
    for check in ("loss", "control"):
        one = outcome(comparison, check)
        assert one.gaps[0].peak_step == 467
        assert one.gaps[0].peak == pytest.approx(2.52e-3)
        assert one.gaps[0].mean == pytest.approx(7.69e-5)
        assert "that spike belongs to the trajectory" in one.reason


def test_rounding_may_grow_with_training_beyond_the_steps_that_a_profile_was_measured_over() -> None:
    bound = PROFILES["fp32-cpu"].bounds["loss"]
    factor = bound.factor(np.array([1, 50, 500]))
    assert factor.tolist() == pytest.approx([1.0, 1.0, 10**2.7])


def test_a_drift_inside_every_step_s_bound_fails_when_it_leans_one_way() -> None:
    profile = with_bounds(PROFILES["fp32-cpu"], "loss", mean_rtol=5e-6)
    leaning = LOSS * (1 + np.where(np.arange(20) > 0, 1.5e-5, 0.0))
    comparison = compare(BASE, leg("tp3", loss=leaning, grad_norm=NORM), steps=20, profile=profile)
    assert outcome(comparison, "loss").status is Status.PASS
    drift = outcome(comparison, "drift")
    assert drift.status is Status.FAIL
    assert "loss leans one way, signed mean +1.5e-05, beyond the 5e-06 allowed" in drift.reason
    assert verdict(comparison) is Verdict.FAIL


def test_a_gap_that_only_a_profile_forbids_is_in_doubt_until_it_is_four_times_beyond() -> None:
    for times, expected in ((0.9, Verdict.PASS), (3.0, Verdict.INCONCLUSIVE), (5.0, Verdict.FAIL)):
        loss = LOSS.copy()
        loss[13] *= 1 + times * 2e-5
        comparison = compare(BASE, leg("tp3", loss=loss, grad_norm=NORM), steps=20)
        assert verdict(comparison) is expected
    with_control = compare(
        BASE, leg("tp3", loss=loss, grad_norm=NORM), leg("tp4", loss=LOSS, grad_norm=NORM), steps=20
    )
    assert verdict(with_control) is Verdict.FAIL


def test_a_jitter_of_the_same_size_does_not_drift() -> None:
    jitter = LOSS * (1 + np.where(np.arange(20) > 0, 1.5e-5, 0.0) * (-1.0) ** np.arange(20))
    assert outcome(compare(BASE, leg("tp3", loss=jitter, grad_norm=NORM)), "drift").status is Status.PASS


def test_a_bound_finer_than_the_log_prints_is_not_run_and_says_what_to_do() -> None:
    printed = Resolution(decimals=4, significant=5)
    legs = [leg(name, curve("loss", np.round(LOSS, 4), resolution=printed)) for name in ("a", "b")]
    comparison = compare(*legs, steps=20)
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    forward = outcome(comparison, "forward")
    assert forward.status is Status.NOT_RUN
    assert "prints loss in steps of 0.0001" in forward.reason
    coarse = with_bounds(PROFILES["fp32-cpu"], "loss", rtol=1e-3, first_rtol=1e-4)
    assert verdict(compare(*legs, steps=20, profile=coarse)) is Verdict.PASS


def test_a_gap_far_beyond_a_coarse_log_s_precision_still_fails() -> None:
    printed = Resolution(decimals=4, significant=5)
    a = leg("a", curve("loss", np.round(LOSS, 4), resolution=printed))
    b = leg("b", curve("loss", np.round(LOSS * 1.01, 4), resolution=printed))
    assert verdict(compare(a, b, steps=20)) is Verdict.FAIL


def test_a_log_that_begins_after_the_first_updates_does_not_judge_the_forward() -> None:
    steps = np.arange(10, 30)
    legs = [leg(name, curve("loss", values, steps)) for name, values in (("a", LOSS), ("b", LOSS * (1 + 2e-6)))]
    comparison = compare(*legs)
    assert outcome(comparison, "forward").status is Status.NOT_RUN
    assert outcome(comparison, "loss").status is Status.PASS


@given(scale=st.floats(1e-3, 1e3), gap=st.floats(-1e-2, 1e-2))
def test_verdicts_do_not_depend_on_the_scale_of_the_loss(scale: float, gap: float) -> None:
    verdicts = []
    for size in (1.0, scale):
        wrong = LOSS * size
        wrong[5] *= 1 + gap
        verdicts.append(verdict(compare(leg("a", loss=LOSS * size), leg("b", loss=wrong), steps=20)))
    if abs(abs(gap) - 2e-5) > 1e-9:
        assert verdicts[0] is verdicts[1]


@given(
    values=st.lists(st.floats(0.1, 10) | st.just(np.nan), min_size=2, max_size=8),
    noise=st.lists(st.sampled_from([0.0, 1e-8, 1e-5, 1e-2, np.nan]), min_size=8, max_size=8),
    cut=st.integers(0, 8),
    with_control=st.booleans(),
)
def test_pass_means_every_step_there_finite_and_near(
    values: list[float], noise: list[float], cut: int, with_control: bool
) -> None:
    base = np.array(values)
    other = (base * (1 + np.array(noise[: len(values)])))[: cut or None]
    control = leg("c", loss=base * (1 + 1e-7 * np.arange(len(values)))) if with_control else None
    comparison = compare(leg("a", loss=base), leg("b", loss=other), control, steps=len(values))
    if verdict(comparison) is Verdict.PASS:
        assert other.size == base.size
        assert np.isfinite(base).all()
        assert np.isfinite(other).all()
        allowed = np.where(np.arange(base.size) == 0, 1e-6, 2e-5 if not with_control else 32 * 2e-5)
        assert (np.abs(other - base) <= allowed * np.abs(base) * (1 + 1e-9)).all()


@given(values=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=12))
def test_no_values_make_a_check_raise(values: list[float]) -> None:
    for control in (None, leg("c", loss=values[::-1])):
        comparison = compare(leg("a", loss=values), leg("b", loss=sorted(values)), control, steps=len(values))
        assert summary(comparison, run_checks(comparison))
