"""Fingerprints that do not depend on how a tensor is cut: sums over its elements, of which every rank adds up
its own and a reader adds up the ranks'.

Both start from one 64-bit key per element, made from the element's index in the whole, flattened tensor:

    key(i) = splitmix64(i) | 1

with `splitmix64` as in Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014):
a multiple of the golden ratio's odd fraction, then the 64-bit finaliser (Stafford's variant 13).

State hash, exact, modulo 2^64. An element is one word of its bits, x, or several of 32 bits:

    hash = sum over i, w of key(i) * g^w * x(i, w),   g = 0x9E3779B97F4A7C15

That is the multilinear hash (Carter and Wegman 1979; Lemire and Kaser, "Strongly universal string hashing is
fast", 2014) with keys that need not be stored. Keys are odd, so a change of any bits of one element always changes
the sum; two different elements that change places change it by (key(i) - key(j)) * (x(i) - x(j)). Tensors that
differ are taken for equal with a probability of 2^-64, if all their words differ by multiples of 2^n of 2^(n - 64):
no more than 2^-33, where nothing but signs differ. Mixing every product once more, by a finaliser, was tried: it
doubles the cost, which is dominated by passes over int64.

Gradient sketch, approximate: a count sketch (Charikar, Chen and Farach-Colton 2002) of `SLOTS` numbers in
float64, in which element i adds `sign(i) * value` to `slot(i)`; the slot and the sign are the key's seven
highest bits. It is linear, and its squared length estimates the squared L2 norm without bias, with a relative
deviation of sqrt(2 / SLOTS) at most: 9% of the norm.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

__all__ = [
    "SLOTS",
    "bins",
    "chunk",
    "folded",
    "keys",
    "mix",
    "signed",
    "sketch",
    "splitmix64",
    "splitmix64_of",
    "state_hash",
]

SLOTS = 64
"""Numbers in a sketch."""

BINS = 2 * SLOTS
"""A slot's positive and negative elements are added up apart, which saves a pass that multiplies by signs."""


def chunk(device: torch.device) -> int:
    """Elements taken at a time, so that temporary memory stays small whatever the tensor's size.

    A GPU needs a million to be busy. A CPU core works in its cache: measured with the embedded model between steps,
    65,536 elements at a time take a quarter of the time that all 230,000 at once do, mostly of fresh memory.
    """
    return 1 << 16 if device.type == "cpu" else 1 << 20


def _wrap(number: int) -> int:
    """The same 64 bits as a signed number, as torch has no full unsigned arithmetic."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


_GOLDEN = _wrap(0x9E3779B97F4A7C15)
_STAFFORD = ((30, _wrap(0xBF58476D1CE4E5B9)), (27, _wrap(0x94D049BB133111EB)), (31, 1))


def splitmix64(numbers: Tensor) -> Tensor:
    """A pseudorandom bijection of 64-bit numbers: int64 of any shape to new int64 of that shape."""
    z = (numbers + 1) * _GOLDEN
    for shift, factor in _STAFFORD:
        z ^= (z >> shift) & ((1 << (64 - shift)) - 1)  # torch shifts copies of the sign in
        if factor != 1:
            z *= factor
    return z


def splitmix64_of(number: int) -> int:
    """The same of one number, taken modulo 2^64; 0 to 2^64 - 1."""
    z = (number + 1) * _GOLDEN % (1 << 64)
    for shift, factor in _STAFFORD:
        z = (z ^ z >> shift) * factor % (1 << 64)
    return z


def keys(
    shape: Sequence[int],
    starts: Sequence[int],
    stops: Sequence[int],
    *,
    first: int = 0,
    last: int | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Keys of a box's elements, in the box's own row-major order.

    Args:
        shape: of the whole tensor.
        starts: per dimension, the first index in the box.
        stops: per dimension, one past the last.
        first: leave out so many of the box's elements.
        last: end before this one; None for all.
        device: of the result.

    Returns:
        int64 (last - first,), all odd.
    """
    dims: list[tuple[int, int, int]] = []
    for size, start, stop in zip(shape, starts, stops, strict=True):
        if dims and start == 0 and stop == size:
            # Whole inside a box: one with the dimension around it. A cut by rows becomes a range of numbers.
            outer = dims.pop()
            dims.append((outer[0] * size, outer[1] * size, outer[2] * size))
        else:
            dims.append((size, start, stop))
    if last is None:
        last = 1
        for _, start, stop in dims:
            last *= stop - start
    rest = torch.arange(first, last, dtype=torch.int64, device=device)
    index, stride = torch.zeros_like(rest), 1
    for at, (size, start, stop) in reversed(list(enumerate(dims))):
        inner = rest if at == 0 else rest % (stop - start)
        index += (inner + start) * stride
        if at:
            rest = rest // (stop - start)
        stride *= size
    return splitmix64(index) | 1


