"""DTensors on real ranks: every rank records its own part, nothing is gathered, and the parts add up."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from parity.errors import UsageError
from parity.record import Recorder
from parity.record.fingerprint import sketch, state_hash
from parity.record.parts import find_parts
from tests.record.ranks import run_ranks

pytestmark = pytest.mark.slow

STEPS = 3


def network() -> nn.Sequential:
    """Sizes that neither two nor four ranks divide."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 11), nn.Tanh(), nn.Linear(11, 7), nn.LayerNorm(7))


def tensor_parallel(model: nn.Module, mesh: Any) -> None:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    # Together, the layers would take an even split: what one leaves the other is a plain tensor.
    first = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(model, mesh, {"0": first, "2": RowwiseParallel(input_layouts=Replicate())})


def build(layout: dict[str, int]) -> nn.Module:
    """The network, split over a mesh of these axes."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = network()
    mesh = init_device_mesh("cpu", tuple(layout.values()), mesh_dim_names=tuple(layout))
    if "tp" in layout:
        tensor_parallel(model, mesh["tp"])
    if "fsdp" in layout:
        fully_shard(model[0], mesh=mesh["fsdp"])
        fully_shard(model, mesh=mesh["fsdp"])
    return model


def loss_of(output: Tensor) -> Tensor:
    """Half a step's loss; weighted, because a normalised vector's length tells nothing."""
    return (output * torch.arange(7.0)).square().mean() / 2


def train(model: nn.Module, rec: Recorder | None) -> Tensor:
    """A few steps on every rank's same data; all of this rank's parameters in a row."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if rec is not None:
        rec.start(model, optimizer, coordinates={"rank": dist.get_rank()})
    for step in range(STEPS):
        optimizer.zero_grad()
        for micro in range(2):
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(10 * step + micro))
            loss_of(model(x)).backward()
        if rec is not None:
            rec.gradients()
        optimizer.step()
        if rec is not None:
            rec.step(step, loss=1.0)
    if rec is not None:
        rec.end(STEPS)
    local = [getattr(p, "_local_tensor", p).detach().reshape(-1) for p in model.parameters()]
    return torch.cat(local).numpy()


def recorded(layout: dict[str, int]) -> tuple[Any, Any]:
    """Train with and without a recorder."""
    plain = train(build(layout), None)
    watched = train(build(layout), Recorder.from_env())
    return plain, watched


def records(folder: Path, world_size: int) -> list[list[dict[str, Any]]]:
    files = [folder / f"rank-{rank}.jsonl" for rank in range(world_size)]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def one(lines: list[dict[str, Any]], kind: str, step: int | None = None) -> dict[str, Any]:
    (found,) = (line for line in lines if line["kind"] == kind and step in (None, line.get("step")))
    return found


def unpacked(text: str) -> Tensor:
    data = base64.b64decode(text)
    return torch.tensor(struct.unpack(f"<{len(data) // 8}d", data), dtype=torch.float64).view(-1, 64)


def distinct(ranks: list[list[dict[str, Any]]], row: int) -> list[int]:
    """Ranks that hold the different parts of a parameter, one each."""
    boxes: dict[str, int] = {}
    for rank, lines in enumerate(ranks):
        part = one(lines, "model")["parameters"][row]
        boxes.setdefault(str((part["start"], part["stop"])), rank)
    return list(boxes.values())


