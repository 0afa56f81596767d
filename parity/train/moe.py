"""Mixture of experts in the manner of DeepSeek-V4, on one rank.

Shapes: N tokens, C hidden width, E experts, k experts chosen by a token, R routes. A route is a pair of a token
and an expert; a token that chose an expert twice has one route to it, with the sum of both weights.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from parity.train.collectives import Comm
from parity.train.qwen3 import Linear, widen
from parity.train.weights import generator

__all__ = [
    "Dispatch",
    "Experts",
    "Load",
    "Moe",
    "Router",
    "Routing",
    "SharedExpert",
    "hash_table",
    "routing",
    "set_auxiliary_loss",
    "take_auxiliary_loss",
    "update_biases",
]

ROUTED_SCALING = 1.5
"""DeepSeek-V4's `routed_scaling_factor`: what a token's routing weights sum up to."""

SWIGLU_LIMIT = 10.0
"""DeepSeek-V4's `swiglu_limit`."""


class Routing:
    """Where a micro-batch's tokens go.

    Attributes:
        token: int64 (R,), each route's token.
        expert: int64 (R,), its expert; routes are ordered by expert, then by token.
        weight: (R,), wide, with a gradient.
        counts: routes of each expert, E numbers.
    """

    def __init__(self, chosen: Tensor, weights: Tensor, experts: int) -> None:
        """From the experts that each token chose and their weights, both (N, k)."""
        one_hot = chosen.unsqueeze(-1) == torch.arange(experts, device=chosen.device)  # (N, k, E)
        self.expert, self.token = one_hot.any(1).t().nonzero(as_tuple=True)
        self.weight = (one_hot * weights.unsqueeze(-1)).sum(1)[self.token, self.expert]
        self.load = one_hot.any(1).sum(0)
        """int64 (E,), the routes of each expert."""
        self.counts: list[int] = self.load.tolist()


