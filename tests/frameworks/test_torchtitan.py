"""torchtitan's recipe with torchtitan itself, recorded without a change to it.

Gaps are held to ten times what was measured, for they differ with the processor.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.environments import Framework

pytestmark = pytest.mark.slow

Get = Callable[[str], Framework]

RECORDED = ("initial_state", "same_data", "layout", "gradients", "update", "replicas")


def test_every_layout_passes_from_one_seed_checkpoint(framework: Get, tmp_path: Path) -> None:
    ran = framework("torchtitan").run("torchtitan/layouts", out=tmp_path / "out")
    assert ran.exit_code == 0, ran.text
    for leg in ("fsdp2", "tp2", "pp2"):
        assert {ran.statuses(leg)[check] for check in RECORDED} == {"pass"}
        for metric, limit in (("loss", 2e-6), ("grad_norm", 8e-6)):  # at most 1.5e-7 and 7.1e-7 were measured
            (gap,) = ran.outcome(metric, leg).gaps
            assert gap.peak is not None
            assert gap.peak < limit
        assert "20 steps of 8 samples in 4 micro-batches, equal" in ran.outcome("same_data", leg).reason
    assert "fsdp=2 cuts 31 parameters (tok_embeddings.weight as 256/256)" in ran.outcome("layout", "fsdp2").reason
    assert "tp=2 cuts 22 parameters" in ran.outcome("layout", "tp2").reason
    assert "pp=2" in ran.outcome("layout", "pp2").reason
    assert not list((ran.out / "legs").glob("*/titan/checkpoint")), "checkpoints are large, and were only to be read"
