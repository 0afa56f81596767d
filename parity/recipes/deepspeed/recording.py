"""Shows the recorder what DeepSpeed's engine holds under ZeRO: partitions of weights, and gradients."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import deepspeed.comm as dist
import torch
from deepspeed.utils import safe_get_full_grad, safe_get_local_grad
from torch import nn


@dataclass
class Shard:
    """Which part of a whole tensor a rank holds; see `Recorder.start`."""

    shape: tuple[int, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    split: dict[int, str]


class EngineStep(torch.optim.Optimizer):
    """The engine's whole step as one optimizer.

    ZeRO's own optimizer steps on flat copies, and the model's weights are the new ones only when the engine returns.
    """

    def __init__(self, engine, parameters) -> None:
        self.engine = engine
        settings = {key: value for key, value in engine.optimizer.param_groups[0].items() if key != "params"}
        super().__init__(list(parameters), settings)

    def step(self) -> None:  # torch has hooks run before and after
        self.engine.step()


class Watch:
    """What the recorder is to be given of an engine.

    Attributes:
        module: whose parameters are those that this rank holds.
        shards, names: see `Recorder.start`.
        optimizer: to be stepped in the engine's stead.
    """

    def __init__(self, engine) -> None:
        self.engine = engine
        self.stage = engine.zero_optimization_stage()
        self._parameters = dict(engine.module.named_parameters())
        self.module, self.names, self.shards = engine.module, {}, {}
        if self.stage == 3:
            self.module, self.names, self.shards = self._partitions()
        self._held = {self.names.get(name, name): parameter for name, parameter in self.module.named_parameters()}
        # The record names an optimizer by its class: the one that DeepSpeed was told to use.
        kind = type(type(engine.basic_optimizer).__name__, (EngineStep,), {})
        self.optimizer = kind(engine, self._held.values())

    def _partitions(self) -> tuple[nn.Module, dict[str, str], dict[str, Shard]]:
        """ZeRO 3 leaves the model's parameters empty, and each rank an equal run of elements of each, which are whole
        rows here as all sizes are even."""
        module, names, shards = nn.Module(), {}, {}
        for name, parameter in self._parameters.items():
            shape, mine = tuple(parameter.ds_shape), parameter.ds_tensor
            rows = mine.numel() * shape[0] // parameter.ds_numel
            first, rest = rows * dist.get_rank(), shape[1:]
            key = name.replace(".", "/")
            module.register_parameter(key, nn.Parameter(mine.detach().view(rows, *rest)))
            names[key] = name
            shards[name] = Shard(shape, (first, *(0 for _ in rest)), (first + rows, *rest), {0: "fsdp"})
        for name, buffer in self.engine.module.named_buffers():
            key = name.replace(".", "/")
            module.register_buffer(key, buffer)
            names[key] = name
        return module, names, shards

    @contextmanager
    def gradients(self) -> Iterator[None]:
        """Within, every parameter held has its gradient of this step, summed over the ranks, in `grad`."""
        if self.stage == 0:
            yield
            return
        before = {name: parameter.grad for name, parameter in self._held.items()}
        for name, parameter in self._parameters.items():
            held = self._held[name]
            if self.stage == 3:
                held.grad = safe_get_local_grad(parameter).view(held.shape)
            else:
                held.grad = safe_get_full_grad(parameter)
        yield
        for name, parameter in self._held.items():
            parameter.grad = before[name]

    def evidence(self) -> str:
        """What shows which stage of ZeRO is at work: the elements that this rank keeps optimizer states of."""
        optimizer = self.engine.optimizer
        total = sum(getattr(p, "ds_numel", p.numel()) for p in self._parameters.values())
        kept, gradients = total, "whole"
        if self.stage == 3:
            kept, gradients = sum(group.numel() for group in optimizer.fp32_partitioned_groups_flat), "partitioned"
        elif self.stage:
            kept = sum(group.numel() for group in optimizer.single_partition_of_fp32_groups)
            gradients = "partitioned" if optimizer.partition_gradients else "whole"
        return (
            f"ZeRO stage {self.stage}: {type(optimizer).__name__} keeps states of {kept} of {total} elements on this"
            f" rank, gradients {gradients}"
        )
