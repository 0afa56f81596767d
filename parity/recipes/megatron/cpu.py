"""Lets Megatron Core train on a machine without a GPU. The installed package stays as it is."""

import contextlib

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["pretend"]


class _OnCpu(TorchFunctionMode):
    """Makes on the CPU what is asked for on `cuda`."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        # Megatron asserts by this name that what it clips is a float on a GPU.
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.Float", "torch.cuda.Float")
        return func(*args, **kwargs)


class _Stream:
    """Everything is done when it is asked for, so that there is nothing to wait for."""

    def __init__(self, *_, **__):
        pass

    def wait_stream(self, _other):
        pass

    def record_event(self):
        return self

    def synchronize(self):
        pass


def pretend() -> None:
    """Call it before anything of Megatron is imported."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.is_current_stream_capturing = lambda: False
    for name in ("synchronize", "set_device", "empty_cache"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.cuda.Stream = torch.cuda.current_stream = torch.cuda.default_stream = _Stream
    torch.cuda.stream = contextlib.nullcontext
    _OnCpu().__enter__()

    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker

    # Its states are a GPU's; there is no dropout in these recipes, so nothing is drawn from them.
    CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()

    from megatron.core.transformer.moe import token_dispatcher

    # How many tokens go to each rank has to be numbers, as it is once it was copied from a GPU.
    token_dispatcher.maybe_move_tensor_to_cpu = lambda tensor, as_numpy=False, record_stream=False: (
        tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor
    )
