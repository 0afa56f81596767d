"""Which parameters and buffers a rank holds, and where its part of each lies in the whole tensor."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor, nn

from parity.errors import UsageError
from parity.record.placements import Box, box_of, is_dtensor

__all__ = ["Described", "Part", "bare_name", "find_parts"]

_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""What `torch.compile`, FSDP and activation checkpointing put between a module and its child."""


class Described(Protocol):
    """A part described by hand. It may have `split` besides: axis names by dimension, or a sequence of names."""

    @property
    def shape(self) -> Sequence[int]:
        """Of the whole tensor."""

    @property
    def starts(self) -> Sequence[int]:
        """Per dimension, the first index that this rank holds."""

    @property
    def stops(self) -> Sequence[int]:
        """Per dimension, one past the last."""


@dataclass(frozen=True, eq=False)
class Part:
    """One parameter or buffer, as far as this rank holds it.

    Attributes:
        name: model-wide.
        tensor: the parameter itself, possibly a DTensor.
        box: where this rank's part lies.
        placements: a DTensor's, else empty.
        trainable: whether it gets a gradient.
        kept: of a buffer, whether a checkpoint has it and it is more than statistics of what this rank has seen.
    """

    name: str
    tensor: Tensor
    box: Box
    placements: tuple[Any, ...] = ()
    trainable: bool = False
    kept: bool = True

    @property
    def local(self) -> Tensor:
        """This rank's part, as plain a tensor as it is stored."""
        # Not `to_local()`: that is an autograd function, ten times slower, and waits.
        return self.tensor._local_tensor if self.placements else self.tensor

    @property
    def dtype(self) -> str:
        """Without the prefix: float32."""
        return str(self.tensor.dtype).removeprefix("torch.")

    def exclusive(self, world_size: int) -> bool:
        """Whether no other rank can hold any of this part."""
        return world_size == 1 or (bool(self.placements) and self.box.pieces == world_size)


def find_parts(
    modules: Sequence[nn.Module],
    shards: Mapping[str, Described],
    names: Sequence[Mapping[str, str]],
) -> tuple[list[Part], list[Part]]:
    """The parameters and the buffers of all modules, in order, each tensor once under its first name.

    Args:
        modules: one, or a rank's stages.
        shards: descriptions of what is held here, by the tensor's name, model-wide or the module's. Other DTensors
            say it themselves, and other plain tensors are whole.
        names: for each module, the model-wide names by the module's own. Names that are missing are their own.

    Raises:
        UsageError: a description does not fit its tensor or describes none, two tensors have one name, or a
            parameter cannot be described.
    """
    parameters, buffers, used = [], [], set[str]()
    seen: dict[str, int] = {}
    for module, naming in zip(modules, names, strict=True):
        kept = _kept_buffers(module)
        for kind, own, tensor in _tensors(module):
            if id(tensor) in seen.values():
                continue
            bare = bare_name(own)
            name = naming.get(own, naming.get(bare, bare))
            if name in seen:
                raise UsageError(f"{name}: two tensors of the model have this name; tell them apart with names=")
            seen[name] = id(tensor)
            found = [key for key in (name, own, bare) if key in shards]
            used.update(found)
            part = _part(name, tensor, shards[found[0]] if found else None, trainable=tensor.requires_grad)
            if kind == "buffer":
                buffers.append(replace(part, kept=own in kept))
            elif tensor.is_complex():
                raise UsageError(f"{name}: complex parameters cannot be recorded; store their real view")
            else:
                parameters.append(part)
    if unknown := sorted(shards.keys() - used):
        raise UsageError(f"shards: the model has no {unknown[0]}; it has {', '.join(list(seen)[:5])}, …")
    return parameters, buffers


def _tensors(module: nn.Module) -> Iterator[tuple[str, str, Tensor]]:
    yield from (("parameter", name, tensor) for name, tensor in module.named_parameters())
    yield from (("buffer", name, tensor) for name, tensor in module.named_buffers())


def _kept_buffers(module: nn.Module) -> set[str]:
    return {
        f"{path}.{name}" if path else name
        for path, owner in module.named_modules()
        if not getattr(owner, "track_running_stats", False)
        for name in owner._buffers.keys() - owner._non_persistent_buffers_set
    }


def bare_name(name: str) -> str:
    """A parameter's name without what wrappers add to it."""
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":  # DistributedDataParallel and its like, around everything
        parts.pop(0)
    return ".".join(parts)


def _part(name: str, tensor: Tensor, described: Described | None, *, trainable: bool) -> Part:
    if tensor.device.type == "meta":
        raise UsageError(f"{name}: has no values yet (device meta); start the recorder once the weights are there")
    placements = tuple(tensor.placements) if is_dtensor(tensor) else ()
    if described is None:
        box = box_of(name, tensor) if placements else Box.whole(tuple(tensor.shape))
        return Part(name, tensor, box, placements, trainable)
    held = tuple(tensor._local_tensor.shape if placements else tensor.shape)
    box = Box(tuple(described.shape), tuple(described.starts), tuple(described.stops))
    if not box.fits or box.extents != held:
        cut = ", ".join(f"{a}:{b}" for a, b in zip(box.starts, box.stops, strict=False))
        raise UsageError(f"{name}: described as [{cut}] of {list(box.shape)}, but the tensor here is {list(held)}")
    return Part(name, tensor, box.split_by(getattr(described, "split", ())), placements, trainable)
