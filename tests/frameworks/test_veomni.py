"""VeOmni's recipes with VeOmni itself: expert parallelism is the same computation, and two mistakes that no log tells
are named.

Gaps are held to ten times what was measured, for they differ with the processor.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.environments import Framework, Ran

pytestmark = pytest.mark.slow

Get = Callable[[str], Framework]

RECORDED = ("initial_state", "same_data", "layout", "norm_consistent", "gradients", "update", "replicas")


def check(ran: Ran, candidate: str) -> None:
    """A candidate that passed by its records, about as close as was measured."""
    assert {ran.statuses(candidate)[name] for name in RECORDED} == {"pass"}
    for metric, limit in (("loss", 2e-6), ("grad_norm", 6e-6)):  # at most 1.7e-7 and 5.4e-7 were measured
        (gap,) = ran.outcome(metric, candidate).gaps
        assert gap.peak is not None
        assert gap.peak < limit


def test_experts_that_are_dealt_out_compute_the_same(framework: Get, tmp_path: Path) -> None:
    ran = framework("veomni").run("veomni/ep-alignment", out=tmp_path / "out")
    assert ran.exit_code == 0, ran.text
    for leg in ("ep2", "ep4"):
        check(ran, leg)
    assert "ep=2 spreads the experts of 4 modules (0–3 | 4–7)" in ran.outcome("layout", "ep2").reason
    assert "(0–1 | 2–3 | 4–5 | 6–7)" in ran.outcome("layout", "ep4").reason


def test_shards_compute_what_replicas_do(framework: Get, tmp_path: Path) -> None:
    ran = framework("veomni").run("veomni/fsdp", out=tmp_path / "out")
    assert ran.exit_code == 0, ran.text
    for leg in ("fsdp2", "fsdp4"):
        check(ran, leg)


def test_gradients_that_torch_divides_twice_are_named_by_their_factor(framework: Get, tmp_path: Path) -> None:
    ran = framework("veomni").run("veomni/ep-divided-twice", out=tmp_path / "out")
    assert ran.exit_code == 1, ran.text
    statuses = ran.statuses()
    assert statuses["gradients"] == "fail"
    assert {statuses[name] for name in ("initial_state", "same_data", "layout", "forward", "norm_consistent")} == {
        "pass"
    }
    (hint,) = ran.comparison().hints
    assert hint.startswith("The experts' gradients are 0.5000 times the baseline's in 8 of 8 parameters: 1/ep")


def test_samples_that_see_each_other_are_found_at_the_first_loss(framework: Get, tmp_path: Path) -> None:
    ran = framework("veomni").run("veomni/packed-samples", out=tmp_path / "out")
    assert ran.exit_code == 1, ran.text
    statuses = ran.statuses()
    assert {statuses[name] for name in ("initial_state", "same_data", "layout")} == {"pass"}
    assert statuses["forward"] == "fail"
