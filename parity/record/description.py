"""The line that says what a rank begins with: its parts and their hashes, its optimizers and its random state."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from parity.record.fingerprint import state_hash
from parity.record.lines import Line, hexadecimal
from parity.record.measure import Measure
from parity.record.parts import Part

__all__ = ["described", "optimizer_lines"]

_OF_THE_LAYOUT = {"is_expert_parallel"}
"""Settings of optimizers that say which ranks share a group, and nothing of how it is updated: Megatron Core's."""


def described(
    parameters: Sequence[Part],
    buffers: Sequence[Part],
    optimizers: Sequence[Any],
    *,
    layers: Sequence[int] | None,
    experts: Mapping[str, Sequence[int]] | None,
) -> Line:
    """The line of kind model.

    Args:
        parameters: of this rank.
        buffers: of this rank.
        optimizers: with parameters among those.
        layers: that this rank owns.
        experts: that this rank owns, by module.
    """
    return {
        "kind": "model",
        "parameters": _parts(parameters),
        "buffers": _parts(buffers),
        "optimizer": optimizer_lines(optimizers, parameters),
        "rng": hexadecimal(state_hash(torch.get_rng_state())),
        "layers": None if layers is None else list(layers),
        "experts": None if experts is None else {name: list(ids) for name, ids in experts.items()},
    }


def optimizer_lines(optimizers: Sequence[Any], parameters: Sequence[Part]) -> list[Line]:
    """What the line of kind model says of optimizers: their classes, groups and settings.

    Args:
        optimizers: as they are now.
        parameters: whose names the groups are told by.
    """
    names = {id(part.tensor): part.name for part in parameters}
    return [_optimizer(optimizer, names) for optimizer in optimizers]


def _parts(parts: Sequence[Part]) -> list[Line]:
    if not parts:
        return []
    with torch.no_grad():
        # No keys are kept: buffers are hashed once.
        hashes = Measure(parts, key_bytes=0).hashes([part.local for part in parts]).tolist()
    return [
        {
            "name": part.name,
            "shape": list(part.box.shape),
            "start": list(part.box.starts),
            "stop": list(part.box.stops),
            "dtype": part.dtype,
            "split": {str(dim): axis for dim, axis in part.box.split.items()},
            "trainable": part.trainable,
            "hash": hexadecimal(total),
        }
        for part, total in zip(parts, hashes, strict=True)
    ]


def _optimizer(optimizer: Any, names: Mapping[int, str]) -> Line:
    groups = []
    for group in optimizer.param_groups:
        settings = {key: _plain(value) for key, value in group.items() if key not in {"params", *_OF_THE_LAYOUT}}
        line: Line = {key: value for key, value in settings.items() if value is not None}
        line["parameters"] = [names[id(one)] for one in group["params"] if id(one) in names]
        groups.append(line)
    steps = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
    return {"class": type(optimizer).__name__, "groups": groups, "state_step": int(max(steps, default=0))}


def _plain(value: object) -> object:
    """Numbers, booleans and lists of them, as JSON has them; None for anything else."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else None
    if isinstance(value, (list, tuple)):
        plain = [_plain(one) for one in value]
        return None if any(one is None for one in plain) else plain
    return value if isinstance(value, (bool, int, float)) else None
