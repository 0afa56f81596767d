"""What kind of parameter a name stands for."""

import pytest

from parity.checks.groups import group_of


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("model.layers.3.mlp.experts.gate_up_proj", "experts"),
        ("layers.0.moe.shared_experts.down.weight", "shared experts"),
        ("model.layers.0.mlp.gate.weight", "router"),
        ("model.layers.0.mlp.gate.e_score_correction_bias", "router"),
        ("layers.2.moe.experts.gate", "experts"),
        ("model.layers.3.mlp.gate", "router"),
        ("layers.0.attention.q_norm.weight", "norms"),
        ("model.layers.0.input_layernorm.weight", "norms"),
        ("model.layers.0.self_attn.q_proj.weight", "attention"),
        ("layers.0.attention.wq.weight", "attention"),
        ("model.layers.0.mlp.gate_proj.weight", "mlp"),
        ("layers.0.feed_forward.w1.weight", "mlp"),
        ("lm_head.weight", "embeddings"),
        ("tok_embeddings.weight", "embeddings"),
        ("layers.0.attention_streams.coefficients.weight", "connections"),
        ("visual.patch.conv", "other"),
    ],
)
def test_groups_of_names_that_frameworks_give(name: str, group: str) -> None:
    assert group_of(name) == group


def test_a_gate_beside_an_up_is_half_of_a_gated_mlp_and_no_router() -> None:
    names = ["layers.0.mlp.gate.weight", "layers.0.mlp.up.weight", "layers.1.mlp.gate.weight"]
    assert [group_of(name, names) for name in names] == ["mlp", "mlp", "router"]


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("layers.0.mlp.gate.bias", "mlp"),
        ("layers.0.moe.shared.gate.weight", "shared experts"),
        ("layers.0.moe.shared.up.weight", "shared experts"),
        ("layers.0.moe.gate.bias", "router"),
    ],
)
def test_a_bias_beside_an_up_and_shared_experts_are_of_the_group_of_their_weights(name: str, group: str) -> None:
    names = ["layers.0.mlp.up.weight", "layers.0.moe.shared.up.weight", name]
    assert group_of(name, names) == group
