"""This rank's place in the layout, as far as torch's own objects tell. Nothing is communicated."""

import gc
import math
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist
from torch import nn

from parity.layout import axis_of
from parity.record.parts import Part
from parity.record.placements import axis_name

__all__ = ["Places", "instances", "places_of", "whole"]

Places = dict[str, tuple[int, int]]
"""By axis, which place of how many."""


def places_of(roots: Sequence[nn.Module], parts: Sequence[Part], world_size: int) -> Places:
    """What device meshes, DistributedDataParallel and pipeline stages say, the first of them that knows an axis.

    Args:
        roots: the modules that are trained.
        parts: their parameters.
        world_size: ranks of the leg.
    """
    found: Places = {}
    if world_size == 1 or not (dist.is_available() and dist.is_initialized()):
        return found
    for mesh in _meshes(parts, world_size):
        for dim in range(mesh.ndim):
            name = axis_name(mesh, dim)
            axis = axis_of(name)
            if axis != "ep" and not _cuts(parts, name):
                # Of several axes in one, as in `dp_cp`, a place tells no single one's.
                axis = "" if len({axis_of(word) for word in re.split(r"[^a-z]+", name)} - {""}) > 1 else axis
                axis = "dp" if axis == "fsdp" else axis
            here = mesh.get_coordinate()
            if axis != "ep" and whole(found, world_size):
                axis = ""  # what is known is all that there is: this is another name for some of it
            if axis and here is not None and mesh.size(dim) > 1:
                found.setdefault(axis, (here[dim], mesh.size(dim)))
    for root in roots:
        if isinstance(root, nn.parallel.DistributedDataParallel):
            group = root.process_group
            found.setdefault("dp", (dist.get_rank(group), dist.get_world_size(group)))
    for part in parts:
        mesh = getattr(part.tensor, "device_mesh", None)
        if mesh is not None and not mesh.mesh_dim_names and mesh.ndim == 1 and type(roots[0]).__name__[:4] == "FSDP":
            found.setdefault("fsdp", (mesh.get_coordinate()[0], mesh.size()))
    stages = sys.modules.get("torch.distributed.pipelining.stage")
    for stage in instances(stages._PipelineStageBase) if stages is not None else ():
        if any(stage.submod is root for root in roots) and stage.group_size > 1:
            found.setdefault("pp", (stage.group_rank, stage.group_size))
    return found


def whole(places: Places, world_size: int) -> bool:
    """Whether the axes that are known make up all ranks, so that no unknown one can be among them."""
    return math.prod(size for axis, (_, size) in places.items() if axis != "ep") == world_size


def instances(kind: type) -> list[Any]:
    """All objects of a class."""
    # By their type: asking some objects for their class imports half of a library.
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def _meshes(parts: Sequence[Part], world_size: int) -> Iterator[Any]:
    """Named meshes over all ranks, those that parameters lie on first."""
    module = sys.modules.get("torch.distributed.device_mesh")
    if module is None:
        return
    own = [part.tensor.device_mesh for part in parts if part.placements]
    seen = set[int]()
    for mesh in (*own, *instances(module.DeviceMesh)):
        for one in (mesh, _root(mesh)):
            if one.mesh_dim_names and one.size() == world_size and id(one) not in seen:
                seen.add(id(one))
                yield one


def _root(mesh: Any) -> Any:
    # Private, and of newer versions of torch; without it a mesh stands for itself.
    return mesh._get_root_mesh() if hasattr(mesh, "_get_root_mesh") else mesh


def _cuts(parts: Sequence[Part], name: str) -> bool:
    """Whether a mesh dimension cuts any parameter, rather than give each rank a copy."""
    return any(name in axes.split("+") for part in parts for axes in part.box.split.values())
