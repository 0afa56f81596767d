"""Each parameter's gradient."""

import numpy as np
import pytest

from parity.checks import gradients
from parity.checks.outcome import Status
from tests.checks.recorded import EXPERTS, ROUTER, assert_fails, comparison, ep2, plain_run, scaled, tp3
from tests.records.drawing import MODEL


def test_doubled_expert_gradients_are_named_with_ratio_and_share() -> None:
    candidate = ep2()
    candidate.gradients = {0: scaled(EXPERTS, 2.0)}
    outcome = gradients.check(comparison(candidate, "ep2"))
    assert_fails(outcome, "(0.0001 allowed), ratio 2, cosine 1")
    assert f"worst {EXPERTS} at step 0" in outcome.reason
    assert outcome.parameters[0].distance == pytest.approx(1.0, rel=0.2)
    worst = outcome.parameters[0]
    assert (worst.name, worst.group) == (EXPERTS, "experts")
    assert worst.share == pytest.approx(1.0)
    assert dict(outcome.shares)["experts"] == pytest.approx(1.0)


def test_one_wrong_norm_weight_is_found_though_it_is_nothing_in_the_whole_model_s_norm() -> None:
    candidate = tp3()
    candidate.gradients = {0: scaled("norm.weight", 1.001)}
    outcome = gradients.check(comparison(candidate))
    assert_fails(outcome, "1 of 6 parameters beyond what is allowed at step 0; worst norm.weight")
    assert outcome.parameters[0].distance == pytest.approx(1e-3, rel=0.5)


def test_a_gradient_that_is_nothing_but_rounding_is_measured_against_the_model_s() -> None:
    tiny = {**MODEL, "norm.weight": np.full(8, 1e-12)}
    other = {**MODEL, "norm.weight": -np.full(8, 1e-12)}
    candidate, baseline = tp3(), plain_run()
    candidate.gradients, baseline.gradients = {0: other}, {0: tiny}
    assert gradients.check(comparison(candidate, baseline=baseline)).status is Status.PASS


def test_a_parameter_without_a_gradient_in_one_leg_fails() -> None:
    candidate = tp3()
    for rank in range(3):
        candidate.own[(rank, "gradients", ROUTER)] = np.full_like(MODEL[ROUTER], np.nan)
    assert_fails(gradients.check(comparison(candidate)), f"only base has gradients of {ROUTER} at step 0")


def test_the_control_s_noise_widens_later_steps_and_the_first_only_so_far() -> None:
    def noisy(size: float, seed: int) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(seed)
        return {name: value * (1 + size * generator.normal(size=value.shape)) for name, value in MODEL.items()}

    candidate, control = tp3(), tp3()
    candidate.gradients = {0: noisy(5e-4, 1), 1: noisy(5e-2, 2)}
    control.gradients = {0: noisy(5e-4, 3), 1: noisy(5e-2, 4)}
    assert gradients.check(comparison(candidate)).status is Status.FAIL
    assert gradients.check(comparison(candidate, control=control)).status is Status.PASS
    candidate.gradients = control.gradients = {0: scaled(EXPERTS, 1.1), 1: MODEL}
    assert gradients.check(comparison(candidate, control=control)).status is Status.FAIL


def test_the_parameter_with_the_largest_share_of_the_error_is_named_though_others_are_further_out() -> None:
    generator = np.random.default_rng(3)
    many = {f"layers.{i}.norm.weight": generator.normal(size=4) for i in range(12)}
    weights = {"embed.weight": generator.normal(size=(500, 8)), **many}
    candidate, baseline = tp3(), plain_run()
    candidate.boxes = {}
    candidate.weights = baseline.weights = weights
    baseline.gradients = baseline.updates = {0: weights}
    candidate.gradients = {0: {n: v * (1.1 if n == "embed.weight" else 1.5) for n, v in weights.items()}}
    candidate.updates = {0: weights}
    named = gradients.check(comparison(candidate, baseline=baseline)).parameters
    assert "embed.weight" in {one.name for one in named}
    assert named[0].name != "embed.weight"
