"""Collectives, and those with gradients as autograd functions of our own.

`torch.distributed.nn.functional` offers gradients too, but gloo ranks that used it abort at exit in up to two
of three runs, after correct results.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

__all__ = ["Comm", "cross_entropy", "gather", "identity_then_sum", "scatter_sum", "sum_then_identity"]


class Comm:
    """The ranks of one axis. Tensors given are left as they are; results are new and contiguous.

    Everything is one exchange of pieces, added up on the receiving side in the order of the ranks. So a sum is
    bitwise the same on each rank and on every backend, and in bf16 rounds once; pieces may be unequal, which
    gloo's all-gather refuses; and it takes one round of messages where gloo's ring takes 2 (size - 1) in a
    row: 2.6 ms against 5.3 for 16 KB between 4 ranks on 2 cores, 4 against 21 between 8.

    Args:
        rank: this process's place on the axis.
        size: ranks on the axis; alone, nothing is communicated and no process group needed.
        group: their process group; None is all ranks.
    """

    def __init__(self, rank: int = 0, size: int = 1, group: dist.ProcessGroup | None = None) -> None:
        self.rank = rank
        self.size = size
        self.group = group

    def sum(self, x: Tensor) -> Tensor:
        """The ranks' sum."""
        return torch.stack(self.exchange([x] * self.size, [x.shape] * self.size)).sum(0)

    def max(self, x: Tensor) -> Tensor:
        """The ranks' maximum."""
        return torch.stack(self.exchange([x] * self.size, [x.shape] * self.size)).amax(0)

    def gather(self, x: Tensor, sizes: list[int], dim: int) -> Tensor:
        """The ranks' tensors one after another in a dimension, in which they have these sizes."""
        shapes = [torch.Size([*x.shape[:dim], size, *x.shape[dim + 1 :]]) for size in sizes]
        return torch.cat(self.exchange([x] * self.size, shapes), dim)

    def scatter_sum(self, x: Tensor, sizes: list[int], dim: int) -> Tensor:
        """This rank's piece of the ranks' sum, which is cut into these sizes in a dimension."""
        pieces = list(x.split(sizes, dim))
        return torch.stack(self.exchange(pieces, [pieces[self.rank].shape] * self.size)).sum(0)

    def exchange(self, pieces: list[Tensor], shapes: list[torch.Size]) -> list[Tensor]:
        """Send a piece to every rank, and receive one of the given shape from each. One dtype for all."""
        if self.size == 1:
            return pieces
        sent = torch.cat([piece.flatten() for piece in pieces])
        counts = [shape.numel() for shape in shapes]
        received = sent.new_empty(sum(counts))
        dist.all_to_all_single(received, sent, counts, [piece.numel() for piece in pieces], group=self.group)
        return [part.view(shape) for part, shape in zip(received.split(counts), shapes, strict=True)]


class _IdentityThenSum(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm) -> Tensor:
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.comm.sum(grad), None


class _SumThenIdentity(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm) -> Tensor:
        return comm.sum(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm, sizes: list[int], dim: int) -> Tensor:
        ctx.comm, ctx.sizes, ctx.dim = comm, sizes, dim
        return comm.gather(x, sizes, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.comm.scatter_sum(grad, ctx.sizes, ctx.dim), None, None, None


class _ScatterSum(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm, sizes: list[int], dim: int) -> Tensor:
        ctx.comm, ctx.sizes, ctx.dim = comm, sizes, dim
        return comm.scatter_sum(x, sizes, dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.comm.gather(grad, ctx.sizes, ctx.dim), None, None, None


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, start: int, comm: Comm) -> Tensor:
        top = comm.max(logits.amax(-1))
        shifted = logits - top[:, None]
        exponentials = shifted.exp()
        here = (labels >= start) & (labels < start + logits.shape[-1])
        column = (labels - start).clamp(0, logits.shape[-1] - 1)
        row = torch.arange(len(labels), device=labels.device)
        mine = torch.where(here, shifted[row, column], 0)
        total, target = comm.sum(torch.stack((exponentials.sum(-1), mine)))
        valid = labels >= 0
        ctx.save_for_backward(exponentials / total[:, None], here, row, column, valid)
        return torch.where(valid, total.log() - target, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        softmax, here, row, column, valid = ctx.saved_tensors
        result = softmax.clone()
        result[row, column] -= here.to(result.dtype)
        return result * (grad * valid)[:, None], None, None, None


def identity_then_sum(x: Tensor, comm: Comm) -> Tensor:
    """Pass on what every rank has; the backward pass sums the ranks' gradients (Megatron-LM's f)."""
    return _IdentityThenSum.apply(x, comm)


def sum_then_identity(x: Tensor, comm: Comm) -> Tensor:
    """Sum over the ranks; the backward pass hands every rank the gradient (Megatron-LM's g)."""
    return _SumThenIdentity.apply(x, comm)


def gather(x: Tensor, comm: Comm, sizes: list[int], dim: int) -> Tensor:
    """Join the ranks' pieces; the backward pass sums the ranks' gradients and cuts them again."""
    return _Gather.apply(x, comm, sizes, dim)


def scatter_sum(x: Tensor, comm: Comm, sizes: list[int], dim: int) -> Tensor:
    """Sum over the ranks and keep one piece; the backward pass joins the pieces' gradients."""
    return _ScatterSum.apply(x, comm, sizes, dim)


def cross_entropy(logits: Tensor, labels: Tensor, start: int, comm: Comm) -> Tensor:
    """Cross-entropy over logits whose vocabulary is spread over the ranks.

    log(sum_j exp(z_j - m)) - (z_y - m), with m the greatest logit; its gradient is softmax(z) minus one at the
    label. Only m, the sum and z_y need the other ranks: three numbers a token.

    Args:
        logits: this rank's columns (N, V_local), fp32 or fp64.
        labels: ids in the whole vocabulary (N,), the same on every rank; a negative one has no loss.
        start: the id of this rank's first column.
        comm: the ranks.

    Returns:
        Losses (N,) in the logits' dtype, the same on every rank.
    """
    return _CrossEntropy.apply(logits, labels, start, comm)
