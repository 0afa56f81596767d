"""Boxes, and the box that a DTensor's placements give this rank. Nothing is communicated."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from torch import Tensor

from parity.errors import UsageError

__all__ = ["Box", "axis_name", "box_of", "is_dtensor", "local_gradient"]


@dataclass(frozen=True)
class Box:
    """A box cut out of a tensor.

    Attributes:
        shape: of the whole tensor.
        starts: per dimension, the first index in the box.
        stops: per dimension, one past the last.
        split: by dimension, the axis that cuts it, or several from the outside in: "tp+fsdp".
        pieces: into how many boxes the tensor is cut, where placements say so.
    """

    shape: tuple[int, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    split: Mapping[int, str] = field(default_factory=dict, compare=False)
    pieces: int = field(default=1, compare=False)

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> "Box":
        """All of a tensor."""
        return cls(shape, (0,) * len(shape), shape)

    @property
    def extents(self) -> tuple[int, ...]:
        """Its own shape."""
        return tuple(b - a for a, b in zip(self.starts, self.stops, strict=True))

    @property
    def numel(self) -> int:
        """Its elements."""
        return math.prod(self.extents)

    @property
    def fits(self) -> bool:
        """Whether it lies inside of the tensor."""
        return len(self.shape) == len(self.starts) == len(self.stops) and all(
            0 <= a <= b <= size for a, b, size in zip(self.starts, self.stops, self.shape, strict=True)
        )

    def split_by(self, axes: object) -> "Box":
        """The same box, cut by axes that somebody named: by dimension, or in a row."""
        if isinstance(axes, Mapping):
            return replace(self, split={int(dim): str(axis) for dim, axis in axes.items()})
        cut = [d for d, size in enumerate(self.shape) if self.extents[d] != size]
        if len(cut) != 1 or not isinstance(axes, Sequence) or not axes:
            return self  # which axis cuts which of several dimensions cannot be told
        return replace(self, split={cut[0]: "+".join(map(str, axes))})


def is_dtensor(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor, without importing what only a model that has one imports."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def box_of(name: str, tensor: Any) -> Box:
    """The box that this rank holds of a DTensor.

    Each mesh dimension that shards cuts as `torch.chunk` does: ceil(n / size) indices to each rank while they
    last. Mesh dimensions cut one after another from the first to the last, except that FSDP over tensor
    parallelism cuts what the latter left over and says so with a `_StridedShard`, whose split factor is the
    number of pieces into which later mesh dimensions have cut before it.

    Args:
        name: for messages.
        tensor: the DTensor.

    Raises:
        UsageError: a placement is no `Shard` or `Replicate`, or what it says is not what the rank holds.
    """
    mesh, shape = tensor.device_mesh, tuple(tensor.shape)
    here = mesh.get_coordinate()
    if here is None:
        return Box(shape, (0,) * len(shape), (0,) * len(shape))
    starts, stops = [0] * len(shape), list(shape)
    split: dict[int, str] = {}
    pieces = 1
    for dim, cuts in _order(name, tensor).items():
        for mesh_dim in cuts:
            count, rank = mesh.size(mesh_dim), here[mesh_dim]
            size = stops[dim] - starts[dim]
            each = -(-size // count)
            starts[dim], stops[dim] = (starts[dim] + min(size, each * place) for place in (rank, rank + 1))
            pieces *= count
        named = [axis_name(mesh, mesh_dim) for mesh_dim in cuts if mesh.size(mesh_dim) > 1]
        if named:
            split[dim] = "+".join(named)
    box = Box(shape, tuple(starts), tuple(stops), split, pieces)
    held = tuple(tensor._local_tensor.shape)
    if box.extents != held and not box.numel == math.prod(held) == 0:
        raise UsageError(
            f"{name}: {_words(tensor)} gives this rank {list(box.extents)} of {list(shape)}, but it holds"
            f" {list(held)}; only parts that are boxes can be recorded"
        )
    return box


def _order(name: str, tensor: Any) -> dict[int, list[int]]:
    """By tensor dimension, the mesh dimensions that cut it, in the order in which they do."""
    orders: dict[int, list[int]] = {}
    sizes = [tensor.device_mesh.size(mesh_dim) for mesh_dim in range(tensor.device_mesh.ndim)]
    for mesh_dim, placement in reversed(list(enumerate(tensor.placements))):
        if placement.is_replicate():
            continue
        # In torch 2.6 a _StridedShard is a Shard, later it is not.
        dim = getattr(placement, "dim", None)
        factor = getattr(placement, "split_factor", 1)
        if dim is None:
            raise UsageError(
                f"{name}: {_words(tensor)} is no part of a tensor: a sum over ranks is pending; redistribute it"
            )
        order = orders.setdefault(dim, [])
        # As many of the later mesh dimensions come first as together make the split factor.
        before = next((n for n in range(len(order) + 1) if math.prod(sizes[m] for m in order[:n]) == factor), None)
        if before is None:
            raise UsageError(f"{name}: {_words(tensor)} interleaves rows; only parts that are boxes can be recorded")
        order.insert(before, mesh_dim)
    return orders


def axis_name(mesh: Any, mesh_dim: int) -> str:
    """What a mesh calls one of its dimensions."""
    if not mesh.mesh_dim_names:
        return f"mesh{mesh_dim}"
    name = mesh.mesh_dim_names[mesh_dim]
    return str(name.value if isinstance(name, Enum) else name)  # NeMo Automodel's are members of one


def _words(tensor: Any) -> str:
    return f"its placement {tuple(tensor.placements)}"


def local_gradient(grad: Any, box: Box, placements: tuple[Any, ...]) -> Tensor | None:
    """The part of a gradient that lies in a parameter's box; None if only other ranks together have it.

    Args:
        grad: of the parameter, with the same whole shape.
        box: the parameter's.
        placements: the parameter's, empty for a plain tensor.
    """
    if not is_dtensor(grad):
        return grad.to_dense() if grad.is_sparse else grad
    if tuple(grad.placements) == placements:
        return grad._local_tensor
    if any(placement.is_partial() for placement in grad.placements):
        return None
    found = box_of("gradient", grad)
    local = grad._local_tensor
    for dim, (start, stop) in enumerate(zip(box.starts, box.stops, strict=True)):
        if not found.starts[dim] <= start <= stop <= found.stops[dim]:
            return None
        local = local.narrow(dim, start - found.starts[dim], stop - start)
    return local
