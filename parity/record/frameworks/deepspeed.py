"""DeepSpeed: engines of ZeRO stages 0 to 2, pipeline engines, and what AutoTP cut. Tried with 0.19.8.

An engine clips and steps by itself, and ZeRO's optimizer holds flat copies of each rank's share of the weights, so
the engine's own step is what is followed. A rank's share of the gradients, which is all that it has after the
backward pass, is recorded as that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from deepspeed.runtime.engine import DeepSpeedEngine  # type: ignore[import-not-found]
from torch import Tensor, nn

from parity.errors import UsageError
from parity.record import frameworks
from parity.record.parts import Part
from parity.record.places import instances

if TYPE_CHECKING:
    from parity.record.trained import Trained

__all__ = ["Framework"]

_CUT = "ds_autotp_universal_checkpoint_meta"
"""Where AutoTP says, for its own checkpoints, how it cut a parameter."""


@dataclass(frozen=True)
class _Cut:
    """Which part of the whole tensor a rank holds."""

    shape: Sequence[int]
    starts: Sequence[int]
    stops: Sequence[int]
    split: Sequence[str]


@dataclass(frozen=True)
class _Optimizer:
    """An optimizer's groups with the model's parameters in the place of flat copies."""

    param_groups: list[dict[str, Any]]
    state: Mapping[Any, Any]


class Framework(frameworks.Framework):
    """An engine's module."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__(root)
        self._engine = _engine_of(root)
        self._optimizer = self._engine.optimizer
        self._stage = int(self._engine.zero_optimization_stage()) if self._engine.zero_optimization() else 0
        self._shares = [one for one in self._parameters() if hasattr(one, "_hp_mapping")]
        if self._shares and self._stage < 3:
            groups = {_ranks(one._dp_group) for one in self._shares if hasattr(one, "_dp_group")}
            if len(groups) == 1:
                self.summed_over = groups.pop()
            else:
                self.unseen.append("gradients: DeepSpeed spreads them over other ranks for experts than for the rest")
        elif self._optimizer is not self._engine.basic_optimizer and self._stage < 3:
            self.unseen.append(f"gradients: DeepSpeed's {type(self._optimizer).__name__} keeps them to itself")

    @classmethod
    def claims(cls, module: nn.Module) -> bool:
        """Whether this is an engine, or the module of one."""
        return _engine_of(module) is not None

    def shards(self) -> Mapping[str, _Cut]:
        """What AutoTP cut, along one dimension each, evenly or not.

        Raises:
            UsageError: there is nothing to be seen of the weights, or AutoTP does not say how it cut one.
        """
        if self._stage == 3:
            raise UsageError(
                "ZeRO stage 3 leaves no rank a whole weight or gradient: neither is seen; stage 2 is the same"
            )
        found = {}
        for prefix, layer in self.root.named_modules():
            for name, parameter in layer.named_parameters(recurse=False):
                cut = _cut(parameter, layer, f"{prefix}.{name}")
                if cut is not None:
                    found[f"{prefix}.{name}"] = cut
        return found

    def coordinates(self) -> dict[str, tuple[int, int]]:
        """Tensor, pipeline, sequence and data parallel places."""
        if not dist.is_initialized():
            return {}
        from deepspeed.utils import groups  # type: ignore[import-not-found]

        places = {}
        grid = getattr(self._engine, "grid", None)
        if grid is not None and grid.get_pipe_parallel_world_size() > 1:
            places["pp"] = (grid.get_stage_id(), grid.get_pipe_parallel_world_size())
        layer = next((one for one in self.root.modules() if getattr(one, "tp_world_size", 0) > 1), None)
        if layer is not None:
            places["tp"] = (int(layer.tp_index), int(layer.tp_world_size))
        if groups._get_sequence_parallel_world_size() > 1:
            places["cp"] = (groups._get_sequence_parallel_rank(), groups._get_sequence_parallel_world_size())
        ranks = self.summed_over or _ranks(self._engine.data_parallel_group)
        if len(ranks) > 1 and "cp" not in places:
            places["dp"] = (ranks.index(dist.get_rank()), len(ranks))
        return places

    def attach(self, trained: "Trained") -> None:
        """Follow the engine's own steps."""
        engine, inner = self._engine, type(self._engine)._take_model_step

        def _take_model_step(*args: Any, **kwargs: Any) -> Any:
            scale = getattr(self._optimizer, "cur_scale", getattr(self._optimizer, "loss_scale", None))
            rates = {float(group["lr"]) for group in engine.basic_optimizer.param_groups if "lr" in group}
            trained.framework_steps(self._described(), rates, "before the engine's step", scale)
            made = inner(engine, *args, **kwargs)
            norm = engine.get_global_grad_norm()
            trained.step_over(None if norm is None else float(norm))
            return made

        engine._take_model_step = _take_model_step

    def steps(self, optimizer: Any) -> bool:
        """Whether this is the engine's optimizer."""
        return optimizer is self._engine.basic_optimizer or optimizer is self._optimizer

    def moved(self) -> None:
        """Copy the weights into ZeRO's flat ones."""
        if self._optimizer is self._engine.basic_optimizer:
            return
        if not hasattr(self._optimizer, "refresh_fp32_params"):
            raise UsageError(
                f"PARITY_PERTURB: DeepSpeed's {type(self._optimizer).__name__} copied the weights before"
            )
        self._optimizer.refresh_fp32_params()

    def gradient(self, part: Part) -> Tensor | None:
        """A rank's share of a gradient, with zeros around it; or the gradient."""
        parameter: Any = part.tensor
        if not hasattr(parameter, "_hp_mapping"):
            return part.tensor.grad
        share = parameter._hp_mapping
        if not self.summed_over or not part.trainable:
            return None
        if share is None:
            return torch.zeros(part.box.extents, device=part.local.device)  # another rank's
        piece = share.get_lp_grad_fragment(parameter._index_in_param_group).detach()
        whole = piece.new_zeros(part.box.numel)
        at = share.lp_fragment_address
        whole[at.start : at.start + at.numel] = piece.reshape(-1)[: at.numel]
        return whole.view(part.box.extents)

    def _parameters(self) -> list[Any]:
        return list(self.root.parameters())

    def _described(self) -> list[Any]:
        inner = self._engine.basic_optimizer
        groups = getattr(self._optimizer, "bit16_groups", None)
        if groups is None or len(groups) != len(inner.param_groups):
            return [inner]
        kind = type(type(inner).__name__, (_Optimizer,), {})
        given = [{**group, "params": list(params)} for group, params in zip(inner.param_groups, groups, strict=True)]
        return [kind(given, inner.state)]


