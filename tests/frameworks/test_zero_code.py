"""The recorder in unmodified DeepSpeed runs: stages 0 and 1 over data parallel ranks, and a fault in their process.

NeMo Automodel's runs are recorded in the same way; theirs is in `test_automodel.py`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.environments import Framework, Ran

pytestmark = pytest.mark.slow

Get = Callable[[str], Framework]

SCRIPT = Path(__file__).parent / "scripts" / "deepspeed_experts.py"

SUITE = """
name: deepspeed-unmodified
steps: 4
device: cpu
env: {{OMP_NUM_THREADS: 1, DS_ACCELERATOR: cpu, HF_HUB_OFFLINE: 1, STAGE: 1}}
trainer:
  command: >-
    torchrun --standalone --nproc-per-node {{nproc}} -m parity.record --
    {script} --stage $STAGE --steps {{steps}} --log {{out}}/log.jsonl
source: {{file: "{{out}}/log.jsonl"}}
legs:
  one: {{env: {{STAGE: 0}}}}
  stage0: {{layout: {{dp: 2}}, env: {{STAGE: 0}}}}
  stage1: {{layout: {{dp: 2}}}}
  stage2: {{layout: {{dp: 2}}, env: {{STAGE: 2}}}}
  doubled: {{layout: {{dp: 2}}, env: {{DOUBLED: 1, PYTHONPATH: "{planted}"}}}}
floor: perturbed
compare:
  - {{baseline: one, candidate: stage0}}
  - {{baseline: one, candidate: stage1}}
  - {{baseline: one, candidate: stage2}}
  - {{baseline: one, candidate: doubled}}
"""

PLANTED = """
import os

if os.environ.get("DOUBLED") and os.environ.get("RANK"):
    from parity.record.importing import when_imported

    def plant():
        import deepspeed
        initialize = deepspeed.initialize

        def planted(*args, model, **kwargs):
            experts = model.model.layers[0].mlp.experts.down_proj

            def doubled(gradient):
                gradient = gradient.clone()
                gradient[2] *= 2
                return gradient

            experts.register_hook(doubled)
            return initialize(*args, model=model, **kwargs)

        deepspeed.initialize = planted

    when_imported("deepspeed", plant)
"""
"""Run by the interpreter as it starts: doubles the gradient of the first layer's third expert."""

RECORDED = ("initial_state", "same_data", "layout", "forward", "gradients", "update", "replicas", "loss")


@pytest.fixture(scope="module")
def ran(framework: Get, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("deepspeed")
    (folder / "sitecustomize.py").write_text(PLANTED)
    (folder / "parity.yml").write_text(SUITE.format(script=SCRIPT, planted=folder))
    return framework("deepspeed").run(folder / "parity.yml", out=folder / "out")


@pytest.mark.parametrize("candidate", ["stage0", "stage1", "stage2"])
def test_a_stage_passes_by_what_its_ranks_hold(ran: Ran, candidate: str) -> None:
    assert ran.comparison(candidate).verdict == "pass", ran.comparison(candidate).summary
    assert {check: ran.statuses(candidate)[check] for check in RECORDED} == dict.fromkeys(RECORDED, "pass")


def test_an_experts_doubled_gradient_is_named(ran: Ran) -> None:
    assert ran.comparison("doubled").verdict == "fail"
    gradients = ran.outcome("gradients", "doubled")
    assert gradients.status == "fail"
    assert "worst model.layers.0.mlp.experts.down_proj at step 0" in gradients.reason
    assert ran.statuses("doubled")["forward"] == "pass"
