"""Expert parallelism after GShard (Lepikhin et al. 2020): each rank holds some experts of every layer, and tokens
travel to their experts and back.

Only what an expert does with a token is done elsewhere. Choosing and weighing stay where the token is, so a
router's gradient is complete there, for this rank's tokens; and an expert's gradient is complete on the rank that
holds it, for the tokens of all ranks of the group, whose losses are summands of one sum. Nothing is scaled.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.distributed.tensor import DTensor

from parity.train.collectives import Comm
from parity.train.moe import Dispatch, Experts, Moe
from parity.train.shards import Shard, span

__all__ = ["AllToAll", "apply", "held", "narrow"]


class AllToAll(Dispatch):
    """Sends every route's token to the rank that holds its expert, and its output back.

    Args:
        experts: of all ranks together.
        comm: the ranks; each holds a near-even run of experts.
    """

    def __init__(self, experts: int, comm: Comm) -> None:
        super().__init__()
        self.comm = comm
        spans = (span(experts, comm.size, rank) for rank in range(comm.size))
        self.held = [stop - start for start, stop in spans]
        """Experts of each rank."""

    def forward(self, experts: Experts, rows: Tensor, counts: list[int]) -> Tensor:
        """This rank's routes (R, C), ordered by expert, and all E experts' counts of them, to outputs (R, C)."""
        theirs = self._exchange_counts(counts, rows.device)  # [source rank][expert held here]
        sent = [sum(part) for part in _split(counts, self.held)]
        received = [sum(part) for part in theirs]
        arrived = exchange_rows(rows, self.comm, sent, received)
        # Rows arrive by source rank, and within it by expert; within an expert they stay in the ranks' order,
        # which is that of the samples.
        held = torch.arange(self.held[self.comm.rank]).repeat(self.comm.size)
        expert = held.repeat_interleave(torch.tensor(theirs, dtype=torch.int64).flatten())
        order = expert.to(rows.device).argsort(stable=True)
        outputs = experts(arrived[order], [sum(column) for column in zip(*theirs, strict=True)])
        return exchange_rows(outputs[order.argsort()], self.comm, received, sent)

    def _exchange_counts(self, counts: list[int], device: torch.device) -> list[list[int]]:
        # Ahead of the rows, because their receiver must know how many come.
        pieces = list(torch.tensor(counts, device=device).split(self.held))
        here = torch.Size([self.held[self.comm.rank]])
        return [piece.tolist() for piece in self.comm.exchange(pieces, [here] * self.comm.size)]


def apply(model: nn.Module, ep: Comm) -> dict[str, Shard]:
    """Make a model send its tokens to the experts' ranks. Parameters stay whole: cutting them is `weights.fill`'s.

    Returns:
        The shards of the experts' stacked weights, by parameter name. Their gradients have seen the tokens of the
        group's ranks, and are still to be summed over the ranks that hold the same experts.
    """
    shards = {}
    for prefix, block in model.named_modules():
        if not isinstance(block, Moe):
            continue
        block.dispatch = AllToAll(len(block.experts.gate), ep)
        for name, parameter in block.experts.named_parameters():
            start, stop = span(len(parameter), ep.size, ep.rank)
            shard = Shard.whole(tuple(parameter.shape)).cut("ep", 0, start, stop)
            shards[f"{prefix}.experts.{name}"] = shard.summed("expert_dp")
    return shards


def held(model: nn.Module, shards: Mapping[str, Shard]) -> dict[str, range]:
    """Which of the experts this rank computes, by the name of the module that stacks them."""
    experts = {}
    for prefix, block in model.named_modules():
        if isinstance(block, Moe):
            name = f"{prefix}.experts"
            shard = next(shards[f"{name}.{own}"] for own, _ in block.experts.named_parameters())
            # Where other axes split the stack, experts are gathered before they compute.
            start, stop = (shard.starts[0], shard.stops[0]) if "ep" in shard.split else (0, shard.shape[0])
            experts[name] = range(start, stop)
    return experts


def narrow(model: nn.Module) -> frozenset[str]:
    """Round the gradients that experts get from each micro-batch to bf16, as a framework does that keeps experts'
    gradients in bf16.

    Returns:
        The experts' names: those whose gradients should also be summed over ranks in bf16. Those that are fully
        sharded are rounded where they are reduced instead.
    """
    names = []
    for prefix, block in model.named_modules():
        if isinstance(block, Moe):
            for name, parameter in block.experts.named_parameters():
                names.append(f"{prefix}.experts.{name}")
                if not isinstance(parameter, DTensor):
                    parameter.register_hook(lambda grad: grad.bfloat16().to(grad.dtype))
    return frozenset(names)


def exchange_rows(rows: Tensor, comm: Comm, sent: list[int], received: list[int]) -> Tensor:
    """Send runs of rows (R, C) to the ranks, so many to each, and receive so many from each.

    The backward pass sends the gradients the same way back.
    """
    return _ExchangeRows.apply(rows, comm, sent, received)


class _ExchangeRows(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, comm: Comm, sent: list[int], received: list[int]) -> Tensor:
        ctx.comm, ctx.sent, ctx.received = comm, sent, received
        return _exchanged(rows, comm, sent, received)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchanged(grad, ctx.comm, ctx.received, ctx.sent), None, None, None


def _exchanged(rows: Tensor, comm: Comm, sent: list[int], received: list[int]) -> Tensor:
    shapes = [torch.Size([count, *rows.shape[1:]]) for count in received]
    return torch.cat(comm.exchange(list(rows.split(sent)), shapes))


def _split(counts: list[int], sizes: list[int]) -> list[list[int]]:
    rest = iter(counts)
    return [[next(rest) for _ in range(size)] for size in sizes]
