"""What the optimizer changed of each parameter."""

import numpy as np

from parity.checks import gradients, update
from parity.checks.outcome import Status
from tests.checks.recorded import assert_fails, comparison, tp3
from tests.records.drawing import MODEL


def test_an_update_that_is_a_little_off_everywhere_is_found_by_its_median() -> None:
    candidate = tp3()
    generator = np.random.default_rng(1)
    candidate.updates = {0: {n: v * (1 + 2e-3 * generator.normal(size=v.shape)) for n, v in MODEL.items()}}
    assert_fails(update.check(comparison(candidate)), "the median parameter is 0.00")


def test_one_parameter_whose_update_is_mostly_rounding_passes() -> None:
    candidate = tp3()
    generator = np.random.default_rng(1)
    noisy_one = MODEL["norm.weight"] * (1 + 5e-2 * generator.normal(size=8))
    candidate.updates = {0: {**MODEL, "norm.weight": noisy_one}}
    assert update.check(comparison(candidate)).status is Status.PASS


def test_a_first_update_too_small_by_a_third_is_found_though_gradients_agree() -> None:
    candidate = tp3()
    candidate.updates = {0: {name: value / 1.34 for name, value in MODEL.items()}}
    pair = comparison(candidate)
    assert gradients.check(pair).status is Status.PASS
    assert_fails(update.check(pair), "ratio 0.746269")


def test_a_parameter_that_is_not_updated_at_all_is_found_however_noisy_its_updates_are() -> None:
    candidate, moved = tp3(), tp3()
    candidate.updates = {0: {**MODEL, "norm.weight": 0 * MODEL["norm.weight"]}}
    # One ulp moves this parameter's update by a fifth, eight times which is more than all of it.
    moved.updates = {0: {**MODEL, "norm.weight": 1.2 * MODEL["norm.weight"]}}
    perturbed = comparison(moved).candidate
    assert_fails(update.check(comparison(candidate, perturbed=(perturbed,))), "updates of norm.weight are exactly 0")
