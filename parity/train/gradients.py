"""What is done with gradients between the backward pass and the optimizer, wherever their pieces lie."""

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from parity.train.collectives import Comm
from parity.train.mesh import Mesh
from parity.train.shards import Shard

__all__ = ["clip", "local", "norm", "sum_partial"]

SUMMED = ("tp", "cp", "expert_dp", "dp")
"""Names of the mesh over which gradients may be partial, in the order in which they are summed."""

SPLIT = ("tp", "fsdp", "ep")
"""Axes over which one parameter may be split, in the order in which its pieces' squares are summed."""


def local(x: Tensor) -> Tensor:
    """This rank's part of a tensor, as a view; all of it where the tensor is no DTensor."""
    return x.to_local() if isinstance(x, DTensor) else x


def sum_partial(
    parameters: Mapping[str, nn.Parameter], shards: Mapping[str, Shard], mesh: Mesh, narrow: Collection[str] = ()
) -> None:
    """Add up gradients over the axes for which their shards call them partial, in place.

    One exchange an axis, and a sum that is bitwise the same on all its ranks, so that replicas stay equal.

    Args:
        parameters: by name, the same on every rank of an axis.
        shards: by the same names.
        mesh: has a `Comm` for each axis that a shard names.
        narrow: names of the parameters whose gradients are sent, and their sum rounded, in bf16.
    """
    for axis in SUMMED:
        partial = [name for name in parameters if axis in shards[name].partial]
        for sent_narrow in (False, True):
            names = [name for name in partial if (name in narrow) == sent_narrow]
            _sum([local(parameters[name].grad) for name in names], mesh.comm(axis), narrow=sent_narrow)


def _sum(grads: list[Tensor], comm: Comm, *, narrow: bool) -> None:
    if comm.size == 1 or not grads:
        return
    flat = torch.cat([grad.flatten() for grad in grads])
    sums = comm.sum(flat.bfloat16() if narrow else flat)
    for grad, total in zip(grads, sums.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(total.view_as(grad))


def norm(parameters: Mapping[str, nn.Parameter], shards: Mapping[str, Shard], mesh: Mesh) -> float:
    """L2 norm of the whole model's gradient, from sums of squares in float64.

    What is split over an axis is counted on each of its ranks, and what all of them hold is counted once: each
    rank takes its own copy, so that replicas whose gradients differ give ranks whose norms differ.

    Args:
        parameters: those that this rank counts, by name. A copy that another stage counts is left out.
        shards: by the same names.
        mesh: this rank's.
    """
    squares: dict[tuple[str, ...], Tensor] = {}
    for name, parameter in parameters.items():
        square = local(parameter.grad).double().square().sum()
        kind = tuple(axis for axis in SPLIT if axis in shards[name].split)
        squares[kind] = squares[kind] + square if kind in squares else square
    for axis in SPLIT:
        kinds = sorted(kind for kind in squares if axis in kind)
        comm = mesh.comm(axis)
        if comm.size > 1 and kinds:
            squares |= zip(kinds, comm.sum(torch.stack([squares[kind] for kind in kinds])), strict=True)
    total = torch.stack([squares[kind] for kind in sorted(squares)]).sum()
    return mesh.comm("pp").sum(total).sqrt().item()


def clip(parameters: Iterable[nn.Parameter], grad_norm: float, limit: float) -> None:
    """Scale gradients down to a norm of `limit`, in place; 0 leaves them alone."""
    if 0 < limit < grad_norm:
        for parameter in parameters:
            local(parameter.grad).mul_(limit / grad_norm)
