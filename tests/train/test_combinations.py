"""Axes together, each with real ranks on all of them."""

from dataclasses import replace

import numpy as np
import pytest

from parity.layout import Layout
from parity.train.options import PAIRS, TrainOptions, problems
from tests.train.ranks import curve, gaps

pytestmark = pytest.mark.slow

SMALL = TrainOptions(
    layers=3, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=44, vocab=61, seq_len=16, micro_batch=4, accumulate=3
)
EVERYTHING = replace(SMALL, tie_embeddings=True, bias=True)
LAYOUTS = [Layout(**dict.fromkeys(pair, 2)) for pair in PAIRS if "ep" not in pair]  # this model has no experts


@pytest.mark.parametrize("layout", [*LAYOUTS, Layout(pp=2, dp=2, tp=2)], ids=str)
@pytest.mark.parametrize("options", [SMALL, EVERYTHING], ids=["plain", "everything"])
def test_every_gradient_is_that_of_one_rank(options: TrainOptions, layout: Layout) -> None:
    options = replace(options, sequence_parallel=options is EVERYTHING and layout.tp > 1)
    assert problems(options, layout) == []
    assert max(gaps(replace(options, dtype="fp64"), layout).values()) < 1e-12
    # Key biases hardly matter, so that their gradients are small differences: 2.2e-6 with tp, 3e-7 without.
    assert max(gaps(options, layout).values()) < 5e-6


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_curves_are_those_of_one_rank_on_every_rank(layout: Layout) -> None:
    np.testing.assert_allclose(curve(EVERYTHING, layout, 10), curve(EVERYTHING, Layout(), 10), rtol=1e-6)
