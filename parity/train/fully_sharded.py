"""Fully sharded data parallelism (ZeRO-3, Rajbhandari et al. 2020) by torch's `fully_shard`.

Each decoder layer is one unit, which is gathered for its forward and backward pass; its routed experts are a unit of
their own, whose gradients may be reduced in another dtype; and the model itself is one for all that is outside the
layers. Parameters become DTensors, cut in their first dimension as `torch.chunk` cuts: all ranks have equally many
rows, the last ones fewer or none. With `dp` beside it this is hybrid sharding: gradients are reduced and scattered
within a group of shards, and what is scattered is summed over the replicas.

A model in bf16 casts its wide weights itself, under every layout alike, so weights are gathered wide: gathered in
bf16, as a mixed precision policy would have it, norm weights would be rounded in the sharded legs only.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from parity.errors import UsageError
from parity.train.collectives import Comm
from parity.train.models import Model
from parity.train.moe import Experts
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
    experts = [module for module in model.modules() if isinstance(module, Experts)]
    expert_dtype = torch.bfloat16 if options.expert_reduce_dtype == "bf16" else reduce_dtype
    spread = {model.get_parameter(name) for name, shard in shards.items() if "ep" in shard.split}
    for unit in (*experts, *model.layers.children(), model):
        if spread.issuperset(unit.parameters()):
            continue  # experts that expert parallelism has dealt out already
        dtype = expert_dtype if isinstance(unit, Experts) else reduce_dtype
        policy = MixedPrecisionPolicy(reduce_dtype=dtype, cast_forward_inputs=False)
        fully_shard(unit, mesh=mesh, mp_policy=policy, ignored_params=spread)
        # The loss is divided by the tokens of the whole global batch already. Gloo has no PREMUL_SUM, which is
        # how torch would scale a sum in transit.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    return {
        name: shard if "ep" in shard.split else shard.cut("fsdp", 0, *_rows(shard.shape[0], comm))
        for name, shard in shards.items()
    }


def _rows(total: int, comm: Comm) -> tuple[int, int]:
    """Start and stop of this rank's rows, as `torch.chunk` cuts."""
    size = -(-total // comm.size)
    return min(comm.rank * size, total), min((comm.rank + 1) * size, total)
