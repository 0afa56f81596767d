"""Whether only what was logged is wrong."""

from collections.abc import Callable

import numpy as np
import pytest

from parity.checks.hints import reporting_bug
from parity.checks.run import run_checks
from tests.checks.faults import (
    m1_row_bias,
    m2_log_tp,
    m4_norms,
    m14_shards,
    m16_adam,
    m18_own,
    m18_placeholder,
    m18_summed,
)
from tests.checks.pairs import Pair, gradients, pair, shaken
from tests.drawing import LOSS, NORM


@pytest.mark.parametrize(
    ("layout", "fault", "said"),
    [
        ("dp2", m18_summed, "only the logged loss differs (2.000 times the baseline's: dp = 2"),
        ("pp2", m18_placeholder, "-1 at all 20 steps: the placeholder"),
        ("dp2", m18_own, "mean is the baseline's"),
        ("tp2", m2_log_tp, "0.693 more than the baseline's"),
    ],
)
def test_a_metric_that_alone_differs_is_a_reporting_bug(
    layout: str, fault: Callable[[Pair], None], said: str
) -> None:
    drawn = pair(layout)
    fault(drawn)
    comparison = drawn.compared()
    text = reporting_bug(comparison, run_checks(comparison))
    assert text.startswith("looks like a reporting bug: gradients and updates of all 12 parameters agree")
    assert said in text


def test_a_norm_that_is_only_logged_wrong_is_a_reporting_bug() -> None:
    drawn = pair("fsdp4")
    drawn.curves["grad_norm"] = NORM / 2
    comparison = drawn.compared()
    assert "only the logged gradient norm differs (0.5000 times the baseline's" in reporting_bug(
        comparison, run_checks(comparison)
    )


@pytest.mark.parametrize("fault", [m1_row_bias, m4_norms, m16_adam, m14_shards])
def test_what_trains_otherwise_is_no_reporting_bug(fault: Callable[[Pair], None]) -> None:
    drawn = pair("tp2")
    fault(drawn)
    drawn.curves["loss"] = drawn.curves["loss"] * 1.5
    comparison = drawn.compared()
    assert reporting_bug(comparison, run_checks(comparison)) == ""


def test_a_loss_that_parts_after_the_sketched_steps_is_not_called_a_reporting_bug() -> None:
    drawn = pair("tp2")
    drawn.curves["loss"] = np.where(np.arange(20) < 10, LOSS, LOSS * 2)
    comparison = drawn.compared()
    assert reporting_bug(comparison, run_checks(comparison)) == ""


def test_a_loss_off_by_no_more_than_the_gradients_is_not_called_a_reporting_bug() -> None:
    drawn = pair("tp2")
    gradients(drawn, shaken(5e-5))
    drawn.curves["loss"] = LOSS * (1 + 1e-4)
    comparison = drawn.compared()
    assert reporting_bug(comparison, run_checks(comparison)) == ""
