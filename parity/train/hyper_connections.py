"""Manifold-constrained hyper-connections (Xie et al. 2025, arXiv 2512.24880), as in DeepSeek-V4.

The residual stream becomes n streams beside each other. A block reads one weighted sum of them, and what it
gives is added to each with a weight of its own, while the streams are mixed among themselves by a matrix that is
doubly stochastic, so that mixing over many layers neither grows nor shrinks them. All weights depend on the token.

Shapes: B sequences, T tokens, n streams, C hidden width. Weights are computed wide (see `qwen3`).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from parity.train.qwen3 import EPSILON, widen

__all__ = ["HyperConnection", "HyperHead", "expand", "sinkhorn"]

ITERATIONS = 4
"""Rounds of `sinkhorn`. DeepSeek-V4 takes 20; with logits of the size that `weights.draw` leads to, 4 leave row
sums 0.3% from one on average (a test holds that), at a fifth of the operations."""


def sinkhorn(logits: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """Make square matrices (..., n, n) nearly doubly stochastic (Sinkhorn and Knopp 1967).

    Their exponentials are divided by their row sums, then by their column sums, and so on. Columns come last and
    sum to one exactly: column j says where stream j goes, and none of it may be lost.
    """
    matrix = (logits - logits.amax((-2, -1), keepdim=True)).exp()
    for _ in range(iterations):
        matrix = matrix / matrix.sum(-1, keepdim=True)
        matrix = matrix / matrix.sum(-2, keepdim=True)
    return matrix


def expand(x: Tensor, streams: int) -> Tensor:
    """(B, T, C) to as many equal streams (B, T, n, C)."""
    return x.unsqueeze(2).expand(-1, -1, streams, -1)


class _Coefficients(nn.Module):
    """Linear in the normalised streams: scale * (weight x) + bias, with a scale for each part."""

    def __init__(self, hidden: int, streams: int, parts: tuple[int, ...]) -> None:
        super().__init__()
        self.parts = parts
        self.weight = nn.Parameter(torch.empty(sum(parts), streams * hidden))
        self.scale = nn.Parameter(torch.empty(len(parts)))
        self.bias = nn.Parameter(torch.empty(sum(parts)))

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, T, n, C) to (B, T, part) for each part, wide."""
        flat = widen(x).flatten(2)
        flat = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + EPSILON)
        products = F.linear(flat, self.weight).split(self.parts, -1)
        biases = self.bias.split(self.parts)
        return [
            scale * product + bias for scale, product, bias in zip(self.scale.unbind(), products, biases, strict=True)
        ]


class HyperConnection(nn.Module):
    """The streams around one block."""

    def __init__(self, hidden: int, streams: int) -> None:
        super().__init__()
        self.streams = streams
        self.coefficients = _Coefficients(hidden, streams, (streams, streams, streams * streams))

    def forward(self, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """Streams (B, T, n, C) before the block, which maps (B, T, C) to (B, T, C), to those after it.

        The block reads sum_i sigmoid(a_i) x_i; stream i becomes sum_j M_ij x_j + 2 sigmoid(b_i) block(...).
        """
        read, write, mix = self.coefficients(x)
        matrix = sinkhorn(mix.unflatten(-1, (self.streams, self.streams)))
        wide = widen(x)
        y = block((read.sigmoid().unsqueeze(-1) * wide).sum(2).to(x.dtype))
        added = 2 * write.sigmoid().unsqueeze(-1) * widen(y).unsqueeze(2)
        return (matrix @ wide + added).to(x.dtype)


class HyperHead(nn.Module):
    """The weighted sum of the streams that the output head reads."""

    def __init__(self, hidden: int, streams: int) -> None:
        super().__init__()
        self.coefficients = _Coefficients(hidden, streams, (streams,))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, n, C) to (B, T, C)."""
        (read,) = self.coefficients(x)
        return (read.sigmoid().unsqueeze(-1) * widen(x)).sum(2).to(x.dtype)
