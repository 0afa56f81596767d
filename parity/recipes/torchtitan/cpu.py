"""Lets torchtitan train on a machine without a GPU. The installed package stays as it is."""

import psutil
import torch
from torch.distributed.fsdp import FSDPModule
from torch.nn.attention import flex_attention

__all__ = ["pretend"]


class _Properties:
    name = "cpu"
    total_memory = psutil.virtual_memory().total


def pretend() -> None:
    """Call it before torchtitan is imported: it asks torch for its device once."""
    torch._utils._get_available_device_type = lambda: "cpu"
    for name, value in {
        "get_device_name": "cpu",
        "get_device_properties": _Properties,
        "memory_stats": {},
        "reset_peak_memory_stats": None,
        "empty_cache": None,
        "device_count": 1,
        "current_device": 0,
        "set_device": None,
    }.items():
        setattr(torch.cpu, name, lambda *_, value=value: value)
    # Flex attention without its kernel, which has no backward on a CPU: traced and not compiled it has one, if it is
    # only asked.
    compiled = torch.compile
    torch.compile = lambda model=None, *, backend=None, mode=None, options=None, **more: compiled(
        model, backend="eager", **more
    )
    flex_attention._validate_device = lambda *_: None
    # Gloo sums, and scales nothing while it does.
    divide = FSDPModule.set_gradient_divide_factor

    def divide_and_sum(module: FSDPModule, factor: float) -> None:
        divide(module, factor)
        module.set_force_sum_reduction_for_comms(True)

    FSDPModule.set_gradient_divide_factor = divide_and_sum
    # Gloo has no barrier of a device.
    barrier = torch.distributed.barrier

    def plain_barrier(*args, device_ids=None, **more):
        return barrier(*args, **more)

    torch.distributed.barrier = plain_barrier
