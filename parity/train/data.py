"""Random tokens with ragged label masks, the same under every layout."""

from dataclasses import dataclass

import torch
from torch import Tensor

from parity.train.options import TrainOptions
from parity.train.weights import generator

__all__ = ["IGNORED", "POOL", "Batch", "batches", "sample"]

IGNORED = -100
"""The label of a token without a loss, as `torch.nn.functional.cross_entropy` has it."""

POOL = 16
"""Different samples in a run. Random tokens can only be memorised, and few enough that 40 steps suffice to
see the loss fall; more than one step's worth, so that a batch taken twice or out of order shows."""


@dataclass(frozen=True)
class Batch:
    """One micro-batch.

    Attributes:
        tokens: int64 ids (B, T).
        labels: int64 ids of the tokens that follow (B, T), or -100.
    """

    tokens: Tensor
    labels: Tensor

    def part(self, index: int, parts: int) -> "Batch":
        """The samples of one of several ranks, which have equally many."""
        size = len(self.tokens) // parts
        mine = slice(index * size, (index + 1) * size)
        return Batch(self.tokens[mine], self.labels[mine])

    def stretch(self, start: int, stop: int) -> "Batch":
        """Some of each sequence's tokens. Labels were shifted before, so that the last one's is the next token."""
        return Batch(self.tokens[:, start:stop], self.labels[:, start:stop])


def sample(options: TrainOptions, seed: int, index: int) -> tuple[Tensor, Tensor]:
    """Tokens and labels, both int64 (T,), of one sample of the run, counted from 0 over all steps.

    The labels end after between a quarter and all of the tokens, as if the rest were padding: with equal
    lengths, a mean of means would pass for the mean.
    """
    rng = generator(seed, f"sample/{index % POOL}")
    text = torch.randint(options.vocab, (options.seq_len + 1,), generator=rng)
    shortest = -(-options.seq_len // 4)
    length = int(torch.randint(shortest, options.seq_len + 1, (), generator=rng))
    labels = text[1:].clone()
    labels[length:] = IGNORED
    return text[:-1], labels


def batches(options: TrainOptions, seed: int, step: int) -> list[Batch]:
    """A step's micro-batches over all ranks, on the CPU. However a global batch is cut, it holds the same samples."""
    size = options.micro_batch * options.accumulate
    samples = [sample(options, seed, step * size + i) for i in range(size)]
    starts = range(0, size, options.micro_batch)
    micro = [samples[start : start + options.micro_batch] for start in starts]
    return [Batch(*(torch.stack(part) for part in zip(*group, strict=True))) for group in micro]
