"""Real logs of real frameworks: correct layouts pass, real bugs fail, and each for the right reason.

What each log is stands in `tests/data/logs/README.md`.
"""

from pathlib import Path

import pytest

from parity.judge_logs import LogSource, judge_logs
from parity.result import ComparisonResult

LOGS = Path(__file__).parent.parent / "data" / "logs"

NEMO = "nemo_automodel/{}/training.jsonl"
HF = "hf_transformers/{}.jsonl"
DEEPSPEED = {"grad_norm": "grad_norm_own"}


def judged(
    baseline: str, candidate: str, control: str | None = None, keys: dict[str, str] | None = None, **more: str
) -> ComparisonResult:
    paths = {"baseline": baseline, "candidate": candidate, **({"control": control} if control else {}), **more}
    sources = [(role, LogSource(LOGS / path, keys=keys)) for role, path in paths.items()]
    return judge_logs(sources, profile="fp32-cpu").comparisons[0]


def statuses(comparison: ComparisonResult) -> dict[str, str]:
    return {outcome.check: outcome.status for outcome in comparison.outcomes}


CORRECT = [
    *((NEMO.format("qf_base"), NEMO.format(f"qf_{layout}")) for layout in ("dp2", "tp2", "pp2")),
    *((NEMO.format("v4f_base"), NEMO.format(f"v4f_{layout}")) for layout in ("ep2", "pp2")),
    *((HF.format(f"tp_{model}_1"), HF.format(f"tp_{model}_2")) for model in ("llama", "qwen3", "qwen3_moe")),
    (HF.format("tp_h16_1"), HF.format("tp_h16_4")),
    ("megatron_core/m1.jsonl", "megatron_core/tp2.jsonl"),
    ("pytorch/base.jsonl", "pytorch/ddp2.jsonl"),
]


@pytest.mark.parametrize(("baseline", "candidate"), CORRECT)
def test_a_correct_layout_passes(baseline: str, candidate: str) -> None:
    comparison = judged(baseline, candidate)
    assert comparison.verdict == "pass", comparison.summary
    assert statuses(comparison)["grad_norm"] == "pass"


def test_deepspeed_uneven_autotp_passes_with_the_even_split_as_control() -> None:
    comparison = judged("deepspeed/tp1_z0.jsonl", "deepspeed/tp3_z0.jsonl", "deepspeed/tp4_z0.jsonl", keys=DEEPSPEED)
    assert comparison.verdict == "pass", comparison.summary
    assert statuses(comparison)["control"] == "pass"
    loss = next(one for one in comparison.outcomes if one.check == "loss").gaps[0]
    # The figures that a script of a few lines finds in the same files.
    assert (loss.first, loss.worst_step) == (0.0, 26)
    assert loss.worst == pytest.approx(3.80e-7, rel=0.01)


def test_deepspeed_as_it_is_logs_no_gradient_norm_and_the_verdict_says_loss_only() -> None:
    comparison = judged("deepspeed/tp1_z0.jsonl", "deepspeed/tp3_z0.jsonl")
    assert comparison.verdict == "pass"
    assert comparison.summary.endswith("; loss only.")


def test_a_hash_routed_layer_on_the_second_stage_fails_at_the_first_step() -> None:
    comparison = judged(NEMO.format("v4f4_base"), NEMO.format("v4f4_pp2"))
    assert comparison.verdict == "fail"
    assert statuses(comparison)["forward"] == "fail"
    assert "already differs by 4.37e-05 at step 0, before any update" in comparison.summary


def test_a_routing_bias_updated_from_one_rank_s_load_fails_after_a_clean_first_step() -> None:
    comparison = judged(NEMO.format("v4f_ep1"), NEMO.format("v4f_ep2"))
    assert comparison.verdict == "fail"
    assert statuses(comparison)["forward"] == "pass"
    assert statuses(comparison)["loss"] == "fail"


def test_the_same_bug_is_hundreds_of_times_beyond_a_correct_control() -> None:
    comparison = judged(NEMO.format("v4f_base"), NEMO.format("v4f_ep1"), NEMO.format("v4f_pp2"))
    control = next(one for one in comparison.outcomes if one.check == "control")
    assert control.status == "fail"
    assert max(gap.times_floor or 0 for gap in control.gaps) > 100


def test_a_norm_of_the_local_shard_fails_though_the_loss_agrees_to_1e_7() -> None:
    comparison = judged("pytorch/base.jsonl", "pytorch/fsdp1_localclip_BUG.jsonl")
    assert comparison.verdict == "fail"
    assert statuses(comparison)["loss"] == "pass"
    assert statuses(comparison)["grad_norm"] == "fail"


def test_gradients_that_are_never_synchronised_fail_after_a_clean_forward() -> None:
    comparison = judged("pytorch/base.jsonl", "pytorch/nosync_BUG.jsonl")
    assert comparison.verdict == "fail"
    assert statuses(comparison)["forward"] == "pass"


def test_a_loss_logged_at_half_its_value_fails_with_equal_gradient_norms() -> None:
    comparison = judged("megatron_core/halfloss/m1.jsonl", "megatron_core/halfloss/dp2.jsonl")
    assert comparison.verdict == "fail"
    assert statuses(comparison)["forward"] == "fail"
    assert statuses(comparison)["grad_norm"] == "pass"


def test_a_run_compared_with_itself_is_exactly_0_apart() -> None:
    comparison = judged("pytorch/base.jsonl", "pytorch/base.jsonl")
    loss = next(one for one in comparison.outcomes if one.check == "loss").gaps[0]
    assert (comparison.verdict, loss.worst, loss.mean) == ("pass", 0.0, 0.0)
