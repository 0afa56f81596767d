"""Faults of the optimizer, put into its step, so that they are there for whoever watches the step.

Gradients were read, summed and clipped before; a parameter whose gradient is taken away is not updated.
"""

from typing import Any

import torch

from parity.train.faults.injection import at
from parity.train.gradients import local
from parity.train.loop import Trainer


@at("end")
def adam_step_ahead(trainer: Trainer) -> None:
    """Before its first update Adam has counted one step already, of which it saw nothing, so that its moments are
    corrected too little and the first update is 1.34 times too small.

    Megatron-LM made the optimizer's state ahead of training, and the step that this took stayed counted.
    """
    optimizer = trainer.optimizer

    def count_one(*_: Any) -> None:
        for parameter in trainer.parameters.values():
            if parameter not in optimizer.state:
                nothing = torch.zeros_like(parameter)
                optimizer.state[parameter] = {
                    "step": torch.tensor(1.0),
                    "exp_avg": nothing,
                    "exp_avg_sq": nothing.clone(),
                }

    optimizer.register_step_pre_hook(count_one)


@at("end")
def weight_decay_twice(trainer: Trainer) -> None:
    """Weights decay by the optimizer's own rule and once more beside it. Where a wrapper decays weights, the inner
    optimizer's decay has to be off; in Neuron_SP it was not."""

    @torch.no_grad()
    def decay(*_: Any) -> None:
        for group in trainer.optimizer.param_groups:
            for parameter in group["params"]:
                local(parameter).mul_(1 - group["lr"] * group["weight_decay"])

    trainer.optimizer.register_step_post_hook(decay)


@at("end")
def parameter_group_skipped(trainer: Trainer) -> None:
    """Norm weights and biases have gradients and are never updated. In Megatron-LM it was the parameters at the end
    of a bucket that belonged to no rank's shard."""
    trainer.optimizer.register_step_pre_hook(lambda *_: _forget(trainer.optimizer.param_groups[1]["params"]))


@at("end")
def optimizer_frozen(trainer: Trainer) -> None:
    """Nothing is updated. NeMo Automodel's parity test passed on two runs that did not train."""
    trainer.optimizer.register_step_pre_hook(lambda *_: _forget(trainer.parameters.values()))


@at("end")
def learning_rate_zero(trainer: Trainer) -> None:
    """Updates are computed and multiplied by nothing, while another learning rate is logged."""
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.0


def _forget(parameters: Any) -> None:
    for parameter in parameters:
        parameter.grad = None
