"""What a leg says about itself: its place, its layers, its experts, its part of the data."""

from dataclasses import replace
from typing import Any

import pytest

from parity.layout import Layout
from parity.train.options import TrainOptions
from tests.train.ranks import records

pytestmark = pytest.mark.slow

SMALL = TrainOptions(
    layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=44, vocab=61, seq_len=16, tie_embeddings=True
)
MOE = replace(SMALL, model="deepseek_v4", kv_heads=1, hash_layers=1)


def lines(options: TrainOptions, layout: Layout, kind: str) -> list[dict[str, Any]]:
    """Each rank's first line of a kind."""
    return [next(line for line in rank if line["kind"] == kind) for rank in records(options, layout, 1)]


def test_every_rank_says_where_it_stands() -> None:
    starts = lines(SMALL, Layout(pp=2, dp=2), "start")
    assert [(each["coordinates"]["pp"], each["coordinates"]["dp"]) for each in starts] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert len({each["environment"]["parameters"] for each in starts}) == 1


def test_stages_own_layers_and_both_ends_the_tied_embedding() -> None:
    models = lines(SMALL, Layout(pp=2), "model")
    assert [model["layers"] for model in models] == [[0], [1]]
    held = [[one["hash"] for one in model["parameters"] if one["name"] == "embed.weight"] for model in models]
    assert len(held[0]) == 1
    assert held[0] == held[1]


@pytest.mark.parametrize(("axis", "rows"), [("tp", [31, 30]), ("fsdp", [31, 30]), ("dp", [61, 61])])
def test_shards_are_on_record(axis: str, rows: list[int]) -> None:
    models = lines(SMALL, Layout(**{axis: 2}), "model")
    embeds = [next(one for one in model["parameters"] if one["name"] == "embed.weight") for model in models]
    assert [one["shape"] for one in embeds] == [[61, 32]] * 2
    assert [one["stop"][0] - one["start"][0] for one in embeds] == rows
    assert [one["split"] for one in embeds] == [{} if axis == "dp" else {"0": axis}] * 2


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(ep=2, dp=2), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (Layout(fsdp=2), [list(range(8))] * 2),
    ],
    ids=str,
)
def test_ranks_own_experts(layout: Layout, expected: list[list[int]]) -> None:
    models = lines(MOE, layout, "model")
    assert [next(iter(model["experts"].values())) for model in models] == expected
    assert [len(model["experts"]) for model in models] == [2, 2]


def test_gradients_are_read_after_they_are_summed_and_before_they_are_clipped() -> None:
    first, second = lines(replace(SMALL, clip=1e-3), Layout(dp=2), "gradients")
    assert first["read"] == "gradients()"
    assert first["norms"] == second["norms"]
    assert sum(norm**2 for norm in first["norms"]) > 1e-2
