"""A small decoder in the manner of Qwen3. It knows nothing of parallelism: whoever splits it cuts its
parameters and wraps its modules, and the shapes it finds tell it how many heads it has.

Shapes: B sequences, T tokens, C hidden width, H query heads, K key/value heads, D head size, V vocabulary.
"Wide" is fp32 for a computation in bf16 or fp32, and fp64 for one in fp64: normalisation statistics, rotary
angles, softmax and the loss are computed wide, and weights are stored wide.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from parity.train.models import DTYPES, Model
from parity.train.options import TrainOptions

__all__ = [
    "Attention",
    "CausalAttention",
    "Decoder",
    "Embedding",
    "Linear",
    "Mlp",
    "Qwen3",
    "RMSNorm",
    "Rotary",
    "TokenLoss",
    "build",
]

EPSILON = 1e-6
"""Qwen3's `rms_norm_eps`."""


def widen(x: Tensor) -> Tensor:
    """At least fp32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Linear(nn.Module):
    """A linear map in its input's dtype, whatever dtype its weight is stored in.

    Args:
        inputs: last dimension of the input.
        outputs: last dimension of the output.
        bias: whether a bias is added.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs)."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


class Embedding(nn.Module):
    """Rows of a table, in the dtype of the computation."""

    def __init__(self, vocab: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, hidden))
        self.dtype = dtype

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (B, T) to (B, T, C)."""
        return F.embedding(tokens, self.weight).to(self.dtype)


class RMSNorm(nn.Module):
    """Root mean square normalisation of the last dimension (Zhang and Sennrich 2019, equation 4)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        """Keeps shape and dtype."""
        wide = widen(x)
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        return (wide * scale * self.weight).to(x.dtype)


def rotary(length: int, head_dim: int, theta: float, like: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the angles of positions from the first, each (T, D), on a tensor's device and wide.

    Angles as in RoFormer (Su et al. 2021, equation 15): position times theta^(-2i/D), for i below D/2, and
    laid out twice because `rotate` pairs dimension i with i + D/2.
    """
    # In float64 on the CPU first, so that every device and dtype rounds the same angles.
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(first, first + length, dtype=torch.float64), frequency).repeat(1, 2)
    dtype = torch.promote_types(like.dtype, torch.float32)
    return angles.cos().to(like.device, dtype), angles.sin().to(like.device, dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i+D/2}) of (..., T, D) by its position's angle."""
    first, second = widen(x).chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return (widen(x) * cos + turned * sin).to(x.dtype)


class Rotary(nn.Module):
    """The angles of a sequence's positions.

    Args:
        size: dimensions that are turned.
        theta: base of the frequencies.
    """

    def __init__(self, size: int, theta: float) -> None:
        super().__init__()
        self.size = size
        self.theta = theta
        self.first = 0
        """Where in the sequence the tokens given begin."""

    def forward(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """See `rotary`."""
        return rotary(length, self.size, self.theta, like, self.first)


class CausalAttention(nn.Module):
    """Softmax attention, in which a token sees itself and those before it."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, first: int = 0) -> Tensor:
        """Queries (B, H, T, D) and keys and values (B, K, S, D) to (B, H, T, D).

        K divides H, and neighbouring heads share a KV head. Query t stands where key `first + t` does.
        """
        q = q.unflatten(1, (k.shape[1], -1))  # (B, K, H/K, T, D)
        # Written out because fused kernels differ between devices and dtypes, and some are not
        # deterministic in the backward pass.
        scores = widen(q @ k.unsqueeze(2).transpose(-1, -2)) * q.shape[-1] ** -0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(first + 1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1).to(q.dtype)
        return (weights @ v.unsqueeze(2)).flatten(1, 2)


class Attention(nn.Module):
    """Causal grouped-query attention with normalised queries and keys."""

    def __init__(self, options: TrainOptions) -> None:
        super().__init__()
        self.head_dim = options.head_dim
        queries, keys = options.heads * options.head_dim, options.kv_heads * options.head_dim
        self.q = Linear(options.hidden, queries, bias=options.bias)
        self.k = Linear(options.hidden, keys, bias=options.bias)
        self.v = Linear(options.hidden, keys, bias=options.bias)
        self.o = Linear(queries, options.hidden, bias=options.bias)
        self.q_norm = RMSNorm(options.head_dim)
        self.k_norm = RMSNorm(options.head_dim)
        self.core = CausalAttention()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(B, T, C) to (B, T, C), over as many heads as the projections give."""
        q, k, v = (part(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q = rotate(self.q_norm(q), cos, sin)  # (B, H, T, D)
        k = rotate(self.k_norm(k), cos, sin)  # (B, K, T, D)
        return self.o(self.core(q, k, v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """SwiGLU (Shazeer 2020, equation 6)."""

    def __init__(self, options: TrainOptions) -> None:
        super().__init__()
        self.gate = Linear(options.hidden, options.ffn, bias=options.bias)
        self.up = Linear(options.hidden, options.ffn, bias=options.bias)
        self.down = Linear(options.ffn, options.hidden, bias=options.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) to (B, T, C)."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):
    """One layer: attention and SwiGLU, each normalised before and added to the residual stream."""

    def __init__(self, options: TrainOptions) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(options.hidden)
        self.attention = Attention(options)
        self.mlp_norm = RMSNorm(options.hidden)
        self.mlp = Mlp(options)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(B, T, C) to (B, T, C)."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.mlp(self.mlp_norm(x))


class TokenLoss(nn.Module):
    """Cross-entropy of each token, zero where the label is -100."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Logits (N, V) and labels (N,) to wide losses (N,)."""
        return F.cross_entropy(widen(logits), labels, reduction="none")


class Qwen3(Model):
    """The whole model. Parameters are allocated and not initialised: see `weights.fill`."""

    entry = ("embed",)
    exit = ("norm", "head", "token_loss")

    def __init__(self, options: TrainOptions) -> None:
        super().__init__()
        self.embed = Embedding(options.vocab, options.hidden, DTYPES[options.dtype])
        self.rotary = Rotary(options.head_dim, options.rope_theta)
        self.layers = nn.ModuleList(Decoder(options) for _ in range(options.layers))
        self.norm = RMSNorm(options.hidden)
        self.head = Linear(options.hidden, options.vocab)
        if options.tie_embeddings:
            self.head.weight = self.embed.weight
        self.token_loss = TokenLoss()

    def enter(self, tokens: Tensor) -> Tensor:
        """(B, T) to (B, T, C)."""
        return self.embed(tokens)

    def through(self, x: Tensor, tokens: Tensor) -> Tensor:
        """(B, T, C) to (B, T, C)."""
        cos, sin = self.rotary(tokens.shape[1], x)
        for layer in self.layers.children():
            x = layer(x, cos, sin)
        return x

    def leave(self, x: Tensor) -> Tensor:
        """(B, T, C) to (B, T, V)."""
        return self.head(self.norm(x))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Logits (B, T, V) and labels (B, T) to a float64 sum."""
        return self.token_loss(logits.flatten(0, 1), labels.flatten()).sum(dtype=torch.float64)


def build(options: TrainOptions) -> Qwen3:
    """The model, not initialised."""
    return Qwen3(options)
