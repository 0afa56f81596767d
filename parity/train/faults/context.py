"""Faults of context parallelism."""

from collections.abc import Callable

import torch
from torch import Tensor

from parity.train.collectives import gather
from parity.train.context_parallel import SEQUENCE, GatheredAttention
from parity.train.data import IGNORED, Batch
from parity.train.faults.injection import around, at
from parity.train.loop import Trainer
from parity.train.qwen3 import CausalAttention, Rotary


@at("end")
def positions_restart(trainer: Trainer) -> None:
    """Each rank counts positions from the start of its own stretch. Megatron-LM did so with packed sequences."""
    for module in trainer.model.modules():
        if isinstance(module, Rotary):
            module.first = 0


@at("end")
def kv_gradients_not_returned(trainer: Trainer) -> None:
    """Gradients that queries give to other ranks' keys and values are dropped on the way back; the forward is
    right. Transformer Engine's ring attention had wrong gradients of all three under a right output."""
    for module in trainer.model.modules():
        if isinstance(module, GatheredAttention):
            module.forward = _one_way(module)


def _one_way(core: GatheredAttention) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def gathered(mine: Tensor) -> Tensor:
        whole = list(gather(mine.detach(), core.comm, core.lengths, SEQUENCE).split(core.lengths, SEQUENCE))
        whole[core.comm.rank] = mine
        return torch.cat(whole, SEQUENCE)

    return lambda q, k, v: CausalAttention.forward(core, q, gathered(k), gathered(v), core.first)


@at("end")
def labels_shifted_after_split(trainer: Trainer) -> None:
    """Each rank shifts its own stretch by one to get its labels, and the last token before a cut gets none.

    BioNeMo's recipe shifted after the split; its first stretch had lost the label at the boundary.
    """
    comm = trainer.mesh.comm("cp")

    def stretches(original: Callable[[list[Batch]], list[Batch]], micro: list[Batch]) -> list[Batch]:
        mine = original(micro)
        if comm.rank == comm.size - 1:
            return mine
        return [Batch(one.tokens, _without_last(one.labels)) for one in mine]

    around(trainer, "stretches", stretches)


def _without_last(labels: torch.Tensor) -> torch.Tensor:
    return torch.cat((labels[:, :-1], torch.full_like(labels[:, -1:], IGNORED)), 1)
