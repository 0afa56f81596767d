"""Faults of pipeline parallelism."""

from collections.abc import Callable

from torch import Tensor

from parity.train.data import Batch
from parity.train.faults.injection import around, at, scale
from parity.train.loop import Trainer
from parity.train.moe import Router


@at("end")
def accumulation_scaled_at_every_stage(trainer: Trainer) -> None:
    """A stage's gradients are divided by the micro-batches once for every stage behind it.

    DeepSpeed scaled whatever a stage ran backward, the last one's loss and the others' received gradients.
    """
    stages = trainer.mesh.comm("pp")
    behind = stages.size - 1 - stages.rank
    _after_accumulating(trainer, lambda: trainer.options.accumulate**-behind)


@at("end")
def tokens_not_divided(trainer: Trainer) -> None:
    """The loss that runs backward is a sum over tokens, and only what is reported is a mean.

    torchtitan divided by the valid tokens outside of its pipeline path alone.
    """
    assert trainer.pipeline is not None
    around(trainer.pipeline, "backward", lambda backward, micro, tokens: backward(micro, 1) / tokens)


@at("end")
def divided_by_micro_batches_twice(trainer: Trainer) -> None:
    """Gradients of a mean over the whole batch are divided by its micro-batches. AReaL normalised over the batch, and
    Megatron-LM's schedule divided again."""
    _after_accumulating(trainer, lambda: 1 / trainer.options.accumulate)


@at("end")
def tied_gradients_not_summed(trainer: Trainer) -> None:
    """The first stage's embedding and the last one's output head each follow their own gradient, and part.

    Megatron-LM computed the head's gradient after the stages had met over it.
    """
    around(trainer, "sum_tied", lambda _original: None)


@at("end")
def hash_ids_dropped(trainer: Trainer) -> None:
    """A layer that is routed by token id gets none on any stage but the first, and chooses by score without a word.

    NeMo Automodel's router did so when such a layer came to lie on a later stage.
    """
    for module in trainer.model.modules():
        if isinstance(module, Router) and trainer.mesh.comm("pp").rank > 0:
            module.forward = _by_score(module)


def _by_score(router: Router) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]:
    def forward(x: Tensor, _tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        table, router.table = router.table, None
        try:
            return Router.forward(router, x, None)
        finally:
            router.table = table

    return forward


def _after_accumulating(trainer: Trainer, factor: Callable[[], float]) -> None:
    def accumulate(original: Callable[[list[Batch], int], float], micro: list[Batch], tokens: int) -> float:
        loss = original(micro, tokens)
        scale(trainer.parameters.values(), factor())
        return loss

    around(trainer, "accumulate", accumulate)
