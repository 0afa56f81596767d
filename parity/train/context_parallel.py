"""Context parallelism: each rank has a stretch of every sequence, and gathers all keys and values (as in Llama 3,
Dubey et al. 2024, section 3.3.2).

Everything but attention treats tokens one by one. Positions are counted over the whole sequence, labels were
shifted before the cut, and losses are summands of one sum, so no rank's number of tokens enters anything.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from parity.train.collectives import Comm, gather
from parity.train.moe import Load, Moe
from parity.train.options import TrainOptions
from parity.train.qwen3 import CausalAttention, Rotary
from parity.train.shards import Shard, span

__all__ = ["GatheredAttention", "apply", "lengths"]

SEQUENCE = 2
"""The sequence's dimension in (B, K, T, D)."""


def lengths(seq_len: int, ranks: int) -> list[int]:
    """Tokens of a sequence on each rank: a near-even split in the order of the ranks."""
    spans = (span(seq_len, ranks, rank) for rank in range(ranks))
    return [stop - start for start, stop in spans]


class GatheredAttention(CausalAttention):
    """Attention of this rank's queries to the keys and values of all ranks.

    Args:
        comm: the ranks.
        lengths: their tokens.
    """

    def __init__(self, comm: Comm, lengths: Sequence[int]) -> None:
        super().__init__()
        self.comm = comm
        self.lengths = list(lengths)
        self.first = sum(self.lengths[: comm.rank])

    def forward(self, q: Tensor, k: Tensor, v: Tensor, first: int = 0) -> Tensor:
        """Queries (B, H, T, D) of this rank, with keys and values (B, K, T, D), to (B, H, T, D)."""
        keys = gather(k, self.comm, self.lengths, SEQUENCE)
        values = keys if v is k else gather(v, self.comm, self.lengths, SEQUENCE)
        return super().forward(q, keys, values, self.first + first)


class _SequenceLoad(Load):
    """The load of all ranks' tokens of a micro-batch."""

    def __init__(self, comm: Comm) -> None:
        super().__init__()
        self.comm = comm

    def forward(self, load: Tensor, tokens: int) -> tuple[Tensor, int]:
        total = self.comm.sum(torch.cat((load, load.new_tensor([tokens]))))
        return total[:-1], int(total[-1])


def apply(model: nn.Module, options: TrainOptions, comm: Comm, shards: dict[str, Shard]) -> dict[str, Shard]:
    """Make a model compute on this rank's stretch of the sequence.

    Returns:
        The shards with their gradients, which are what this rank's tokens add, marked as still to be summed. Experts
        that are split over ranks have seen the tokens of all of these, and are marked already.
    """
    cut = lengths(options.seq_len, comm.size)
    for module in list(model.modules()):
        if isinstance(getattr(module, "core", None), CausalAttention):
            module.core = GatheredAttention(comm, cut)
        elif isinstance(module, Rotary):
            module.first = sum(cut[: comm.rank])
        elif isinstance(module, Moe):
            module.micro_batch_load = _SequenceLoad(comm)
    return {name: shard if "ep" in shard.split else shard.summed("cp") for name, shard in shards.items()}