def _engine_of(module: nn.Module) -> Any:
    if isinstance(module, DeepSpeedEngine):
        return module
    return next((engine for engine in instances(DeepSpeedEngine) if engine.module is module), None)


def _ranks(group: Any) -> tuple[int, ...]:
    return tuple(dist.get_process_group_ranks(group))


def _cut(parameter: Any, layer: Any, name: str) -> _Cut | None:
    about = getattr(parameter, _CUT, None)
    if about is None:
        if getattr(parameter, "tensor_model_parallel", False) and getattr(layer, "tp_world_size", 1) > 1:
            raise UsageError(f"{name}: AutoTP cut it and does not say how; DeepSpeed 0.19.8 does")
        return None
    sizes, dim, shape = about.get("partition_sizes"), about.get("partition_dim"), about.get("logical_shape")
    if about.get("replicated") or dim is None or len(about.get("sub_param_sizes") or ()) > 1:
        if not about.get("replicated"):
            raise UsageError(f"{name}: AutoTP cut it into other parts than boxes")
        return None
    if not sizes or not shape or sum(sizes) != shape[dim]:
        raise UsageError(f"{name}: AutoTP cut it and does not say where")
    starts, stops = [0] * len(shape), list(shape)
    starts[dim] = sum(sizes[: layer.tp_index])
    stops[dim] = starts[dim] + sizes[layer.tp_index]
    return _Cut(shape, starts, stops, ("tp",))
