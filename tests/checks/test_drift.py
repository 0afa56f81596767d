"""What rounding to printed digits does to the signed mean."""

import numpy as np
import pytest

from parity.checks.outcome import Status, Verdict
from parity.checks.profiles import PROFILES, with_bounds
from parity.curves import Resolution
from tests.checks.test_bounds import outcome, verdict
from tests.drawing import compare, curve, leg

PRINTED = Resolution(decimals=4, significant=5)
# A run on a plateau: every step is rounded the same way.
PLATEAU = np.full(20, 5.12345) + np.where(np.arange(20) % 2, 4e-6, -4e-6)


@pytest.mark.parametrize("rtol", [None, 1e-6])
def test_a_plateau_that_rounds_to_the_other_digit_at_every_step_is_no_fail_and_no_pass(rtol: float | None) -> None:
    a = leg("a", curve("loss", np.round(PLATEAU - 1e-5, 4), resolution=PRINTED))
    b = leg("b", curve("loss", np.round(PLATEAU + 1e-5, 4), resolution=PRINTED))
    profile = (
        PROFILES["fp32-cpu"]
        if rtol is None
        else with_bounds(PROFILES["fp32-cpu"], "loss", rtol=rtol, first_rtol=rtol)
    )
    comparison = compare(a, b, profile=profile)
    gap = comparison.gap("loss")
    assert gap is not None
    assert gap.absolute == pytest.approx(1e-4)
    assert outcome(comparison, "drift").status is Status.NOT_RUN
    assert verdict(comparison) is Verdict.INCONCLUSIVE
    assert "prints loss in steps of 0.0001 and hides any gap below that" in outcome(comparison, "loss").reason


def test_a_mean_of_several_printed_digits_is_a_drift() -> None:
    a = leg("a", curve("loss", np.round(PLATEAU, 4), resolution=PRINTED))
    b = leg("b", curve("loss", np.round(PLATEAU * 1.001, 4), resolution=PRINTED))
    assert outcome(compare(a, b), "drift").status is Status.FAIL


def test_the_bound_that_would_do_is_one_for_every_step() -> None:
    falling = np.round(np.linspace(6, 0.5, 20), 4)
    a = leg("a", curve("loss", falling, resolution=PRINTED))
    b = leg("b", curve("loss", falling, resolution=PRINTED))
    reason = outcome(compare(a, b), "loss").reason
    least = float(reason.split("at least ")[1].split(" ")[0])
    profile = with_bounds(PROFILES["fp32-cpu"], "loss", rtol=1.01 * least, first_rtol=1.01 * least)
    assert verdict(compare(a, b, profile=profile)) is Verdict.PASS
