"""A small decoder in the manner of DeepSeek-V4. It knows nothing of parallelism.

What it has of the original, as the technical report and the public implementations describe it: hyper-connections,
mixture of experts in every layer with the first layers routed by token id, one KV head that is key and value in
one, low-rank queries, a grouped low-rank output projection, and rotary positions on the last dimensions of a
head, turned back in the output. What it lacks: compressed and sliding-window attention, attention sinks, and
multi-token prediction.

Shapes: B sequences, T tokens, n streams, C hidden width, H heads, D head size, G output groups, V vocabulary.
"""

import torch
from torch import Tensor, nn

from parity.train.hyper_connections import HyperConnection, HyperHead, expand
from parity.train.models import DTYPES, Model
from parity.train.moe import Experts, Moe, Router, SharedExpert, hash_table
from parity.train.options import TrainOptions
from parity.train.qwen3 import CausalAttention, Embedding, Linear, RMSNorm, Rotary, TokenLoss, rotate

__all__ = ["Attention", "DeepseekV4", "GroupedLinear", "Layer", "build"]


class GroupedLinear(nn.Module):
    """A linear map of its own for each of G groups of dimensions."""

    def __init__(self, groups: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, G * inputs) to (B, T, G * outputs)."""
        parts = x.unflatten(-1, (len(self.weight), -1)).unsqueeze(-2)  # (B, T, G, 1, inputs)
        return (parts @ self.weight.to(x.dtype).transpose(1, 2)).flatten(2)


class Attention(nn.Module):
    """Causal attention of H heads over one head that is key and value in one."""

    def __init__(self, options: TrainOptions) -> None:
        super().__init__()
        self.head_dim, self.rope_dim = options.head_dim, options.rope_dim
        width = options.heads * options.head_dim
        self.q_a = Linear(options.hidden, options.q_lora)
        self.q_a_norm = RMSNorm(options.q_lora)
        self.q_b = Linear(options.q_lora, width)
        self.kv = Linear(options.hidden, options.head_dim)
        self.kv_norm = RMSNorm(options.head_dim)
        self.core = CausalAttention()
        self.o_a = GroupedLinear(options.o_groups, width // options.o_groups, options.o_lora)
        self.o_b = Linear(options.o_groups * options.o_lora, options.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(B, T, C), with rotary angles of `rope_dim` dimensions, to (B, T, C)."""
        q = self.q_b(self.q_a_norm(self.q_a(x))).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, H, T, D)
        kv = self._turn(self.kv_norm(self.kv(x)).unsqueeze(1), cos, sin)  # (B, 1, T, D)
        heads = self.core(self._turn(q, cos, sin), kv, kv)
        # A value was turned by its own position; turning back by the query's leaves the distance of the two.
        heads = self._turn(heads, cos, -sin)
        return self.o_b(self.o_a(heads.transpose(1, 2).flatten(2)))

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        still, turned = x.split((self.head_dim - self.rope_dim, self.rope_dim), dim=-1)
        return torch.cat((still, rotate(turned, cos, sin)), dim=-1)


class Layer(nn.Module):
    """Attention and experts, each normalised before, between hyper-connections."""

    def __init__(self, options: TrainOptions, index: int) -> None:
        super().__init__()
        self.attention_streams = HyperConnection(options.hidden, options.streams)
        self.attention_norm = RMSNorm(options.hidden)
        self.attention = Attention(options)
        self.moe_streams = HyperConnection(options.hidden, options.streams)
        self.moe_norm = RMSNorm(options.hidden)
        hashed = index < options.hash_layers
        table = hash_table(index, options.vocab, options.experts, options.top_k) if hashed else None
        self.moe = Moe(
            Router(options.hidden, options.experts, options.top_k, table=table),
            Experts(options.experts, options.hidden, options.expert_ffn),
            SharedExpert(options.hidden, options.expert_ffn),
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, tokens: Tensor) -> Tensor:
        """Streams (B, T, n, C), angles, and token ids (B, T), which hash-routed layers need, to (B, T, n, C)."""
        x = self.attention_streams(x, lambda y: self.attention(self.attention_norm(y), cos, sin))
        return self.moe_streams(x, lambda y: self.moe(self.moe_norm(y), tokens))


class DeepseekV4(Model):
    """The whole model. Parameters are allocated and not initialised: see `weights.fill`."""

    entry = ("embed",)
    exit = ("head_streams", "norm", "head", "token_loss")

    def __init__(self, options: TrainOptions) -> None:
        super().__init__()
        self.streams = options.streams
        self.embed = Embedding(options.vocab, options.hidden, DTYPES[options.dtype])
        self.rotary = Rotary(options.rope_dim, options.rope_theta)
        self.layers = nn.ModuleList(Layer(options, index) for index in range(options.layers))
        self.head_streams = HyperHead(options.hidden, options.streams)
        self.norm = RMSNorm(options.hidden)
        self.head = Linear(options.hidden, options.vocab)
        if options.tie_embeddings:
            self.head.weight = self.embed.weight
        self.token_loss = TokenLoss()

    def enter(self, tokens: Tensor) -> Tensor:
        """(B, T) to n equal streams (B, T, n, C)."""
        return expand(self.embed(tokens), self.streams)

    def through(self, x: Tensor, tokens: Tensor) -> Tensor:
        """(B, T, n, C) to (B, T, n, C)."""
        cos, sin = self.rotary(x.shape[1], x)
        for layer in self.layers.children():
            x = layer(x, cos, sin, tokens)
        return x

    def leave(self, x: Tensor) -> Tensor:
        """(B, T, n, C) to (B, T, V)."""
        return self.head(self.norm(self.head_streams(x)))

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Logits (B, T, V) and labels (B, T) to a float64 sum."""
        return self.token_loss(logits.flatten(0, 1), labels.flatten()).sum(dtype=torch.float64)


def build(options: TrainOptions) -> DeepseekV4:
    """The model, not initialised."""
    return DeepseekV4(options)
