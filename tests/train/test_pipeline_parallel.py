"""Stages on real ranks compute what one rank does, under either schedule, wherever the layers are cut."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parity.layout import Layout
from parity.train import loop
from parity.train.options import TrainOptions
from parity.train.pipeline_parallel import stage_layers
from parity.train.qwen3 import Qwen3
from tests.train.ranks import curve, gaps, gradients, relative, run_ranks

SMALL = TrainOptions(
    layers=5, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=44, vocab=61, seq_len=16, accumulate=3, bias=True
)
TIED = replace(SMALL, tie_embeddings=True)


@pytest.mark.parametrize(
    ("layers", "first", "expected"),
    [(5, 0, [[0, 1], [2, 3], [4]]), (6, 0, [[0, 1], [2, 3], [4, 5]]), (5, 1, [[0], [1, 2], [3, 4]])],
)
def test_every_layer_is_on_one_stage(layers: int, first: int, expected: list[list[int]]) -> None:
    options = replace(SMALL, layers=layers, first_stage_layers=first)
    assert [list(stage_layers(options, 3, stage)) for stage in range(3)] == expected


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("pp", [2, 3])
@pytest.mark.parametrize("options", [SMALL, TIED], ids=["untied", "tied"])
def test_every_gradient_is_that_of_one_rank(options: TrainOptions, pp: int, schedule: str) -> None:
    options = replace(options, schedule=schedule)
    assert max(gaps(replace(options, dtype="fp64"), Layout(pp=pp)).values()) < 1e-12
    assert max(gaps(options, Layout(pp=pp)).values()) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_curves_are_those_of_one_rank(schedule: str) -> None:
    options = replace(TIED, accumulate=4, schedule=schedule)
    np.testing.assert_allclose(curve(options, Layout(pp=3), 10), curve(options, Layout(), 10), rtol=1e-6)


@pytest.mark.slow
def test_bf16_is_what_it_is_on_one_rank() -> None:
    options = replace(SMALL, dtype="bf16")
    np.testing.assert_allclose(curve(options, Layout(pp=2), 3), curve(options, Layout(), 3), rtol=1e-6)


@pytest.mark.slow
def test_a_stage_holds_its_layers_under_their_names_in_the_whole_model() -> None:
    options = replace(TIED, first_stage_layers=1)
    names = [{name.rsplit(".", 1)[0] for name in rank} for rank in gradients(options, Layout(pp=2))]
    layers = [sorted({name.split(".")[1] for name in rank if name.startswith("layers.")}) for rank in names]
    assert layers == [["0"], ["1", "2", "3", "4"]]
    others = [{name for name in rank if not name.startswith("layers.")} for rank in names]
    assert others == [{"embed"}, {"embed", "norm"}]


@pytest.mark.slow
@pytest.mark.parametrize("layout", [Layout(pp=2), Layout(pp=3), Layout(pp=2, tp=2)], ids=str)
def test_copies_of_tied_embeddings_stay_bitwise_equal(layout: Layout) -> None:
    ranks = run_ranks(layout.world_size, _embeddings, layout)
    for tp in range(layout.tp):
        assert np.array_equal(ranks[tp], ranks[tp - layout.tp])
    assert all(held is None for held in ranks[layout.tp : -layout.tp])


@pytest.mark.slow
@pytest.mark.parametrize("pp", [2, 3])
def test_streams_of_four_dimensions_and_token_ids_reach_every_stage(pp: int) -> None:
    options = replace(SMALL, dtype="fp64")
    (expected,) = run_ranks(1, _with_streams, options, Layout())
    found: dict[str, Any] = {}
    for rank in run_ranks(pp, _with_streams, options, Layout(pp=pp)):
        found |= rank
    assert found.keys() == expected.keys()
    assert any(name.endswith("by_token.weight") for name in found)
    assert max(relative(expected[name], found[name]) for name in expected) < 1e-12


class _Layer(nn.Module):
    """A layer of the small model that reads the mean of four streams and a table by token id."""

    def __init__(self, inner: nn.Module, options: TrainOptions) -> None:
        super().__init__()
        self.inner = inner
        self.by_token = nn.Embedding(options.vocab, options.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, tokens: Tensor) -> Tensor:
        change = self.inner(x.mean(2) + self.by_token(tokens), cos, sin)
        return x.roll(1, 2) + change.unsqueeze(2)


class _Streams(Qwen3):
    def __init__(self, options: TrainOptions) -> None:
        super().__init__(options)
        self.layers = nn.ModuleList(_Layer(layer, options) for layer in self.layers)

    def enter(self, tokens: Tensor) -> Tensor:
        return torch.stack([(1 + stream) * self.embed(tokens) for stream in range(4)], 2)

    def through(self, x: Tensor, tokens: Tensor) -> Tensor:
        cos, sin = self.rotary(tokens.shape[1], x)
        for layer in self.layers.children():
            x = layer(x, cos, sin, tokens)
        return x

    def leave(self, x: Tensor) -> Tensor:
        return super().leave(x.mean(2))


def _with_streams(options: TrainOptions, layout: Layout) -> dict[str, Any]:
    loop.build = _Streams
    return _trainer(options, layout, 0, lambda trainer: {n: p.grad.numpy() for n, p in trainer.parameters.items()})


def _embeddings(layout: Layout) -> Any:
    def read(trainer: loop.Trainer) -> Any:
        held = trainer.parameters.get("embed.weight")
        return None if held is None else held.detach().numpy()

    return _trainer(TIED, layout, 3, read)


def _trainer(options: TrainOptions, layout: Layout, updates: int, read: Callable[[loop.Trainer], Any]) -> Any:
    from parity.train.process import join

    with join(layout, "cpu", 1) as process:
        trainer = loop.Trainer(options, seed=0, device=process.device, mesh=process.mesh)
        trainer.backward(0)
        for step in range(1, updates + 1):
            trainer.update(trainer.grad_norm())
            trainer.backward(step)
        return read(trainer)
