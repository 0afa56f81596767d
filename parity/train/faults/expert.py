"""Faults of experts and their routers."""

from collections.abc import Callable
from dataclasses import replace

from parity.train.collectives import Comm
from parity.train.faults.injection import around, at, scale
from parity.train.loop import Trainer
from parity.train.moe import Moe


@at("end")
def router_gradients_not_reduced(trainer: Trainer) -> None:
    """Each rank's routers weigh its own tokens, and their gradients stay partial sums, so that ranks part.

    transformers did not reduce the gradients of routing weights under expert parallelism.
    """
    for name, shard in trainer.shards.items():
        if name.endswith("router.weight"):
            trainer.shards[name] = replace(shard, partial=())


@at("end")
def expert_gradients_times_ep(trainer: Trainer) -> None:
    """Experts have seen the tokens of all ranks of their group, and their gradients are multiplied by the ranks as
    well. DeepSpeed averaged them over the ranks that hold the same experts, instead of all."""
    _experts_scaled(trainer, trainer.mesh.size("ep"))


@at("end")
def expert_gradients_over_ep(trainer: Trainer) -> None:
    """Experts' gradients are divided by the ranks of their group, as if each had been counted once a rank. VeOmni
    divided by the group's size where it had to divide by the world's."""
    _experts_scaled(trainer, 1 / trainer.mesh.size("ep"))


@at("end")
def aux_loss_times_micro_batches(trainer: Trainer) -> None:
    """Every micro-batch adds the load-balancing loss at its full weight. NeMo Automodel normalised the cross-entropy
    over the micro-batches and not this."""
    _balancing_scaled(trainer, trainer.options.accumulate)


@at("end")
def aux_loss_over_ranks(trainer: Trainer) -> None:
    """The balancing loss's gradient is averaged over data parallel ranks after it was divided by them. In Megatron-LM
    the global variant of it was too small by that factor."""
    _balancing_scaled(trainer, 1 / trainer.mesh.size("data"))


@at("end")
def aux_loss_added_twice(trainer: Trainer) -> None:
    """The balancing loss enters the backward pass twice, and the report once. Where Megatron-LM recomputed layers it
    was the report that counted it twice."""
    _balancing_scaled(trainer, 2)


@at("end")
def expert_bias_not_reduced(trainer: Trainer) -> None:
    """Selection biases follow the load of each rank's own tokens, and so differ from rank to rank.

    A test of Transformer Engine summed the loads into a copy, and updated by its own.
    """
    around(trainer, "balance", lambda balance, _ranks: balance(Comm()))


def _experts_scaled(trainer: Trainer, factor: float) -> None:
    def reduce(original: Callable[[], None]) -> None:
        original()
        scale((p for name, p in trainer.parameters.items() if ".experts." in name), factor)

    around(trainer, "reduce", reduce)


def _balancing_scaled(trainer: Trainer, factor: float) -> None:
    """Scale the gradient of the balancing loss, and not what is reported of it."""
    for module in trainer.model.modules():
        if isinstance(module, Moe):
            module.aux_scale *= factor
    around(trainer, "auxiliary_loss", lambda reported: reported() / factor)