@pytest.mark.parametrize(
    ("layout", "first"),
    [
        ({"tp": 2}, {"split": {"0": "tp"}, "stops": [[6, 5], [11, 5]]}),
        ({"tp": 3}, {"split": {"0": "tp"}, "stops": [[4, 5], [8, 5], [11, 5]]}),
        ({"fsdp": 2}, {"split": {"0": "fsdp"}, "stops": [[6, 5], [11, 5]]}),
        ({"fsdp": 2, "tp": 2}, {"split": {"0": "tp+fsdp"}, "stops": [[3, 5], [9, 5], [6, 5], [11, 5]]}),
    ],
)
def test_parts_of_dtensors_add_up(tmp_path: Path, layout: dict[str, int], first: dict[str, Any]) -> None:
    world_size = torch.Size(layout.values()).numel()
    results = run_ranks(world_size, recorded, layout, records=tmp_path)
    for plain, watched in results:
        assert (plain == watched).all()  # bitwise: there is no NaN, and 0.0 for -0.0 would be no harm
    ranks = records(tmp_path, world_size)
    model = network()
    parts = [one(lines, "model")["parameters"] for lines in ranks]
    assert [part[0]["stop"] for part in parts] == first["stops"]
    assert {json.dumps(part[0]["split"]) for part in parts} == {json.dumps(first["split"])}

    (x, y) = (torch.randn(4, 5, generator=torch.Generator().manual_seed(micro)) for micro in range(2))
    for data in (x, y):
        loss_of(model(data)).backward()
    for row, (name, parameter) in enumerate(model.named_parameters()):
        holders = distinct(ranks, row)
        assert {part[row]["name"] for part in parts} == {name}
        assert {tuple(part[row]["shape"]) for part in parts} == {tuple(parameter.shape)}
        total = sum(int(parts[rank][row]["hash"], 16) for rank in holders) % 2**64
        assert total == state_hash(parameter)
        taken = [one(ranks[rank], "gradients", 0) for rank in holders]
        if any(name in line.get("pending", ()) for line in taken):
            assert name.startswith("3."), "only what follows the split layers may be pending"
            continue
        norm = sum(line["norms"][row] ** 2 for line in taken) ** 0.5
        assert norm == pytest.approx(float(parameter.grad.double().norm()), rel=1e-5)
        summed = torch.stack([unpacked(line["sketch"])[row] for line in taken]).sum(0)
        torch.testing.assert_close(summed, sketch(parameter.grad), rtol=1e-4, atol=1e-6)
        # What several ranks hold is hashed by all of them, and stays equal.
        for step in range(STEPS):
            hashes = [one(lines, "update", step)["hashes"][row] for lines in ranks]
            for rank, part in enumerate(parts):
                same = [hashes[r] for r, other in enumerate(parts) if other[row]["start"] == part[row]["start"]]
                empty = part[row]["start"] == part[row]["stop"]
                assert len(same) == 1 or empty or (None not in same and len(set(same)) == 1), (name, rank)


def misplaced() -> list[str]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard, placement_types

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    strided = placement_types._StridedShard(0, split_factor=2)
    messages = []
    for placement in (Partial(), strided):
        module = nn.Module()
        placements = [placement, Shard(0) if placement is strided else Partial()]
        spec = DTensor.from_local(torch.zeros(4, 3), mesh, [Shard(0), Shard(0)], run_check=False)._spec
        spec.placements = tuple(placements)
        module.weight = nn.Parameter(DTensor(torch.zeros(4, 3), spec, requires_grad=False))
        try:
            find_parts([module], {}, [{}])
        except UsageError as error:
            messages.append(str(error))
    return messages


def test_placements_that_are_no_boxes_are_refused_in_words(tmp_path: Path) -> None:
    for partial, strided in run_ranks(2, misplaced, records=tmp_path):
        assert partial.startswith("weight: its placement (Partial(sum)")
        assert "a sum over ranks is pending; redistribute it" in partial
        assert "interleaves rows; only parts that are boxes can be recorded" in strided


def pending() -> list[Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate

    mesh = init_device_mesh("cpu", (2,))
    module = nn.Linear(2, 2, bias=False)
    module.weight = nn.Parameter(DTensor.from_local(torch.ones(2, 2), mesh, [Replicate()], run_check=False))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    rec = Recorder.from_env()
    rec.start(module, optimizer)
    module.weight.grad = DTensor.from_local(torch.ones(2, 2), mesh, [Partial()], run_check=False)
    rec.gradients()
    rec.step(0, loss=1.0)
    rec.end(1)
    return []


def test_a_gradient_whose_sum_is_pending_is_said_to_be(tmp_path: Path) -> None:
    run_ranks(2, pending, records=tmp_path)
    for lines in records(tmp_path, 2):
        line = one(lines, "gradients")
        assert (line["norms"], line["pending"]) == ([None], ["weight"])
