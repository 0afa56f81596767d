"""Names and places of a model's parameters on one rank."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from parity.errors import UsageError
from parity.record.parts import Part, find_parts


@pytest.fixture
def one_rank() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@dataclass(frozen=True)
class Shard:
    shape: tuple[int, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    split: Any = field(default_factory=dict)


def parameters(module: nn.Module, **shards: Shard) -> list[Part]:
    return find_parts([module], {name.replace("_", "."): shard for name, shard in shards.items()}, [{}])[0]


def test_plain_tensors_are_whole() -> None:
    weight, bias = parameters(nn.Linear(3, 2))
    assert (weight.name, weight.box.shape, weight.box.starts, weight.box.stops) == ("weight", (2, 3), (0, 0), (2, 3))
    assert (bias.name, bias.dtype, bias.trainable) == ("bias", "float32", True)


def test_wrappers_leave_the_names() -> None:
    def wrapped(name: str, inner: nn.Module) -> nn.Module:
        outer = nn.Module()
        outer.add_module(name, inner)
        return outer

    model: nn.Module = nn.ModuleDict({"head": wrapped("_checkpoint_wrapped_module", nn.Linear(2, 2))})
    for name in ("_orig_mod", "_fsdp_wrapped_module", "module", "module"):
        model = wrapped(name, model)
    assert [part.name for part in parameters(model)] == ["head.weight", "head.bias"]


def test_a_child_called_module_keeps_its_name() -> None:
    model = nn.ModuleDict({"block": nn.ModuleDict({"module": nn.Linear(1, 1, bias=False)})})
    assert [part.name for part in parameters(model)] == ["block.module.weight"]


def test_tied_parameters_are_taken_once() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(3, 2), "head": nn.Linear(2, 3, bias=False)})
    model["head"].weight = model["embed"].weight
    assert [part.name for part in parameters(model)] == ["embed.weight"]
    stages = [model["embed"], model["head"]]
    found, _ = find_parts(stages, {}, [{"weight": "embed.weight"}, {"weight": "head.weight"}])
    assert [part.name for part in found] == ["embed.weight"]


def test_stages_are_named_for_the_whole_model() -> None:
    stages = [nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)]
    with pytest.raises(UsageError, match=r"weight: two tensors of the model have this name; .* names="):
        find_parts(stages, {}, [{}, {}])
    found, _ = find_parts(stages, {}, [{"weight": "layers.0.weight"}, {"weight": "layers.4.weight"}])
    assert [part.name for part in found] == ["layers.0.weight", "layers.4.weight"]


def test_shards_described_by_hand() -> None:
    shard = Shard((5, 3), (3, 0), (5, 3), {0: "tp"})
    weight, _ = parameters(nn.Linear(3, 2), weight=shard)
    assert (weight.box.shape, weight.box.starts, weight.box.stops) == ((5, 3), (3, 0), (5, 3))
    assert weight.box.split == {0: "tp"}


def test_a_description_tells_what_placements_do_not(one_rank: None) -> None:
    # VeOmni deals experts out first and has FSDP2 shard what is left: its DTensors know of their own half alone.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("ep_fsdp",))
    module = nn.Linear(3, 2, bias=False)
    module.weight = nn.Parameter(distribute_tensor(module.weight.detach(), mesh))
    (weight,) = parameters(module, weight=Shard((4, 3), (2, 0), (4, 3), {0: "ep"}))
    assert (weight.box.shape, weight.box.starts, weight.box.stops) == ((4, 3), (2, 0), (4, 3))
    assert weight.local.shape == (2, 3)
    assert type(weight.local) is torch.Tensor
    with pytest.raises(UsageError, match=r"but the tensor here is \[2, 3\]"):
        parameters(module, weight=Shard((4, 3), (3, 0), (4, 3)))


def test_axes_that_are_only_listed_go_to_the_one_dimension_that_is_cut() -> None:
    (weight, _) = parameters(nn.Linear(3, 2), weight=Shard((5, 3), (3, 0), (5, 3), ("ep", "tp")))
    assert weight.box.split == {0: "ep+tp"}
    (weight, _) = parameters(nn.Linear(3, 2), weight=Shard((5, 6), (3, 0), (5, 3), ("ep", "tp")))
    assert weight.box.split == {}


def test_a_description_that_does_not_fit() -> None:
    """The layout was asked for and not applied."""
    with pytest.raises(UsageError, match=r"weight: described as \[0:1, 0:3\] of \[2, 3\], .* here is \[2, 3\]"):
        parameters(nn.Linear(3, 2), weight=Shard((2, 3), (0, 0), (1, 3)))
    with pytest.raises(UsageError, match="shards: the model has no other; it has weight"):
        parameters(nn.Linear(3, 2), other=Shard((2, 3), (0, 0), (1, 3)))


def test_what_cannot_be_recorded() -> None:
    with pytest.raises(UsageError, match="weight: has no values yet"):
        parameters(nn.Linear(3, 2, device="meta"))
    with pytest.raises(UsageError, match="weight: complex parameters"):
        parameters(nn.Linear(3, 2, dtype=torch.complex64))
