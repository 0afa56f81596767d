"""Random tensors and random ways to cut them."""

import itertools
from collections.abc import Iterator

import torch
from hypothesis import strategies as st

__all__ = ["DTYPES", "cuts", "grid", "shapes", "tensor_of"]

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
    torch.complex64,
)

Box = tuple[tuple[int, ...], tuple[int, ...]]

shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)
"""From no dimension to three, some empty."""


def tensor_of(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random bits: NaNs, infinities and negative zeros among them."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.zeros((), dtype=dtype).element_size()
    raw = torch.randint(0, 256, (torch.Size(shape).numel() * size,), dtype=torch.uint8, generator=generator)
    if dtype == torch.bool:
        return (raw % 2 == 0).reshape(shape)
    return raw.view(dtype).reshape(shape)


@st.composite
def cuts(draw: st.DrawFn, shape: tuple[int, ...]) -> list[list[int]]:
    """For each dimension, ascending bounds from 0 to its size; equal ones make empty parts."""
    return [[0, *sorted(draw(st.lists(st.integers(0, size), max_size=2))), size] for size in shape]


def grid(bounds: list[list[int]]) -> Iterator[Box]:
    """Starts and stops of every box that such bounds make."""
    for box in itertools.product(*(itertools.pairwise(one) for one in bounds)):
        yield tuple(start for start, _ in box), tuple(stop for _, stop in box)
