"""A sequence cut over ranks gives the whole one's attention."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from parity.layout import Layout
from parity.train.collectives import Comm
from parity.train.context_parallel import GatheredAttention, lengths
from parity.train.data import batches
from parity.train.options import TrainOptions
from parity.train.qwen3 import CausalAttention, Rotary
from tests.train.ranks import curve, gaps
from tests.train.test_collectives import on_ranks

SMALL = TrainOptions(
    layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=44, vocab=61, seq_len=19, bias=True, tie_embeddings=True
)


@settings(deadline=None, max_examples=40)
@given(
    tokens=st.integers(1, 9),
    ranks=st.integers(1, 4),
    kv_heads=st.sampled_from([1, 2]),
    same=st.booleans(),
    seed=st.integers(0, 99),
)
def test_attention_and_its_gradients_are_the_whole_sequences(
    tokens: int, ranks: int, kv_heads: int, same: bool, seed: int
) -> None:
    cut = lengths(tokens, min(ranks, tokens))
    rng = torch.Generator().manual_seed(seed)
    q, upstream = torch.randn(2, 2, 4, tokens, 6, dtype=torch.float64, generator=rng)
    k, v = torch.randn(2, 2, kv_heads, tokens, 6, dtype=torch.float64, generator=rng)

    def gradients(core: CausalAttention, q: Tensor, k: Tensor, v: Tensor, upstream: Tensor) -> list[Tensor]:
        inputs = [each.clone().requires_grad_() for each in ((q, k) if same else (q, k, v))]
        y = core(*inputs, inputs[-1]) if same else core(*inputs)
        y.backward(upstream)
        return [y.detach(), *(each.grad for each in inputs)]

    def rank(comm: Comm) -> list[Tensor]:
        mine = [each.split(cut, 2)[comm.rank] for each in (q, k, v, upstream)]
        return gradients(GatheredAttention(comm, cut), *mine)

    expected = gradients(CausalAttention(), q, k, v, upstream)
    for parts, whole in zip(zip(*on_ranks(len(cut), rank), strict=True), expected, strict=True):
        torch.testing.assert_close(torch.cat(parts, 2), whole)


def test_positions_go_on_where_the_stretch_begins() -> None:
    whole = Rotary(8, 10_000.0)
    part = Rotary(8, 10_000.0)
    part.first = 5
    like = torch.zeros((), dtype=torch.float64)
    for all_angles, angles in zip(whole(9, like), part(4, like), strict=True):
        assert torch.equal(all_angles[5:], angles)


@pytest.mark.parametrize(("tokens", "ranks", "expected"), [(19, 3, [7, 6, 6]), (4, 4, [1, 1, 1, 1]), (5, 1, [5])])
def test_a_sequence_is_cut_near_evenly(tokens: int, ranks: int, expected: list[int]) -> None:
    assert lengths(tokens, ranks) == expected


def test_the_label_of_a_stretchs_last_token_is_the_first_of_the_next() -> None:
    batch = batches(SMALL, 0, 0)[0]
    first, second = batch.stretch(0, 3), batch.stretch(3, 5)
    assert torch.equal(first.labels[:, -1], second.tokens[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize("cp", [2, 3])
def test_every_gradient_is_that_of_one_rank(cp: int) -> None:
    assert SMALL.seq_len % cp
    assert max(gaps(replace(SMALL, dtype="fp64"), Layout(cp=cp)).values()) < 1e-12
    assert max(gaps(SMALL, Layout(cp=cp)).values()) < 3e-6


@pytest.mark.slow
def test_curves_are_those_of_one_rank() -> None:
    np.testing.assert_allclose(curve(SMALL, Layout(cp=3), 10), curve(SMALL, Layout(), 10), rtol=1e-6)
