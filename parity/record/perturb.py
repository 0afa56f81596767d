"""Move a model's weights by the least that their dtype can tell apart, to see how far training carries it.

Which way an element goes depends on its parameter's model-wide name, its place in the whole tensor and the
direction's number, and on nothing else: however the model is cut, the same elements go the same way.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from parity.errors import UsageError
from parity.record.fingerprint import chunk, keys, splitmix64
from parity.record.parts import Part

__all__ = ["perturb"]

_BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}
"""Dtypes that are moved, and the integers of their size: finite neighbours of one sign are neighbours as integers."""

_FRACTION = {torch.float64: 52, torch.float32: 23, torch.bfloat16: 7, torch.float16: 10}
"""Bits of the fraction: a unit in the last place of a coarser dtype is 2 to the difference, as integers."""

_COMPUTED = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def perturb(parameters: Sequence[Part], direction: int, computed_in: object = None) -> None:
    """Move every element by one unit in its last place, in place.

    Zeros stay, as one unit from zero is a denormal; so do values that are not finite, or would no longer be, and
    parameters that are no plain floats of 16 bits or more. What was copied from the weights before is not moved: fp32
    masters of an optimizer that made them when it was built overwrite what happens here at its first step.

    Args:
        parameters: of this rank; memory that two of them share is moved once, under the first one's name.
        direction: 1 or more; another one moves about half of the elements the other way.
        computed_in: `fp32`, `bf16` or `fp16`, where the model computes in less than it stores: it is that dtype's
            last place that counts, as most smaller changes are rounded away.

    Raises:
        UsageError: this rank has parameters, and none that can be moved.
    """
    there = [part for part in parameters if part.local.numel()]
    moved = set[tuple[torch.device, int]]()
    with torch.no_grad():
        for part in there:
            local = part.local.detach()
            if local.dtype not in _BITS or hasattr(local, "__tensor_flatten__"):  # quantised ones have the latter
                continue
            memory = (local.device, local.data_ptr())
            if memory not in moved:
                moved.add(memory)
                fraction = _FRACTION[_COMPUTED.get(str(computed_in), local.dtype)]
                _move(local, part, direction, 1 << max(0, _FRACTION[local.dtype] - fraction))
    if there and not moved:
        raise UsageError(
            f"start: no parameter can be moved by one unit in its last place: {there[0].name} is {there[0].dtype}"
        )


def _move(local: Tensor, part: Part, direction: int, unit: int) -> None:
    flat = local.reshape(-1)  # a copy where the elements do not lie in a row
    box, step = part.box, chunk(local.device)
    salt = _salt(part.name, direction)
    for first in range(0, flat.numel(), step):
        last = min(first + step, flat.numel())
        key = keys(box.shape, box.starts, box.stops, first=first, last=last, device=local.device)
        up = splitmix64(key ^ salt) < 0
        values = flat[first:last]
        bits = values.view(_BITS[local.dtype])
        # Away from zero where a positive number goes up or a negative one down.
        by = torch.where(up == (values > 0), unit, -unit).to(bits.dtype)
        size = bits & torch.iinfo(bits.dtype).max
        by *= values.isfinite() & (size >= unit)
        by *= (bits + by).view(local.dtype).isfinite()
        bits += by
    if flat.data_ptr() != local.data_ptr():
        local.copy_(flat.view(local.shape))


def _salt(name: str, direction: int) -> int:
    digest = hashlib.blake2b(f"{direction}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
