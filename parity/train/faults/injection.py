"""When and how a fault gets into a trainer.

`Trainer` calls `inject` at three moments: `begin`, when nothing but its mesh is there; `split`, when the model
computes this rank's part but has no weights yet; and `end`. A fault's function is registered for one of them with
`at`, and mostly takes the place of one of the trainer's methods by `around`.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from parity.train.faults.catalog import FAULTS
from parity.train.gradients import local

if TYPE_CHECKING:
    from parity.train.loop import Trainer

__all__ = ["Moment", "around", "at", "inject", "made", "scale"]

Moment = Literal["begin", "split", "end"]

_FILES = ("context", "controls", "data", "expert", "layout", "metrics", "optimizer", "pipeline", "tensor")

_MADE: "dict[str, tuple[Moment, Callable[[Trainer], None]]]" = {}


def inject(trainer: "Trainer", moment: Moment) -> None:
    """Make the mistake that the trainer's options name, if this is its moment."""
    if trainer.options.fault:
        wanted, function = made()[trainer.options.fault]
        if wanted == moment:
            function(trainer)


def made() -> "dict[str, tuple[Moment, Callable[[Trainer], None]]]":
    """Every fault's moment and function, by its name."""
    for name in _FILES:
        importlib.import_module(f"parity.train.faults.{name}")
    return _MADE


def at(moment: Moment) -> "Callable[[Callable[[Trainer], None]], Callable[[Trainer], None]]":
    """Registers a function for the fault of its name: `norm_of_local_shard` makes `norm-of-local-shard`."""

    def register(function: "Callable[[Trainer], None]") -> "Callable[[Trainer], None]":
        name = function.__name__.replace("_", "-")
        if name not in FAULTS:
            raise LookupError(f"{name} is not in the catalogue of faults")
        _MADE[name] = (moment, function)
        return function

    return register


def around(owner: object, name: str, function: Callable[..., Any]) -> None:
    """Replace a method of one object by a function that gets the original first, and then its arguments."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *args: function(original, *args))


@torch.no_grad()
def scale(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply gradients, in place."""
    for parameter in parameters:
        local(parameter.grad).mul_(factor)
