"""The recipes of transformers' Trainer: one script that knows nothing of parity.

Gaps are held to ten times what was measured, for they differ with the processor.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.environments import RECIPES, Framework, Ran

pytestmark = pytest.mark.slow

Get = Callable[[str], Framework]

RECORDED = ("initial_state", "same_data", "layout", "norm_consistent", "gradients", "update", "replicas")


def peak(ran: Ran, metric: str, candidate: str) -> float:
    """The largest gap at any step."""
    (gap,) = ran.outcome(metric, candidate).gaps
    assert gap.peak is not None
    return gap.peak


def test_the_script_is_an_ordinary_one() -> None:
    imports = [line for line in (RECIPES / "trainer" / "train.py").read_text().splitlines() if "import" in line]
    assert not [line for line in imports if "parity" in line]


@pytest.mark.parametrize("recipe", ["ddp", "gradient-accumulation"])
def test_data_parallelism_weighs_samples_alike(recipe: str, framework: Get, tmp_path: Path) -> None:
    ran = framework("trainer").run(f"trainer/{recipe}", out=tmp_path / "out")
    assert ran.exit_code == 0, ran.text
    assert {ran.statuses()[check] for check in RECORDED} == {"pass"}
    assert "dp=2 by the ranks' recorded places" in ran.outcome("layout").reason
    assert peak(ran, "loss", "ddp2") < 2e-6  # 8.6e-8 and 1.7e-7 were measured
    assert peak(ran, "grad_norm", "ddp2") < 9e-6


def test_zero_2_passes_by_shares_of_gradients(framework: Get, tmp_path: Path) -> None:
    ran = framework("trainer").run("trainer/zero2", out=tmp_path / "out")
    assert ran.exit_code == 0, ran.text
    assert {ran.statuses()[check] for check in RECORDED} == {"pass"}
    assert peak(ran, "loss", "zero2") < 2e-6
    assert peak(ran, "grad_norm", "zero2") < 7e-6


def test_fsdp_that_the_trainer_ignores_is_told_by_the_layout_alone(framework: Get, tmp_path: Path) -> None:
    ran = framework("trainer").run("trainer/fsdp-on-cpu", out=tmp_path / "out")
    assert ran.exit_code == 1, ran.text
    assert ran.comparison().deciding == ["layout"]
    assert "no parameter is cut into 2 parts by fsdp: parameter sharding was not applied" in ran.comparison().summary
    assert peak(ran, "loss", "fsdp2") == 0, "it is DistributedDataParallel to the last bit"
