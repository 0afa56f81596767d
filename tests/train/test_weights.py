"""Weights depend on name and seed, and on nothing else."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from parity.layout import Layout
from parity.train import weights
from parity.train.loop import Trainer
from parity.train.mesh import Mesh
from parity.train.options import TrainOptions
from parity.train.shards import Shard, span

OPTIONS = TrainOptions(layers=1, hidden=24, bias=True)


def trainer(options: TrainOptions = OPTIONS, seed: int = 0, rank: int = 0, size: int = 1) -> Trainer:
    return Trainer(options, seed=seed, device=torch.device("cpu"), mesh=Mesh(Layout(tp=size), rank))


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("fault", ["", "heads-cut-through"])
@pytest.mark.parametrize("tie", [False, True])
def test_shards_are_pieces_of_the_same_weights_and_cover_them_once(size: int, fault: str, tie: bool) -> None:
    options = replace(OPTIONS, fault=fault, tie_embeddings=tie)
    whole = dict(trainer(options).model.named_parameters())
    seen = {name: torch.zeros(p.shape, dtype=torch.int64) for name, p in whole.items()}
    for rank in range(size):
        part = trainer(options, rank=rank, size=size)
        assert list(part.shards) == list(whole)
        for name, parameter in part.model.named_parameters():
            shard = part.shards[name]
            assert torch.equal(parameter, shard.part(whole[name])), name
            shard.part(seen[name]).add_(1)
    for name, count in seen.items():
        assert count.unique().tolist() in ([1], [size]), name


def test_three_ranks_share_16_and_8_heads_as_6_6_4_and_3_3_2() -> None:
    rows = []
    for rank in range(3):
        attention = trainer(rank=rank, size=3).model.layers[0].attention
        rows.append((attention.q.weight.shape[0] // 16, attention.k.weight.shape[0] // 16))
    assert rows == [(6, 3), (6, 3), (4, 2)]


def test_a_cut_by_rows_falls_inside_a_head_at_three_ranks_only() -> None:
    def rows(rank: int, size: int) -> tuple[int, int]:
        attention = (
            trainer(replace(OPTIONS, fault="heads-cut-through"), rank=rank, size=size).model.layers[0].attention
        )
        return attention.q.weight.shape[0], attention.v.weight.shape[0]

    assert [rows(rank, 3) for rank in range(3)] == [(86, 43), (85, 43), (85, 42)]
    assert [rows(rank, 4) for rank in range(4)] == [(64, 32)] * 4


def test_another_seed_changes_every_parameter() -> None:
    first, second = (dict(trainer(seed=seed).model.named_parameters()) for seed in (0, 1))
    for name, parameter in first.items():
        assert not torch.equal(parameter, second[name]), name


def test_layers_differ_though_their_shapes_are_equal() -> None:
    first, second = trainer(replace(OPTIONS, layers=2)).model.layers
    assert not torch.equal(first.mlp.up.weight, second.mlp.up.weight)
    assert not torch.equal(first.mlp.up.weight, first.mlp.gate.weight)


def test_fp64_starts_from_the_fp32_draws_and_bf16_keeps_them_in_fp32() -> None:
    single, double, half = (
        dict(trainer(replace(OPTIONS, dtype=dtype)).model.named_parameters()) for dtype in ("fp32", "fp64", "bf16")
    )
    for name, parameter in single.items():
        assert double[name].dtype == torch.float64
        assert torch.equal(double[name], parameter.double())
        assert half[name].dtype == torch.float32
        assert torch.equal(half[name], parameter)


def test_biases_and_norms_are_neither_zero_nor_constant() -> None:
    for name, parameter in trainer().model.named_parameters():
        assert parameter.std() > 0.01, name
        assert parameter.count_nonzero() == parameter.numel(), name


def test_tied_embeddings_are_one_parameter_also_when_cut() -> None:
    for size in (1, 3):
        model = trainer(replace(OPTIONS, tie_embeddings=True), size=size).model
        assert model.head.weight is model.embed.weight
        assert "head.weight" not in dict(model.named_parameters())


def test_a_draw_is_what_it_was() -> None:
    # A run is only comparable with one of last month if weights never change silently.
    drawn = weights.draw("layers.0.mlp.up.weight", (2, 3), seed=0)
    expected = torch.tensor([[-0.6086, 0.0167, -0.2700], [0.8103, 0.0038, -0.0390]])
    torch.testing.assert_close(drawn, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("total", "parts"), [(8, 3), (509, 4), (3, 3), (5, 8), (172, 7)])
def test_spans_are_near_even_and_leave_no_gap(total: int, parts: int) -> None:
    spans = [span(total, parts, index) for index in range(parts)]
    assert spans[0][0] == 0
    assert spans[-1][1] == total
    assert all(left[1] == right[0] for left, right in pairwise(spans))
    sizes = [stop - start for start, stop in spans]
    assert sorted(sizes, reverse=True) == sizes
    assert sizes[0] - sizes[-1] <= 1


def test_a_shard_knows_whether_it_is_whole() -> None:
    whole = Shard.whole((4, 3))
    assert whole.is_whole
    assert not whole.cut("tp", 0, 0, 2).is_whole
    assert not whole.cut("tp", 1, 1, 3).is_whole
    assert whole.cut("tp", 0, 0, 4).is_whole
