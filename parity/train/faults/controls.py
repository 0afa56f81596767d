"""Controls: what must pass, what only a narrow dtype can hide, and what must never pass."""

import math
from collections.abc import Callable

import torch

from parity.train.faults.injection import around, at
from parity.train.gradients import local
from parity.train.loop import Trainer

FIRST_NAN = 2
"""The step from which on NaN controls have no numbers, counted from 0."""


@at("end")
def micro_batches_reordered(trainer: Trainer) -> None:
    """Micro-batches are computed in reverse. Their gradients are the same, and their sum is rounded otherwise."""
    around(trainer, "accumulate", lambda accumulate, micro, tokens: accumulate(micro[::-1], tokens))


@at("end")
def gradients_in_bf16(trainer: Trainer) -> None:
    """What a micro-batch adds to a gradient is rounded to bf16, and so is what ranks exchange and sum. A Megatron-LM
    backend accumulated so: the loss was the same to the last bit, and the norm 3.5e-5 off."""
    for parameter in trainer.parameters.values():
        parameter.register_hook(lambda gradient: gradient.bfloat16().to(gradient.dtype))
    trainer.narrow = frozenset(trainer.parameters)


@at("end")
def nan_from_third_step(trainer: Trainer) -> None:
    """From the third step on, the loss and every gradient are NaN, and with them all weights after it."""

    @torch.no_grad()
    def backward(original: Callable[[int], float], step: int) -> float:
        with torch.enable_grad():
            loss = original(step)
        if step < FIRST_NAN:
            return loss
        for parameter in trainer.parameters.values():
            local(parameter.grad).fill_(math.nan)
        return math.nan

    around(trainer, "backward", backward)


@at("end")
def nan_in_both(trainer: Trainer) -> None:
    """The same, for a comparison whose baseline has it too."""
    nan_from_third_step(trainer)
