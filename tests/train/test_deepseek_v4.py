"""The model on one rank, and under every axis that it can be split by."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from parity.layout import Layout
from parity.train.data import IGNORED, batches
from parity.train.deepseek_v4 import DeepseekV4, GroupedLinear
from parity.train.loop import Trainer
from parity.train.options import TrainOptions, problems
from tests.train.ranks import curve, gaps, records, run_ranks, whole_gradients

OPTIONS = TrainOptions(model="deepseek_v4", layers=6, heads=8, kv_heads=1)
SMALL = replace(OPTIONS, layers=4, hash_layers=2, hidden=48, seq_len=11, micro_batch=12)
EXACT = replace(SMALL, dtype="fp64")

LAYOUTS = [
    Layout(pp=2),
    Layout(pp=2, cp=2),
    Layout(dp=2),
    Layout(fsdp=2),
    Layout(cp=3),
    Layout(dp=2, ep=2),
    Layout(dp=3, ep=3),  # 3, 3 and 2 experts
    Layout(dp=4, ep=2),  # experts held twice
    Layout(fsdp=2, ep=2),
    Layout(dp=2, fsdp=2, ep=2),
    Layout(cp=2, ep=2),
    Layout(pp=2, dp=2, ep=2),
]


def trainer(options: TrainOptions) -> Trainer:
    return Trainer(options, seed=0, device=torch.device("cpu"))


def model(options: TrainOptions = EXACT) -> DeepseekV4:
    return trainer(options).model


def test_it_has_half_a_million_parameters_and_learns() -> None:
    each = trainer(OPTIONS)
    assert 4e5 < each.size < 1e6
    losses = []
    for step in range(20):
        losses.append(each.backward(step))
        each.update(each.grad_norm())
    assert losses[-1] < 0.7 * losses[0]


def test_a_later_token_changes_no_earlier_loss() -> None:
    net = model()
    batch = batches(EXACT, 0, 0)[0]
    labels = batch.labels.clone()
    labels[:, 5:] = IGNORED
    changed = batch.tokens.clone()
    changed[:, 5:] = 0
    torch.testing.assert_close(net(batch.tokens, labels), net(changed, labels), rtol=1e-14, atol=0)


def test_attention_depends_on_distances_alone() -> None:
    # Also through the values, which carry positions too: the output is turned back.
    net = model()
    x = torch.randn(1, 7, SMALL.hidden, dtype=torch.float64)
    attention = net.layers[0].attention
    at_zero = attention(x, *net.rotary(7, x))
    net.rotary.first = 100
    later = net.rotary(7, x)
    torch.testing.assert_close(attention(x, *later), at_zero)
    cos, sin = later
    assert not torch.allclose(attention(x, cos.roll(1, 0), sin), at_zero)


def test_groups_are_mapped_apart() -> None:
    grouped = GroupedLinear(2, 3, 4)
    torch.nn.init.normal_(grouped.weight)
    x = torch.randn(1, 5, 6)
    parts = [x[..., 3 * group : 3 * group + 3] @ grouped.weight[group].T for group in range(2)]
    torch.testing.assert_close(grouped(x), torch.cat(parts, -1))


@pytest.mark.parametrize("part", ["attention.o_b", "moe.router", "moe.experts", "moe.shared.down", "moe_streams"])
def test_every_part_matters_to_the_first_loss(part: str) -> None:
    net = model()
    batch = batches(EXACT, 0, 0)[0]
    before = net(batch.tokens, batch.labels)
    for layer in net.layers:
        for parameter in layer.get_submodule(part).parameters():
            torch.nn.init.zeros_(parameter)
    assert abs(net(batch.tokens, batch.labels) / before - 1) > 1e-3


def test_the_first_layers_are_routed_by_token_and_the_others_by_score() -> None:
    by_token = [layer.moe.router.table is not None for layer in model(OPTIONS).layers]
    assert by_token == [True] * 3 + [False] * 3


@pytest.mark.parametrize(("dtype", "bound"), [("fp32", 1e-6), ("bf16", 2e-2)])
def test_a_narrower_dtype_computes_the_same_less_precisely(dtype: str, bound: float) -> None:
    batch = batches(EXACT, 0, 0)[0]
    exact = model()(batch.tokens, batch.labels)
    narrow = model(replace(EXACT, dtype=dtype))(batch.tokens, batch.labels)
    assert 1e-10 < abs(narrow / exact - 1) < bound


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_gradient_is_that_of_one_rank(layout: Layout) -> None:
    assert problems(EXACT, layout) == []
    assert max(gaps(EXACT, layout).values()) < 1e-12
    # Scales and biases of hyper-connections get sums over all tokens that nearly cancel: 6e-6 was seen.
    found = gaps(SMALL, layout)
    assert max(found.values()) < 2e-5
    assert max(gap for name, gap in found.items() if ".coefficients." not in name) < 2e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "layout", [Layout(pp=2), Layout(cp=3), Layout(dp=2, ep=2), Layout(fsdp=2, ep=2), Layout(dp=4, ep=2)], ids=str
)
def test_curves_are_those_of_one_rank(layout: Layout) -> None:
    loss, grad_norm = np.abs(np.array(curve(SMALL, layout, 10)) / curve(SMALL, Layout(), 10) - 1).T
    assert loss.max() < 1e-6
    assert grad_norm.max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(fsdp=2, ep=2), Layout(pp=2, cp=2)], ids=str)
def test_curves_stay_together_in_fp64(layout: Layout) -> None:
    np.testing.assert_allclose(curve(EXACT, layout, 10), curve(EXACT, Layout(), 10), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(dp=2), Layout(dp=4, ep=2), Layout(cp=2), Layout(fsdp=2, ep=2)], ids=str)
def test_selection_biases_move_by_the_load_of_all_ranks(layout: Layout) -> None:
    (expected,) = run_ranks(1, _biases, SMALL, Layout())
    assert all(len(set(bias)) > 2 for bias in expected)
    for biases in run_ranks(layout.world_size, _biases, SMALL, layout):
        assert biases == expected


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(dp=2), Layout(fsdp=2, ep=2)], ids=str)
def test_the_auxiliary_loss_is_that_of_as_many_micro_batches_on_one_rank(layout: Layout) -> None:
    options = replace(EXACT, aux_loss=0.05)
    found = whole_gradients(options, layout)
    alike = whole_gradients(replace(options, micro_batch=6, accumulate=4), Layout())
    fewer = whole_gradients(options, Layout())
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, alike[name], rtol=1e-9, atol=1e-14)
    router = "layers.3.moe.router.weight"
    assert np.abs(found[router] - fewer[router]).max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(cp=2), Layout(pp=2)], ids=str)
def test_the_auxiliary_loss_is_of_whole_sequences_and_has_a_curve_of_its_own(layout: Layout) -> None:
    options = replace(EXACT, aux_loss=0.05)
    assert max(gaps(options, layout).values()) < 1e-12
    ranks = [[line for line in lines if line["kind"] == "step"] for lines in records(options, layout, 2)]
    (alone,) = ([line for line in lines if line["kind"] == "step"] for lines in records(options, Layout(), 2))
    (without,) = ([line for line in lines if line["kind"] == "step"] for lines in records(EXACT, Layout(), 2))
    assert alone[0]["loss"] == without[0]["loss"]
    assert "aux_loss" not in without[0]
    for lines in ranks:
        for line, other in zip(lines, alone, strict=True):
            assert line["aux_loss"] == pytest.approx(other["aux_loss"], rel=1e-12)
            assert 0.05 * 2 < line["aux_loss"] < 0.05 * 2 * 1.5  # 1 where the load is even, in each of 2 layers


@pytest.mark.slow
def test_a_hash_routed_layer_on_a_stage_without_token_ids_chooses_by_score() -> None:
    # Of 4 layers over 2 stages, the third is routed by token id and lies on the second stage.
    options = replace(EXACT, hash_layers=3)
    assert max(gaps(options, Layout(pp=2)).values()) == 0
    found = gaps(options, Layout(pp=2), fault="hash-ids-dropped")
    assert found["layers.2.moe.router.weight"] > 0.1
    assert found["layers.2.moe.experts.gate"] > 0.1


@pytest.mark.slow
def test_no_stage_misses_token_ids_where_all_hash_routed_layers_are_on_the_first() -> None:
    assert max(gaps(EXACT, Layout(pp=2), fault="hash-ids-dropped").values()) == 0


def _biases(options: TrainOptions, layout: Layout) -> list[list[float]]:
    from parity.train.process import join

    with join(layout, "cpu", 1) as process:
        each = Trainer(options, seed=0, device=process.device, mesh=process.mesh)
        for step in range(3):
            each.backward(step)
            each.update(each.grad_norm())
        return [layer.moe.router.e_score_correction_bias.tolist() for layer in list(each.model.layers.children())[2:]]
