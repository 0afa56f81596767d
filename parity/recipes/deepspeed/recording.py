"""Shows the recorder what DeepSpeed's engine really holds: tensor-parallel shards, ZeRO's partitions and gradients."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import deepspeed.comm as dist
import torch
from deepspeed.checkpoint.constants import DS_AUTOTP_UC_META
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
        self.module, self.names = engine.module, None
        if self.stage == 3:
            self.module, self.names, self.shards = self._partitions()
        else:
            self.shards = {name: one for name, p in self._parameters.items() if (one := _autotp(p)) is not None}
        self._held = {
            (self.names or {}).get(name, name): parameter for name, parameter in self.module.named_parameters()
        }
        self.optimizer = EngineStep(engine, self._held.values())

    def _partitions(self) -> tuple[nn.Module, dict[str, str], dict[str, Shard]]:
        """ZeRO 3 leaves the model's parameters empty, and each rank an equal run of elements of each, which are whole
        rows here as all sizes are even."""
        module, names, shards = nn.Module(), {}, {}
        for name, parameter in self._parameters.items():
            shape, mine = tuple(parameter.ds_shape), parameter.ds_tensor
            rows = mine.numel() * shape[0] // parameter.ds_numel
            key = name.replace(".", "/")
            module.register_parameter(key, nn.Parameter(mine.detach().view(rows, *shape[1:])))
            first = rows * dist.get_rank()
            names[key] = name
            shards[name] = Shard(
                shape, (first,) + (0,) * (len(shape) - 1), (first + rows, *shape[1:]), {0: "fsdp"}
            )
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

    def norm(self) -> float:
        """L2 norm of the whole gradient, which the engine itself does not tell in fp32 without ZeRO: every tensor-
        parallel part once, and what all ranks hold once."""
        cut = torch.zeros((), dtype=torch.float64, device=self.engine.device)
        whole = cut.clone()
        for name, parameter in self._held.items():
            square = parameter.grad.double().square().sum()
            if name in self.shards:
                cut += square
            else:
                whole += square
        if self.shards:
            dist.all_reduce(cut)
        return float((cut + whole).sqrt())

    def evidence(self) -> str:
        """What shows which stage of ZeRO is at work: the elements that this rank keeps optimizer states of."""
        optimizer = self.engine.optimizer
        total = sum(getattr(p, "ds_numel", p.numel()) for p in self._parameters.values())
        if self.stage == 3:
            kept = sum(group.numel() for group in optimizer.fp32_partitioned_groups_flat)
        elif self.stage:
            kept = sum(group.numel() for group in optimizer.single_partition_of_fp32_groups)
        else:
            kept = total
        gradients = self.stage == 3 or (self.stage == 2 and optimizer.partition_gradients)
        return (
            f"ZeRO stage {self.stage} ({type(optimizer).__name__}): optimizer states of {kept} of {total} elements"
            f" on this rank, gradients {'partitioned' if gradients else 'whole'}"
        )


def _autotp(parameter: nn.Parameter) -> Shard | None:
    """The part of a weight that AutoTP left this rank, by what DeepSpeed notes for its universal checkpoints."""
    about = getattr(parameter, DS_AUTOTP_UC_META, None)
    if about is None or about["replicated"] or not about["partition_sizes"]:
        return None
    dim, rank = about["partition_dim"], dist.get_rank()
    stops = list(accumulate(about["partition_sizes"]))
    shape = tuple(about["logical_shape"])
    starts = [0] * len(shape)
    ends = list(shape)
    starts[dim], ends[dim] = stops[rank] - about["partition_sizes"][rank], stops[rank]
    return Shard(shape, tuple(starts), tuple(ends), {dim: "tp"})
