"""Weights moved by one unit in the last place, the same way however they are cut."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from parity.errors import UsageError
from parity.record import Recorder
from parity.record.fingerprint import state_hash
from parity.record.parts import Part
from parity.record.perturb import perturb
from parity.record.placements import Box
from tests.record.boxes import cuts, grid
from tests.record.ranks import run_ranks
from tests.record.test_ranks import build, distinct, network, one, records

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def weights(dtype: torch.dtype, shape: tuple[int, ...] = (60, 70), seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def moved(tensor: Tensor, name: str = "weight", direction: int = 1, box: Box | None = None) -> Tensor:
    other = tensor.clone()
    perturb([Part(name, other, box or Box.whole(tuple(tensor.shape)))], direction)
    return other


def recorder(folder: Path, perturbed: str) -> Recorder:
    return Recorder.from_env({"PARITY_RECORD_DIR": str(folder), "PARITY_PERTURB": perturbed})


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_moves_to_its_neighbour_and_half_of_them_up(dtype: torch.dtype) -> None:
    before = weights(dtype)
    after = moved(before)
    up = after > before
    there = torch.where(up, torch.inf, -torch.inf).to(dtype)
    assert torch.equal(after, torch.nextafter(before, there))
    for sign in (before > 0, before < 0):
        assert 0.45 < up[sign].double().mean() < 0.55


def test_a_model_that_computes_in_less_than_it_stores_moves_by_what_it_computes_in() -> None:
    stored = weights(torch.float32)
    other = stored.clone()
    perturb([Part("weight", other, Box.whole(tuple(stored.shape)))], 1, "bf16")
    # One unit of 8 significant bits: between 2^-8 and 2^-7 of the value.
    relative = ((other - stored) / stored).abs().double()
    assert relative.min() >= 2**-8
    assert relative.max() <= 2**-7
    most = torch.full((60, 70), torch.finfo(torch.float32).max)
    perturb([Part("weight", most, Box.whole((60, 70)))], 1, "bf16")
    assert most.isfinite().all()
    exact = stored.clone()
    perturb([Part("weight", exact, Box.whole(tuple(stored.shape)))], 1, "fp64")
    assert torch.equal(exact, moved(stored))


def test_known_numbers() -> None:
    before = torch.tensor([1.0, -1.0, 3.0, 1e-3, -2.5])
    after = moved(before).numpy()
    each = list(zip(before.numpy(), after, strict=True))
    assert all(b in (np.nextafter(a, np.float32(9)), np.nextafter(a, np.float32(-9))) for a, b in each)
    # One in the last of 24 bits; below a power of two the last bit is worth half.
    assert abs(after[0] - 1.0) in (2.0**-23, 2.0**-24)
    assert abs(after[2] - 3.0) == 2.0**-22


@given(st.data(), st.sampled_from(DTYPES), st.integers(0, 99))
def test_parts_move_as_the_whole_does(data: st.DataObject, dtype: torch.dtype, seed: int) -> None:
    shape = (5, 4, 6)
    whole = weights(dtype, shape, seed)
    expected = moved(whole)
    for starts, stops in grid(data.draw(cuts(shape))):
        at = tuple(map(slice, starts, stops))
        if whole[at].numel():
            assert torch.equal(moved(whole[at], box=Box(shape, starts, stops)), expected[at])


def test_pieces_of_a_large_tensor_move_as_one() -> None:
    shape = (3, 70_000)
    whole = weights(torch.float32, shape)
    expected = moved(whole)
    assert (expected != whole).all()
    assert torch.equal(moved(whole[1:2], box=Box(shape, (1, 0), (2, 70_000))), expected[1:2])


def test_directions_and_names_differ() -> None:
    before = weights(torch.float32)
    every = [moved(before, direction=n) > before for n in (1, 2, 3)]
    every.append(moved(before, name="other") > before)
    for i, first in enumerate(every):
        for second in every[:i]:
            assert 0.45 < (first == second).double().mean() < 0.55
    assert torch.equal(moved(before), moved(before))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_and_what_has_no_neighbour_stay(dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    before = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, most, -most] * 40, dtype=torch.float64).to(
        dtype
    )
    after = moved(before)
    bits = BITS[before.element_size()]
    assert torch.equal(after.view(bits)[before.abs() != most], before.view(bits)[before.abs() != most])
    assert after[before.abs() == most].isfinite().all()
    assert 0 < (after != before)[before.abs() == most].sum() < 80


def test_other_dtypes_stay_and_a_rank_without_any_float_is_told() -> None:
    floats = weights(torch.float32, (4,))
    others = [torch.arange(4), torch.arange(4, dtype=torch.uint8), torch.ones(4).to(torch.float8_e4m3fn)]
    kept = [one.clone() for one in others]
    perturb([Part(str(n), tensor, Box.whole((4,))) for n, tensor in enumerate([*others, floats])], 1)
    for after, before in zip(others, kept, strict=True):
        assert torch.equal(after.view(torch.uint8), before.view(torch.uint8))
    assert (floats != weights(torch.float32, (4,))).all()
    with pytest.raises(UsageError, match=r"no parameter can be moved .*: 0 is int64"):
        perturb([Part("0", others[0], Box.whole((4,)))], 1)
    perturb([], 1)  # a rank without parameters is none of a perturbed leg's mistakes


def test_elements_that_do_not_lie_in_a_row() -> None:
    before = weights(torch.float32)
    turned = before.t().contiguous().t()
    assert not turned.is_contiguous()
    perturb([Part("weight", turned, Box.whole((60, 70)))], 1)
    assert torch.equal(turned, moved(before))


def test_start_moves_parameters_and_no_buffers_before_it_hashes_them(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    memory = [parameter.data_ptr() for parameter in model.parameters()]
    rec = recorder(tmp_path, "2")
    rec.start(model, torch.optim.SGD(model.parameters(), lr=0.1), environment={"perturbed": 7, "dtype": "fp32"})
    rec.end(0)
    start, line = [json.loads(text) for text in (tmp_path / "rank-0.jsonl").read_text().splitlines()][:2]
    assert (start["environment"]["perturbed"], start["environment"]["dtype"]) == (2, "fp32")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, moved(before[name], name, 2)), name
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, before[name]), name
    assert [part["hash"] for part in line["parameters"]] == [f"{state_hash(p):016x}" for p in model.parameters()]
    assert [parameter.data_ptr() for parameter in model.parameters()] == memory


def test_tied_parameters_move_once(tmp_path: Path) -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(30, 20), "head": nn.Linear(20, 30, bias=False)})
    model["head"].weight = model["embed"].weight
    model["same memory"] = nn.Linear(20, 30, bias=False)
    model["same memory"].weight = nn.Parameter(model["embed"].weight.detach())
    before = model["embed"].weight.detach().clone()
    rec = recorder(tmp_path, "1")
    rec.start(model)
    rec.end(0)
    assert torch.equal(model["embed"].weight, moved(before, "embed.weight"))


def test_a_leg_that_could_not_be_perturbed_does_not_start(tmp_path: Path) -> None:
    for model in (None, {"dtype": "fp32"}):
        with pytest.raises(UsageError, match=r"a perturbed leg \(PARITY_PERTURB\) needs start\(model, ...\)"):
            recorder(tmp_path, "1").start(model)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="PARITY_PERTURB: is set, but PARITY_RECORD_DIR is not"):
        Recorder.from_env({"PARITY_PERTURB": "1"})


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "yes"])
def test_a_direction_that_is_no_number_from_one(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=f"PARITY_PERTURB: '{text}' is not a whole number of at least 1"):
        recorder(tmp_path, text)


def started(layout: dict[str, int]) -> list[Any]:
    rec = Recorder.from_env()
    rec.perturbed = 3
    rec.start(build(layout))
    rec.end(0)
    return []


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"tp": 2}, {"fsdp": 2}, {"fsdp": 2, "tp": 2}])
def test_parts_of_dtensors_move_as_the_whole_model_does(tmp_path: Path, layout: dict[str, int]) -> None:
    world_size = torch.Size(layout.values()).numel()
    run_ranks(world_size, started, layout, records=tmp_path)
    ranks = records(tmp_path, world_size)
    assert {one(lines, "start")["environment"]["perturbed"] for lines in ranks} == {3}
    for row, (name, parameter) in enumerate(network().named_parameters()):
        parts = [one(ranks[rank], "model")["parameters"][row] for rank in distinct(ranks, row)]
        total = sum(int(part["hash"], 16) for part in parts) % 2**64
        assert total == state_hash(moved(parameter.detach(), name, 3)), name
        assert total != state_hash(parameter) or not parameter.any()
