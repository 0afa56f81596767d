"""Faults of data parallelism: in the samples, in what is divided by what, and in the gradients' sum."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from parity.train.data import IGNORED, Batch, batches
from parity.train.faults.injection import around, at, scale
from parity.train.loop import Trainer
from parity.train.weights import draw


@at("end")
def gradients_summed_not_averaged(trainer: Trainer) -> None:
    """Gradients are summed over ranks and were divided by the whole batch's tokens, and are still multiplied by the
    number of ranks, as if a mean had been taken that must be undone. torchtune was off by the world size."""

    def reduce(original: Callable[[], None]) -> None:
        original()
        scale(trainer.parameters.values(), trainer.mesh.size("data"))

    around(trainer, "reduce", reduce)


@at("end")
def last_micro_batch_not_synced(trainer: Trainer) -> None:
    """All micro-batches but the last are summed over the ranks. With FSDP the last one's gradients wait unreduced,
    and come with the next step's.

    FunASR's `no_sync` was off by one: it let the first of each group through.
    """
    reduce = trainer.reduce
    sharded = isinstance(trainer.model, FSDPModule)

    def accumulate(original: Callable[[list[Batch], int], float], micro: list[Batch], tokens: int) -> float:
        loss = original(micro[:-1], tokens)
        reduce()
        if sharded:
            trainer.model.set_requires_gradient_sync(False)
        loss += original(micro[-1:], tokens)
        if sharded:
            trainer.model.set_requires_gradient_sync(True)
        return loss

    around(trainer, "accumulate", accumulate)
    around(trainer, "reduce", lambda _original: None)


@at("end")
def gradients_zeroed_between_micro_batches(trainer: Trainer) -> None:
    """What earlier micro-batches left in the gradients is gone when the last one's come, and never missed.

    NeMo Automodel re-initialised its pipeline stages between micro-batches, and with them `param.grad`.
    """
    if trainer.pipeline is None:
        trainer.model.register_forward_pre_hook(lambda *_: trainer.optimizer.zero_grad(set_to_none=True))
        return

    def forget(parameter: Tensor) -> Callable[[Tensor], None]:
        # Called with a micro-batch's gradient before it is added to the sum.
        return lambda _gradient: setattr(parameter, "grad", None)

    for parameter in trainer.parameters.values():
        parameter.register_hook(forget(parameter))


@at("end")
def mean_of_rank_means(trainer: Trainer) -> None:
    """Each rank divides by the tokens that it has, and the ranks' means are averaged; right only if all have equally
    many. Megatron-LM counted the tokens of a context parallel rank alone."""
    ranks = trainer.mesh.size("tokens")

    def accumulate(original: Callable[[list[Batch], int], float], micro: list[Batch], _tokens: int) -> float:
        mine = sum(int((batch.labels != IGNORED).sum()) for batch in micro)
        return original(micro, max(mine, 1) * ranks)

    around(trainer, "accumulate", accumulate)


@at("end")
def mean_of_micro_batch_means(trainer: Trainer) -> None:
    """Each micro-batch is divided by the tokens that it has on this rank, and these means are averaged; right only if
    all have equally many. transformers accumulated so."""
    means = trainer.options.accumulate * trainer.mesh.size("tokens")

    def loss(original: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor) -> Tensor:
        return original(logits, labels) / (labels != IGNORED).sum().clamp(min=1)

    around(trainer.model, "loss", loss)
    around(trainer, "accumulate", lambda original, micro, _tokens: original(micro, means))


@at("end")
def replicas_from_own_seeds(trainer: Trainer) -> None:
    """Each data parallel rank draws the whole model from a seed of its own, and nobody broadcasts. Early torchtitan
    did not."""
    for name, parameter in trainer.parameters.items():
        shard = trainer.shards[name]
        with torch.no_grad():
            parameter.copy_(shard.part(draw(name, shard.shape, trainer.seed + trainer.mesh.comm("dp").rank)))


@at("end")
def sampler_seed_per_rank(trainer: Trainer) -> None:
    """Each rank shuffles by a seed of its own and then takes its part, so that some samples are trained twice and
    others never. LongLive multiplied its samplers' seed by the rank."""
    _dealt_from(trainer, lambda rank, step: (trainer.seed + rank, step, rank))


@at("end")
def same_samples_on_every_rank(trainer: Trainer) -> None:
    """Every rank takes the first rank's part. icefall's sampler did so where it failed to detect the ranks."""
    _dealt_from(trainer, lambda _rank, step: (trainer.seed, step, 0))


@at("end")
def samples_a_step_ahead(trainer: Trainer) -> None:
    """All ranks but the first have taken one batch before training, and see each sample a step early. The ranks of
    Megatron-Bridge's cyclic sampler came to the end of their epochs at different steps."""
    _dealt_from(trainer, lambda rank, step: (trainer.seed, step + (rank > 0), rank))


def _dealt_from(trainer: Trainer, source: Callable[[int, int], tuple[int, int, int]]) -> None:
    """Have each rank's part come from a seed, a step and a place, by rank and step. All ranks know the others', so
    that what is divided by is the number of tokens that are really trained on."""
    ranks = trainer.mesh.size("data")

    def global_batch(_original: object, step: int) -> list[Batch]:
        parts = []
        for rank in range(ranks):
            seed, taken, place = source(rank, step)
            parts.append([batch.part(place, ranks) for batch in batches(trainer.options, seed, taken)])
        return [
            Batch(torch.cat([one.tokens for one in same]), torch.cat([one.labels for one in same]))
            for same in zip(*parts, strict=True)
        ]

    around(trainer, "global_batch", global_batch)
