"""A fingerprint of a step's data that does not depend on how its samples are spread or ordered."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from parity.errors import UsageError
from parity.record.fingerprint import keys, mix, splitmix64_of

__all__ = ["Batches", "fingerprint_batches"]


@dataclasses.dataclass(frozen=True, eq=False)
class Batches:
    """What a rank trained on in one step.

    Attributes:
        sums: for samples of one width each, the hash of each sample before it is mixed, int64 (samples,) on the
            data's device.
        widths: of these, the numbers in a sample.
        samples: rows of all micro-batches.
        micro_batches: how many.
    """

    sums: Sequence[Tensor]
    widths: Sequence[int]
    samples: int
    micro_batches: int

    def hash(self, sums: Sequence[Sequence[float]]) -> int:
        """The hash of all samples, from `sums` on the host."""
        # Mixed once more sample by sample: a sum of sums would not know which sample a number was in. Here, because
        # a handful of numbers takes less time than the launch of one operation does.
        rows = [int(one) + width for some, width in zip(sums, self.widths, strict=True) for one in some]
        return sum(map(splitmix64_of, rows)) % (1 << 64)


def fingerprint_batches(batch: object, micro_batches: int | None = None) -> Batches:
    """The sum modulo 2^64, over all samples, of a hash of each.

    A sample is a row along dimension 0 of every tensor of its micro-batch. Its hash covers all of them, in
    order, by value for integers (so that int32 ids equal int64 ids) and by bits for floats, and how many
    numbers they are: a micro-batch padded further has other samples.

    Args:
        batch: one micro-batch or a list of them. A micro-batch is a tensor, or a mapping (taken in the order
            of its keys), dataclass or tuple of tensors. A list is always one of micro-batches: what torch's
            DataLoader gives as `[x, y]` is to be given as `(x, y)`.
        micro_batches: of the step; None for as many as are given.

    Raises:
        UsageError: something is no tensor, or tensors of one micro-batch differ in their number of rows.
    """
    micro = batch if isinstance(batch, list) else [batch]
    by_width: dict[int, list[Tensor]] = {}
    for one in micro:
        rows = _rows(list(_leaves(one)))
        by_width.setdefault(rows.shape[1], []).append(rows)
    sums = []
    for width, same in by_width.items():
        rows = same[0] if len(same) == 1 else torch.cat(same)
        sums.append((rows * _key(width, rows.device)).sum(1))
    samples = sum(len(one) for one in sums)
    return Batches(sums, list(by_width), samples, len(micro) if micro_batches is None else micro_batches)


def _leaves(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key])
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _leaves({item.name: getattr(value, item.name) for item in dataclasses.fields(value)})
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _leaves(one)
    elif value is not None:
        raise UsageError(f"batch: {type(value).__name__} is no tensor; give the tensors that the model sees")


def _rows(tensors: Sequence[Tensor]) -> Tensor:
    """The numbers of each sample, int64 (rows, numbers)."""
    if not tensors:
        raise UsageError("batch: a micro-batch has no tensor")
    counts = sorted({len(tensor) if tensor.ndim else 1 for tensor in tensors})
    if len(counts) > 1:
        raise UsageError(
            f"batch: tensors of one micro-batch have {counts[0]} and {counts[-1]} rows; dimension 0 is the sample"
        )
    numbers = [_numbers(tensor, counts[0]) for tensor in tensors]
    return numbers[0] if len(numbers) == 1 else torch.cat(numbers, dim=1)


def _numbers(tensor: Tensor, rows: int) -> Tensor:
    if tensor.is_floating_point() or tensor.is_complex():
        flat = tensor.detach().reshape(-1)
        # Each element's bits, as one number whatever their width.
        tensor = mix(flat, torch.ones(flat.shape, dtype=torch.int64, device=flat.device)).view(tensor.shape)
    if tensor.ndim != 2:
        tensor = tensor.reshape(rows, math.prod(tensor.shape[1:]))
    return tensor.to(torch.int64)


@lru_cache(maxsize=16)
def _key(width: int, device: torch.device) -> Tensor:
    return keys((width,), (0,), (width,), device=device)
