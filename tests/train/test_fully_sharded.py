"""Fully sharded ranks compute what one rank does, and each holds no more than its share."""

from dataclasses import replace

import numpy as np
import pytest

from parity.layout import Layout
from parity.train.options import TrainOptions
from tests.train.ranks import curve, gaps, gradients, run_ranks

pytestmark = pytest.mark.slow

SMALL = TrainOptions(
    layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=44, vocab=61, seq_len=16, micro_batch=6, bias=True
)


@pytest.mark.parametrize("tie", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("fsdp", [2, 3])
def test_every_gradient_is_that_of_one_rank(fsdp: int, tie: bool) -> None:
    options = replace(SMALL, tie_embeddings=tie)
    assert max(gaps(replace(options, dtype="fp64"), Layout(fsdp=fsdp)).values()) < 1e-12
    assert max(gaps(options, Layout(fsdp=fsdp)).values()) < 1e-6


def test_a_rank_that_holds_nothing_of_a_parameter_does_no_harm() -> None:
    # 8 rows over 5 ranks are 2, 2, 2, 2 and none.
    options = replace(SMALL, micro_batch=5, dtype="fp64")
    last = gradients(options, Layout(fsdp=5))[-1]
    assert last["layers.0.attention.q_norm.weight"][1].size == 0
    assert max(gaps(options, Layout(fsdp=5)).values()) < 1e-12
    np.testing.assert_allclose(curve(options, Layout(fsdp=5), 2), curve(options, Layout(), 2), rtol=1e-12)


def test_curves_are_those_of_one_rank() -> None:
    np.testing.assert_allclose(curve(SMALL, Layout(fsdp=3), 10), curve(SMALL, Layout(), 10), rtol=1e-6)


def test_each_rank_holds_its_share_and_each_layer_is_a_unit() -> None:
    ranks = run_ranks(3, _held)
    sizes = [held for held, _, _ in ranks]
    assert sum(sizes) == ranks[0][1]
    assert max(sizes) < 1.1 * ranks[0][1] / 3
    assert all(units == SMALL.layers + 1 for _, _, units in ranks)


def test_bf16_agrees_as_far_as_bf16_does() -> None:
    half = replace(SMALL, dtype="bf16")
    np.testing.assert_allclose(curve(half, Layout(fsdp=2), 4), curve(half, Layout(), 4), rtol=5e-3)
    assert curve(half, Layout(), 1)[0][0] != pytest.approx(curve(SMALL, Layout(), 1)[0][0], rel=1e-5)


def test_gradients_summed_in_bf16_are_off_by_its_rounding() -> None:
    found = gaps(replace(SMALL, reduce_dtype="bf16"), Layout(fsdp=2))
    # A relative rounding error is at most 2^-9, so that its root mean square is below 2e-3.
    assert min(found.values()) > 2e-4
    assert max(found.values()) < 4e-3
    assert curve(replace(SMALL, reduce_dtype="bf16"), Layout(), 2) == curve(SMALL, Layout(), 2)


def _held() -> tuple[int, int, int]:
    from torch.distributed.fsdp import FSDPModule

    from parity.train.gradients import local
    from parity.train.loop import Trainer
    from parity.train.process import join

    with join(Layout(fsdp=3), "cpu", 1) as process:
        trainer = Trainer(SMALL, seed=0, device=process.device, mesh=process.mesh)
        held = sum(local(parameter).numel() for parameter in trainer.parameters.values())
        return held, trainer.size, sum(isinstance(module, FSDPModule) for module in trainer.model.modules())
