"""Lets VeOmni train on a machine without a GPU, its grouped matrix products written out. The installed package stays
as it is, and so does all that expert parallelism consists of: which experts a rank has, where tokens go, and how
gradients are averaged.
"""

import os
import sys
import types

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

__all__ = ["pretend"]


def pretend() -> None:
    """Call it before anything of VeOmni is imported."""
    for name in ("set_device", "empty_cache", "reset_peak_memory_stats"):
        setattr(torch.cpu, name, lambda *_, **__: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(torch.cpu, name, lambda *_, **__: 0)
    torch.cpu.memory_stats = lambda *_, **__: {"num_alloc_retries": 0}
    torch.cpu.get_device_name = lambda *_: "cpu"
    _write_out("group_gemm", group_gemm_same_nk=_times_weights, group_gemm_same_mn=_for_weights)
    _write_out("moe", expert_histogram=_counts, moe_scatter=_scattered, moe_gather=_gathered)

    from veomni.utils import device

    device.get_dist_comm_backend = lambda: "gloo"
    from veomni.ops import kernel_registry

    kernel_registry.HardwareRequirement.is_satisfied = lambda self: True
    from veomni.ops.kernels import moe

    moe.is_fused_moe_available = lambda: True
    # Gloo gathers into one row of numbers alone.
    gather = dist.all_gather_into_tensor
    dist.all_gather_into_tensor = lambda output, given, *args, **more: gather(
        output.view(-1), given.reshape(-1), *args, **more
    )
    # Gloo sums, and scales nothing while it does. Over a mesh of one rank torch 2.13 has nothing to sum, and divides
    # twice if it was told to do no more than that.
    divide = FSDPModule.set_gradient_divide_factor
    everywhere = os.environ.get("SUM_EVERYWHERE") == "1"

    def divide_and_sum(module: FSDPModule, factor: float) -> None:
        divide(module, factor)
        groups = module._get_fsdp_state()._fsdp_param_groups
        if everywhere or any(group.mesh_info.shard_mesh_size > 1 for group in groups):
            module.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = divide_and_sum


def _write_out(kernels: str, **functions) -> None:
    """Stand in for a module of Triton kernels, which cannot be imported without a GPU."""
    name = f"veomni.ops.kernels.moe._kernels.kernel.{kernels}"
    module = types.ModuleType(name)
    module.__dict__.update(functions)
    sys.modules[name] = module


def _rows(cumulated: Tensor):
    """For each expert, its rows: they lie one expert after another."""
    begin = 0
    for end in cumulated.tolist():
        yield slice(begin, end)
        begin = end


def _times_weights(a: Tensor, b: Tensor, *, cumsum_M: Tensor, transpose_b: bool = False, **_) -> Tensor:  # noqa: N803
    weights = b.transpose(1, 2) if transpose_b else b
    return torch.cat([a[rows] @ weight for rows, weight in zip(_rows(cumsum_M), weights, strict=True)])


def _for_weights(a: Tensor, b: Tensor, *, c: Tensor, cumsum_K: Tensor, **_) -> None:  # noqa: N803
    for rows, out in zip(_rows(cumsum_K), c, strict=True):
        out.copy_(a[rows].T @ b[rows])


def _counts(experts: Tensor, number: int) -> Tensor:
    return torch.bincount(experts.flatten(), minlength=number).to(torch.int32)


def _scattered(x: Tensor, index: Tensor) -> Tensor:
    out = x.new_empty(index.numel(), x.shape[1])
    out[index.flatten().long()] = x.repeat_interleave(index.shape[1], dim=0)
    return out


def _gathered(x: Tensor, index: Tensor) -> Tensor:
    return x[index.long()].sum(1)