def mix(flat: Tensor, key: Tensor) -> Tensor:
    """Each element's contribution to a state hash.

    Args:
        flat: (n,) of any dtype; its bits count, so that -0.0 is not 0.0 and one NaN is not another.
        key: int64 (n,).

    Returns:
        int64 (n,).
    """
    words = _words(flat)
    if words.ndim == 1:
        return words.mul_(key)
    return words.sum(1).mul_(key)


def total(flat: Tensor, key: Tensor) -> Tensor:
    """The sum of `mix` modulo 2^64, int64 ()."""
    words = _words(flat)
    if words.ndim == 1 and words.device.type == "cpu":
        return torch.dot(words, key)  # one pass instead of two; torch has it for integers on the CPU only
    return mix(flat, key).sum()


def _words(flat: Tensor) -> Tensor:
    """The bits of (n,) elements as new int64 (n,), or (n, w) that are still to be added up for those of w words."""
    size = flat.element_size()
    if flat.is_complex():
        flat = flat.resolve_conj().resolve_neg()
    words = flat.contiguous().view({1: torch.uint8, 2: torch.int16}.get(size, torch.int32)).to(torch.int64)
    if size <= 4:
        return words
    factors = torch.tensor([_wrap(pow(_GOLDEN, power, 1 << 64)) for power in range(size // 4)], device=flat.device)
    return words.view(flat.numel(), -1).mul_(factors)


def bins(key: Tensor) -> Tensor:
    """Where each element of a sketch is added up: int64 (n,) below 128. 64 and above are the negative signs."""
    return (key >> 57) & (BINS - 1)


def signed(sums: Tensor) -> Tensor:
    """Sketches from the sums of the bins: float64 (..., 128) to (..., 64)."""
    return sums[..., :SLOTS] - sums[..., SLOTS:]


def folded(sum_: int) -> int:
    """A sum that torch gave, as a number from 0 to 2^64 - 1."""
    return sum_ % (1 << 64)


def state_hash(tensor: Tensor, shape: Sequence[int] | None = None, starts: Sequence[int] | None = None) -> int:
    """State hash of one part of a tensor; those of all parts add up, modulo 2^64, to the whole tensor's.

    Args:
        tensor: the part, of any dtype.
        shape: of the whole tensor; None if the part is everything.
        starts: per dimension, the part's first index in the whole; None for zeros.
    """
    flat, found = tensor.detach().reshape(-1), 0
    for first, last, key in _chunks(tensor, shape, starts):
        found += int(total(flat[first:last], key))
    return folded(found)


def sketch(tensor: Tensor, shape: Sequence[int] | None = None, starts: Sequence[int] | None = None) -> Tensor:
    """Sketch of one part of a tensor; those of all parts add up to the whole tensor's.

    Args:
        tensor: the part, real.
        shape: of the whole tensor; None if the part is everything.
        starts: per dimension, the part's first index in the whole; None for zeros.

    Returns:
        float64 (64,).
    """
    flat = tensor.detach().reshape(-1)
    sums = torch.zeros(BINS, dtype=torch.float64, device=tensor.device)
    for first, last, key in _chunks(tensor, shape, starts):
        sums.scatter_add_(0, bins(key), flat[first:last].to(torch.float64))
    return signed(sums)


def _chunks(
    tensor: Tensor, shape: Sequence[int] | None, starts: Sequence[int] | None
) -> Iterator[tuple[int, int, Tensor]]:
    shape = tuple(tensor.shape) if shape is None else shape
    starts = [0] * tensor.ndim if starts is None else starts
    stops = [start + size for start, size in zip(starts, tensor.shape, strict=True)]
    step = chunk(tensor.device)
    for first in range(0, tensor.numel(), step):
        last = min(first + step, tensor.numel())
        yield first, last, keys(shape, starts, stops, first=first, last=last, device=tensor.device)
