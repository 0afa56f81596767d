"""Megatron Core's recipes with Megatron Core itself: every axis passes by what its ranks hold, and a loss that the
schedule divided is called a reporting bug.

Gaps are held to ten times what was measured, for they differ with the processor.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.environments import Framework, Ran

pytestmark = pytest.mark.slow

Get = Callable[[str], Framework]

RECORDED = ("initial_state", "same_data", "layout", "norm_consistent", "gradients", "update", "replicas")


def peaks(ran: Ran, candidate: str) -> tuple[float, float]:
    """The largest gaps of the loss and of the gradient norm at any step."""
    found = [ran.outcome(metric, candidate).gaps[0].peak for metric in ("loss", "grad_norm")]
    assert all(one is not None for one in found)
    return float(found[0] or 0), float(found[1] or 0)


def test_every_layout_passes_by_what_its_ranks_hold(framework: Get, tmp_path: Path) -> None:
    ran = framework("megatron").run("megatron/layouts", out=tmp_path / "out")
    assert ran.exit_code == 0, ran.text
    for leg in ("tp2", "tp4", "pp2", "dp2"):
        assert {ran.statuses(leg)[check] for check in RECORDED} == {"pass"}
        loss, norm = peaks(ran, leg)
        assert loss < 2e-6  # at most 1.7e-7 was measured
        assert norm < 3e-6  # at most 2.3e-7
    assert "tp=2 cuts 25 parameters (embedding.word_embeddings.weight as 128/128)" in ran.outcome("layout").reason
    assert "layers 0–1 | 2–3" in ran.outcome("layout", "pp2").reason


def test_experts_that_two_ranks_share_pass(framework: Get, tmp_path: Path) -> None:
    ran = framework("megatron").run("megatron/experts", out=tmp_path / "out")
    assert ran.exit_code == 0, ran.text
    assert {one.baseline for one in ran.result.comparisons} == {"dp2", "one"}
    for comparison in ran.result.comparisons:
        statuses = {one.check: one.status for one in comparison.outcomes}
        assert {statuses[check] for check in RECORDED} == {"pass"}
    assert "ep=2 spreads the experts of 4 modules (0–3 | 4–7)" in ran.outcome("layout").reason


def test_a_loss_that_the_schedule_divided_is_a_reporting_bug(framework: Get, tmp_path: Path) -> None:
    ran = framework("megatron").run("megatron/loss-alias", out=tmp_path / "out")
    assert ran.exit_code == 1, ran.text
    statuses = ran.statuses()
    assert {statuses[check] for check in ("gradients", "update", "grad_norm", "initial_state")} == {"pass"}
    assert statuses["loss"] == "fail"
    (hint,) = ran.comparison().hints
    assert hint.startswith("looks like a reporting bug")
    assert "1/micro-batches" in hint
