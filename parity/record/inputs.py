"""What a step's calls of the model took and gave: the token ids of its micro-batches, and its loss."""

import math
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from parity.record.places import Places, whole

__all__ = ["Inputs", "unseen_batch"]

_IDS = ("input_ids", "tokens", "token_ids", "idx", "ids", "inputs", "input", "x", "src")
"""What the first argument of models of token ids is called. Labels, masks and positions are not taken: some layouts
give them to a loss function, cut them or make them themselves."""


class Inputs:
    """Collects over the calls of one step after another."""

    def __init__(self) -> None:
        self._calls: list[tuple[bool, Tensor | None, list[Tensor]]] = []

    def take(self, training: bool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[[Any], None]:
        """A call of the model.

        Args:
            training: whether the model is in training mode. Calls in another are forgotten where both happen.
            args: of the call.
            kwargs: of the call.

        Returns:
            Wants the output.
        """
        if _asks_for_shapes():
            return lambda output: None
        ids = _token_ids(args, kwargs)
        # Copied, as the loop may fill the same buffers again.
        losses: list[Tensor] = []
        self._calls.append((training, None if ids is None else ids.detach().clone(), losses))

        def given(output: Any) -> None:
            loss = _loss(output)
            if loss is not None:
                losses.append(loss.detach().clone())  # some schedules divide it in place

        return given

    def batch(self) -> list[Tensor] | None:
        """The token ids of each micro-batch, or None if a call had none."""
        ids = [taken for _, taken, _ in self._counted()]
        there = [one for one in ids if one is not None]
        return there if there and len(there) == len(ids) else None

    def loss(self) -> float | None:
        """The mean of the losses that the calls gave on this rank, or None if one gave none."""
        losses = [one for _, _, given in self._counted() for one in given]
        if not losses or len(losses) != len(self._counted()):
            return None
        mean = torch.stack([one.to(torch.float64) for one in losses]).mean().item()
        return mean if isinstance(mean, float) else math.nan

    def forget(self) -> None:
        """Begin a step."""
        self._calls.clear()

    def _counted(self) -> list[tuple[bool, Tensor | None, list[Tensor]]]:
        training = [call for call in self._calls if call[0]]
        return training or self._calls


def unseen_batch(places: Places, world_size: int) -> str | None:
    """Why this rank's token ids do not tell which samples it trains on; None if they do."""
    if world_size > 1 and not whole(places, world_size):
        known = ", ".join(f"{axis}={size}" for axis, (_, size) in places.items()) or "nothing"
        return f"whose batch is whose: {known} is known of the places of {world_size} ranks; say it with --mesh"
    if places.get("cp", (0, 1))[1] > 1:
        return "the batch: context parallel ranks are given parts of the same samples"
    return None


def _asks_for_shapes() -> bool:
    """Whether a pipeline stage of torch calls its module to learn the shapes of what it sends. It does so before the
    first step, with that step's first micro-batch."""
    if "torch.distributed.pipelining.stage" not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_forward_metadata_inference":
            return True
        frame = frame.f_back
    return False


def _token_ids(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    first = args[0] if args else None
    if _is_ids(first):
        return first
    for given in (kwargs, first):
        if isinstance(given, Mapping):
            found = next((given[name] for name in _IDS if name in given and _is_ids(given[name])), None)
            if found is not None:
                return found
    return None


def _is_ids(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.ndim > 0
        and not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
        and type(value) in (Tensor, torch.nn.Parameter)
    )


def _loss(output: Any) -> Tensor | None:
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif not isinstance(output, Tensor):
        output = getattr(output, "loss", None)
    return output if isinstance(output, Tensor) and output.ndim == 0 and output.is_floating_point() else None
