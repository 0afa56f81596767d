"""Which rank stands where, and who meets whom."""

from itertools import product

import pytest

from parity.layout import Layout
from parity.train.mesh import ORDER, Mesh


def test_tp_runs_fastest_and_pp_slowest() -> None:
    layout = Layout(pp=2, dp=2, tp=3)
    places = [Mesh(layout, rank).coordinates for rank in range(12)]
    assert [(place["pp"], place["dp"], place["tp"]) for place in places] == list(
        product(range(2), range(2), range(3))
    )
    assert all(place["fsdp"] == place["cp"] == place["ep"] == 0 for place in places)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("tp", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("dp", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("pp", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("data", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("world", [list(range(8))]),
    ],
)
def test_ranks_that_differ_on_an_axis_alone_meet_there(name: str, ranks: list[list[int]]) -> None:
    layout = Layout(pp=2, dp=2, tp=2)
    for group in ranks:
        for index, rank in enumerate(group):
            comm = Mesh(layout, rank).comm(name)
            assert (comm.rank, comm.size) == (index, len(group))


def test_unions_run_over_their_axes_in_the_order_of_the_ranks() -> None:
    layout = Layout(dp=2, fsdp=2, cp=2)
    places = [Mesh(layout, rank) for rank in range(8)]
    assert [mesh.comm("data").rank for mesh in places] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [mesh.comm("tokens").rank for mesh in places] == list(range(8))


def test_experts_are_spread_over_neighbouring_data_ranks() -> None:
    meshes = [Mesh(Layout(dp=2, fsdp=2, ep=2), rank) for rank in range(4)]
    assert [mesh.coordinates["ep"] for mesh in meshes] == [0, 1, 0, 1]
    assert [mesh.comm("ep").rank for mesh in meshes] == [0, 1, 0, 1]
    assert [mesh.comm("expert_dp").rank for mesh in meshes] == [0, 0, 1, 1]


def test_a_rank_alone_meets_nobody() -> None:
    mesh = Mesh()
    assert {mesh.size(name) for name in (*ORDER, "data", "tokens", "world", "ep", "expert_dp")} == {1}
