"""Tensor parallelism after Megatron-LM (Shoeybi et al. 2019), with uneven splits.

A linear that fans out keeps the rows of some heads (or of the feed-forward width, or of the vocabulary) and
is otherwise unchanged: that is what "column parallel" comes to. One that fans in keeps the matching columns,
and its partial outputs are summed. In between, every rank has the whole residual stream, or with sequence
parallelism (Korthikanti et al. 2022) its own stretch of the sequence.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from parity.train.collectives import (
    Comm,
    cross_entropy,
    gather,
    identity_then_sum,
    scatter_sum,
    sum_then_identity,
)
from parity.train.options import TrainOptions
from parity.train.qwen3 import Embedding, Linear, Qwen3, widen
from parity.train.shards import Shard, span

__all__ = ["RowParallelLinear", "VocabParallelLoss", "apply"]

SEQUENCE = 1
"""The sequence's dimension in (B, T, C)."""


def apply(model: Qwen3, options: TrainOptions, comm: Comm) -> dict[str, Shard]:
    """Make a model compute this rank's part. Its parameters stay whole: cutting them is `weights.fill`'s.

    Returns:
        Each parameter's shard, by name.
    """
    bounds = _Boundaries(options, comm)
    vocab = span(options.vocab, comm.size, comm.rank)
    ffn = span(options.ffn, comm.size, comm.rank)
    q, kv = _heads(options, comm)
    cuts: dict[str, tuple[int, tuple[int, int]]] = {"embed.weight": (0, vocab), "head.weight": (0, vocab)}

    model.embed = _VocabParallelEmbedding(model.embed, vocab, bounds.leave)
    model.head.register_forward_pre_hook(bounds.enter_first)
    model.token_loss = VocabParallelLoss(vocab[0], comm)
    for index, layer in enumerate(model.layers):
        layer.attention.register_forward_pre_hook(bounds.enter_first)
        layer.attention.o = RowParallelLinear(layer.attention.o, bounds.leave)
        layer.mlp.register_forward_pre_hook(bounds.enter_first)
        layer.mlp.down = RowParallelLinear(layer.mlp.down, bounds.leave)
        outward = {"attention.q": q, "attention.k": kv, "attention.v": kv, "mlp.gate": ffn}
        for name, rows in {**outward, "mlp.up": ffn}.items():
            cuts |= {f"layers.{index}.{name}.weight": (0, rows), f"layers.{index}.{name}.bias": (0, rows)}
        cuts[f"layers.{index}.attention.o.weight"] = (1, q)
        cuts[f"layers.{index}.mlp.down.weight"] = (1, ffn)

    shards = {}
    for name, parameter in model.named_parameters():
        shard = Shard.whole(tuple(parameter.shape))
        if name in cuts:
            dim, (start, stop) = cuts[name]
            shard = shard.cut("tp", dim, start, stop)
        elif options.sequence_parallel or name.endswith(("q_norm.weight", "k_norm.weight")):
            # Whatever every rank holds whole saw all activations, except the norms of queries and keys, which
            # saw this rank's heads, and under sequence parallelism all, which saw this rank's tokens.
            shard = shard.summed("tp")
        shards[name] = shard
    return shards


class _Boundaries:
    """How the residual stream enters a split block, and how the block's partial sums leave it."""

    def __init__(self, options: TrainOptions, comm: Comm) -> None:
        self.comm = comm
        self.split = options.sequence_parallel
        spans = (span(options.seq_len, comm.size, rank) for rank in range(comm.size))
        self.lengths = [stop - start for start, stop in spans]

    def enter(self, x: Tensor) -> Tensor:
        if self.split:
            return gather(x, self.comm, self.lengths, SEQUENCE)
        return identity_then_sum(x, self.comm)

    def leave(self, x: Tensor) -> Tensor:
        if self.split:
            return scatter_sum(x, self.comm, self.lengths, SEQUENCE)
        return sum_then_identity(x, self.comm)

    def enter_first(self, _module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A forward pre-hook: the block's first argument enters."""
        return (self.enter(args[0]), *args[1:])


def _heads(options: TrainOptions, comm: Comm) -> tuple[tuple[int, int], tuple[int, int]]:
    """Start and stop of this rank's rows of the query projection, and of the key and value projections."""
    size, group = options.head_dim, options.heads // options.kv_heads
    start, stop = span(options.kv_heads, comm.size, comm.rank)
    kv = (start * size, stop * size)
    return (kv[0] * group, kv[1] * group), kv  # a KV head's query heads go with it


class RowParallelLinear(nn.Module):
    """A linear over this rank's share of the inputs; shares the parameters of the one it replaces."""

    def __init__(self, linear: Linear, leave: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self.leave = leave

    def forward(self, x: Tensor) -> Tensor:
        y = self.leave(F.linear(x, self.weight.to(x.dtype)))
        # After the sum: before it, the bias would count once for every rank.
        return y if self.bias is None else y + self.bias.to(y.dtype)


class _VocabParallelEmbedding(nn.Module):
    """A table of which this rank holds some rows; other ranks' tokens look up nothing here."""

    def __init__(self, embedding: Embedding, rows: tuple[int, int], leave: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = embedding.weight
        self.dtype = embedding.dtype
        self.rows = rows
        self.leave = leave

    def forward(self, tokens: Tensor) -> Tensor:
        start, stop = self.rows
        here = (tokens >= start) & (tokens < stop)
        found = F.embedding((tokens - start).clamp(0, stop - start - 1), self.weight)
        return self.leave(torch.where(here[..., None], found, 0).to(self.dtype))


class VocabParallelLoss(nn.Module):
    """`TokenLoss` over this rank's columns of the logits."""

    def __init__(self, start: int, comm: Comm) -> None:
        super().__init__()
        self.start = start
        self.comm = comm

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(widen(logits), labels, self.start, self.comm)