class Router(nn.Module):
    """Chooses experts, by scores or by a fixed table from the token id, and weighs them by their scores.

    Args:
        hidden: C.
        experts: E.
        top_k: k.
        table: int64 (vocabulary, k), the experts of every token id; None chooses by score.
    """

    def __init__(self, hidden: int, experts: int, top_k: int, *, table: Tensor | None = None) -> None:
        super().__init__()
        self.top_k = top_k
        self.routed_by = ""
        """What the last forward pass chose experts by."""
        self.weight = nn.Parameter(torch.empty(experts, hidden))
        self.register_buffer("table", table)
        # Added to the scores in the choice alone, never to the weights, and moved by `update_biases` instead of by
        # gradients (Wang et al. 2024, arXiv 2408.15664). A hash-routed layer has none to move.
        self.register_buffer("e_score_correction_bias", torch.zeros(experts) if table is None else None)

    def forward(self, x: Tensor, tokens: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Hidden states (N, C) and token ids (N,) to the experts chosen (N, k), their weights (N, k) and all scores.

        A score is the square root of the softplus of x's product with the expert's row. Scores (N, E) and weights
        are wide. Of equal scores the expert with the lower number goes first: a sort that is stable, because
        `topk` leaves the order of ties open.

        Raises:
            ValueError: this layer is routed by token ids and got none.
        """
        scores = F.softplus(F.linear(widen(x), self.weight)).sqrt()
        self.routed_by = "score" if self.table is None else "token id"
        if self.table is None:
            biased = scores.detach()
            if self.e_score_correction_bias is not None:
                biased = biased + self.e_score_correction_bias
            chosen = biased.sort(dim=-1, descending=True, stable=True).indices[:, : self.top_k]
        elif tokens is None:
            raise ValueError("a layer that is routed by token ids got none: give it the ids of its tokens")
        else:
            chosen = self.table[tokens]
        weights = scores.gather(-1, chosen)
        return chosen, ROUTED_SCALING * weights / weights.sum(-1, keepdim=True), scores


def hash_table(layer: int, vocab: int, experts: int, top_k: int) -> Tensor:
    """The experts of every token id in one layer, int64 (vocab, top_k), the same in every run.

    Drawn independently, so that one token in E has both routes to one expert: real tables need not avoid it.
    """
    return torch.randint(experts, (vocab, top_k), generator=generator(0, f"layers.{layer}.moe.router.table"))


class Experts(nn.Module):
    """SwiGLU blocks whose weights are stacked, so that cutting dimension 0 deals out experts.

    Args:
        experts: E.
        hidden: C.
        ffn: inner width of one expert.
        limit: the gate is cut off above it, and the other factor on both sides.
    """

    def __init__(self, experts: int, hidden: int, ffn: int, limit: float = SWIGLU_LIMIT) -> None:
        super().__init__()
        self.limit = limit
        self.gate = nn.Parameter(torch.empty(experts, ffn, hidden))
        self.up = nn.Parameter(torch.empty(experts, ffn, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, ffn))

    def forward(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Tokens (R, C), ordered by expert, of which each has so many, to outputs (R, C)."""
        # An expert without a token takes part with no rows: its gradient is zero, not missing. The weights are
        # unbound, and not indexed, so that their gradient is written once and not once per expert.
        weights = zip(*(stack.to(rows.dtype).unbind() for stack in (self.gate, self.up, self.down)), strict=True)
        parts = zip(rows.split(counts), weights, strict=True)
        return torch.cat([self._expert(part, *weight) for part, weight in parts])

    def _expert(self, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        gated = F.silu(F.linear(x, gate).clamp(max=self.limit))
        return F.linear(gated * F.linear(x, up).clamp(-self.limit, self.limit), down)


class Dispatch(nn.Module):
    """Brings tokens to their experts and back. Here, all experts are at hand."""

    def forward(self, experts: Experts, rows: Tensor, counts: list[int]) -> Tensor:
        """Tokens (R, C), ordered by expert, and the E experts' counts of them, to outputs (R, C) in that order."""
        return experts(rows, counts)


class Load(nn.Module):
    """Counts how many routes the experts of a micro-batch have. Here, all of its tokens are at hand."""

    def forward(self, load: Tensor, tokens: int) -> tuple[Tensor, int]:
        """This rank's int64 (E,) and number of tokens to those of the whole micro-batch."""
        return load, tokens


class Moe(nn.Module):
    """Routed experts and one that every token goes to.

    Args:
        router: chooses.
        experts: are chosen from.
        shared: maps (N, C) to (N, C) for every token.
    """

    def __init__(self, router: Router, experts: Experts, shared: nn.Module) -> None:
        super().__init__()
        self.router = router
        self.experts = experts
        self.shared = shared
        self.dispatch = Dispatch()
        self.micro_batch_load = Load()
        self.aux_scale = 0.0
        # Of a step so far, for its end: neither is state.
        self.load: Tensor | None = None
        self.aux_loss: Tensor | None = None

    def forward(self, x: Tensor, tokens: Tensor | None) -> Tensor:
        """Hidden states (B, T, C) and token ids (B, T), which layers routed by score do without, to (B, T, C)."""
        shape, x = x.shape, x.flatten(0, 1)
        chosen, weights, scores = self.router(x, None if tokens is None else tokens.flatten())
        routing = Routing(chosen, weights, scores.shape[-1])
        self.load = routing.load if self.load is None else self.load + routing.load
        if self.aux_scale:
            x = self._balanced(x, scores, routing.load)
        return (self.routed(x, routing) + widen(self.shared(x))).to(x.dtype).view(shape)

    def routed(self, x: Tensor, routing: Routing) -> Tensor:
        """Tokens (N, C) to what their experts add, wide (N, C)."""
        outputs = self.dispatch(self.experts, x[routing.token], routing.counts)
        # Weighed after the down projection, and summed in the order of the experts for every token.
        weighted = routing.weight.unsqueeze(-1) * widen(outputs)
        return torch.zeros_like(x, dtype=weighted.dtype).index_add(0, routing.token, weighted)

    def _balanced(self, x: Tensor, scores: Tensor, load: Tensor) -> Tensor:
        # E sum_e f_e P_e, with f an expert's share of the routes and P its mean share of the scores (Fedus et al.
        # 2021, equations 4 to 6): of each micro-batch by itself, as frameworks do, which is not the same as of
        # the global batch.
        load, tokens = self.micro_batch_load(load, len(x))
        share = load / load.sum()
        affinity = (scores / scores.sum(-1, keepdim=True)).sum(0) / tokens
        loss = self.aux_scale * len(load) * (share.to(affinity.dtype) * affinity).sum()
        self.aux_loss = loss.detach() if self.aux_loss is None else self.aux_loss + loss.detach()
        return _Attach.apply(x, loss)


class _Attach(Function):
    """Pass on x; the backward pass also gives a loss, which nobody adds up, a gradient of one.

    So an auxiliary loss needs no way to the end of the model, which on a pipeline stage there is none.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (loss,) = ctx.saved_tensors
        return grad, torch.ones_like(loss)


class SharedExpert(nn.Module):
    """SwiGLU (Shazeer 2020, equation 6), without a limit."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = Linear(hidden, ffn)
        self.up = Linear(hidden, ffn)
        self.down = Linear(ffn, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., C)."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


def set_auxiliary_loss(model: nn.Module, scale: float) -> None:
    """Add a load-balancing loss to what is trained: this much of each micro-batch's, summed over the layers that
    choose by score. The others could not balance anything. 0 does without."""
    for block in _blocks(model):
        block.aux_scale = scale if block.router.table is None else 0.0


def routing(model: nn.Module) -> dict[str, str]:
    """What each router of a model chose experts by, in words, by its name."""
    routers = {name: module for name, module in model.named_modules() if isinstance(module, Router)}
    return {name: f"experts by {router.routed_by}" for name, router in routers.items()}


def take_auxiliary_loss(model: nn.Module) -> float:
    """This rank's auxiliary loss since the last call, scaled, over its layers and micro-batches."""
    total = 0.0
    for block in _blocks(model):
        total += 0.0 if block.aux_loss is None else block.aux_loss.item()
        block.aux_loss = None
    return total


def update_biases(model: nn.Module, rate: float, data: Comm) -> None:
    """Raise the selection bias of experts with fewer routes than the mean of a step, and lower that of others.

    By the rate, whatever the distance (Wang et al. 2024, arXiv 2408.15664, algorithm 1).

    Args:
        model: its layers have counted their routes since the last call, which are forgotten.
        rate: added or subtracted; with 0 nothing moves.
        data: all ranks that the global batch is spread over. A sum over fewer would give every rank another bias.
    """
    blocks = _blocks(model)
    moved = [b for b in blocks if b.load is not None and b.router.e_score_correction_bias is not None]
    if rate and moved:
        for block, load in zip(moved, data.sum(torch.stack([block.load for block in moved])), strict=True):
            # In whole numbers: E load against the sum, so that a load at the mean is left alone on every device.
            sign = (load.sum() - len(load) * load).sign()
            block.router.e_score_correction_bias.add_(sign, alpha=rate)
    for block in blocks:
        block.load = None


def _blocks(model: nn.Module) -> list[Moe]:
    return [module for module in model.modules() if isinstance(module, Moe)]
