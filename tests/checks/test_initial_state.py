"""Other weights, other optimizer settings, replicas that start apart."""

from typing import Any

import numpy as np
import pytest

from parity.checks import initial_state
from parity.checks.outcome import Status, Verdict
from tests.checks.recorded import Q0, Q1, assert_fails, comparison, dp2, tp3
from tests.records.drawing import ADAMW, MODEL, split


def test_one_bit_in_one_weight_is_another_start() -> None:
    weights = {**MODEL, Q1: MODEL[Q1].copy()}
    weights[Q1].view(np.uint64)[7, 3] ^= np.uint64(1)
    candidate = tp3()
    candidate.weights = weights
    outcome = initial_state.check(comparison(candidate))
    assert_fails(outcome, f"other initial values of 1 parameter ({Q1})")
    assert outcome.verdict is Verdict.INCONCLUSIVE


def test_replicas_that_start_apart_are_found_within_a_leg() -> None:
    candidate = dp2()
    candidate.own[(1, "weights", "norm.weight")] = MODEL["norm.weight"] + 1e-9
    assert_fails(
        initial_state.check(comparison(candidate, "dp2")), "dp2: ranks start with different copies of 1 parameter"
    )


def test_a_shard_that_no_rank_holds_is_a_gap() -> None:
    candidate = tp3()
    candidate.boxes[Q0] = split(MODEL[Q0], 0, (6, 6, 3))
    assert_fails(
        initial_state.check(comparison(candidate)),
        f"tp3: the ranks' parts leave gaps or overlap in 1 parameter ({Q0})",
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"optimizer": {**ADAMW, "weight_decay": 0.0}}, "other optimizer setting weight_decay: 0.01 against 0.0"),
        ({"optimizer": {**ADAMW, "class": "SGD"}}, "other optimizer setting class: AdamW against SGD"),
        ({"state_step": 1.0}, "other optimizer setting steps made before: 0.0 against 1.0"),
    ],
)
def test_other_optimizer_settings_are_another_start(change: dict[str, Any], said: str) -> None:
    candidate = tp3()
    for key, value in change.items():
        setattr(candidate, key, value)
    assert_fails(initial_state.check(comparison(candidate)), said)


def test_another_kernel_for_the_same_update_is_no_other_setting() -> None:
    # NeMo Automodel turns `foreach` off under tensor parallelism, as plain tensors and DTensors do not mix in it.
    candidate = tp3()
    candidate.optimizer = {**ADAMW, "foreach": False}
    assert initial_state.check(comparison(candidate)).status is Status.PASS


def test_a_parameter_that_only_one_leg_has_is_another_start() -> None:
    candidate = tp3()
    candidate.weights = {name: value for name, value in MODEL.items() if name != "norm.weight"}
    candidate.gradients = candidate.updates = {0: candidate.weights}
    assert_fails(initial_state.check(comparison(candidate)), "only base has 1 parameter (norm.weight)")
