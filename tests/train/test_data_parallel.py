"""Replicas on real ranks: together they compute what one rank does, and they stay equal."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parity.layout import Layout
from parity.train.data import IGNORED, batches
from parity.train.options import TrainOptions
from tests.train.ranks import curve, gaps, run_ranks

SMALL = TrainOptions(
    layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=44, vocab=61, seq_len=16, micro_batch=6, bias=True
)


@pytest.mark.slow
@pytest.mark.parametrize("dp", [2, 3])
def test_every_gradient_is_that_of_one_rank(dp: int) -> None:
    assert max(gaps(replace(SMALL, dtype="fp64"), Layout(dp=dp)).values()) < 1e-12
    assert max(gaps(SMALL, Layout(dp=dp)).values()) < 1e-6


@pytest.mark.slow
def test_curves_are_those_of_one_rank() -> None:
    np.testing.assert_allclose(curve(SMALL, Layout(dp=2), 10), curve(SMALL, Layout(), 10), rtol=1e-6)


@pytest.mark.slow
def test_replicas_stay_bitwise_equal() -> None:
    first, second, third = run_ranks(3, _trained, SMALL, Layout(dp=3))
    assert first == second == third


def test_ranks_have_other_numbers_of_tokens() -> None:
    # Otherwise a mean of the ranks' means would pass for the mean.
    counts = [[int((batch.part(i, 3).labels != IGNORED).sum()) for i in range(3)] for batch in batches(SMALL, 0, 0)]
    assert all(len(set(count)) == 3 for count in counts)


def test_every_sample_goes_to_one_rank() -> None:
    for batch in batches(SMALL, 0, 0):
        parts = [batch.part(index, 3).tokens for index in range(3)]
        assert np.array_equal(np.concatenate(parts), batch.tokens)


def _trained(options: TrainOptions, layout: Layout) -> dict[str, Any]:
    from parity.train.loop import Trainer
    from parity.train.process import join

    with join(layout, "cpu", 1) as process:
        trainer = Trainer(options, seed=0, device=process.device, mesh=process.mesh)
        for step in range(3):
            trainer.backward(step)
            trainer.update(trainer.grad_norm())
        return {name: parameter.tolist() for name, parameter in trainer.parameters.items()}
