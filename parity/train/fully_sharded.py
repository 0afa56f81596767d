"""Fully sharded data parallelism (ZeRO-3, Rajbhandari et al. 2020) by torch's `fully_shard`.

Each decoder layer is one unit, which is gathered for its forward and backward pass; the model itself is another one,
for all that is outside the layers. Parameters become DTensors, cut in their first dimension as `torch.chunk` cuts:
all ranks have equally many rows, the last ones fewer or none. With `dp` beside it this is hybrid sharding: gradients
are reduced and scattered within a group of shards, and what is scattered is summed over the replicas.

A model in bf16 casts its wide weights itself, under every layout alike, so weights are gathered wide: gathered in
bf16, as a mixed precision policy would have it, norm weights would be rounded in the sharded legs only.
"""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from parity.errors import UsageError
from parity.train.collectives import Comm
from parity.train.models import Model
from parity.train.options import TrainOptions
from parity.train.shards import Shard

__all__ = ["apply"]


def apply(model: Model, options: TrainOptions, comm: Comm, shards: dict[str, Shard]) -> dict[str, Shard]:
    """Shard a model whose weights are filled, in place.

    Returns:
        The shards, by parameter name.

    Raises:
        UsageError: torch is too old to sum gradients rather than average them on gloo.
    """
    if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
        raise UsageError(f"layout.fsdp: torch {torch.__version__} cannot sum gradients over gloo: take 2.9 or later")
    group = comm.group or dist.group.WORLD
    mesh = DeviceMesh.from_group(group, next(model.parameters()).device.type, mesh_dim_names=("fsdp",))
    reduce_dtype = torch.bfloat16 if options.reduce_dtype == "bf16" else None
    policy = MixedPrecisionPolicy(reduce_dtype=reduce_dtype, cast_forward_inputs=False)
    for unit in (*model.layers.children(), model):
        fully_shard(unit, mesh=mesh, mp_policy=policy)
        # The loss is divided by the tokens of the whole global batch already. Gloo has no PREMUL_SUM, which is
        # how torch would scale a sum in transit.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    return {name: _shard(parameter, shards[name]) for name, parameter in model.named_parameters()}


def _shard(parameter: DTensor, before: Shard) -> Shard:
    _, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    start = offset[0]
    stop = start + parameter.to_local().shape[0]
    return replace(before.cut("fsdp", 0, start, stop))
