"""Fingerprints of a tensor, whole and cut."""

import math
import subprocess
import sys
from collections.abc import Sequence

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from parity.record.fingerprint import keys, sketch, splitmix64, splitmix64_of, state_hash
from tests.record.boxes import DTYPES, cuts, grid, shapes, tensor_of

seeds = st.integers(0, 2**32)


def slices(starts: tuple[int, ...], stops: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops))


def test_splitmix64__published_values() -> None:
    """The generator of Steele, Lea and Flood seeded with 1234567, as in Vigna's reference implementation."""
    golden = 0x9E3779B97F4A7C15
    states = [(1234567 + n * golden) % 2**64 for n in range(3)]
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    # Ours multiplies what it is given, plus one, by the golden ratio: the state's place and not the state.
    places = [state * pow(golden, -1, 2**64) % 2**64 for state in states]
    assert [splitmix64_of(place) for place in places] == expected
    tensors = torch.tensor([place - 2**64 if place >= 2**63 else place for place in places])
    assert [one % 2**64 for one in splitmix64(tensors).tolist()] == expected


@given(st.data(), shapes, st.sampled_from(DTYPES), seeds)
def test_state_hash__parts_add_up_under_any_cut(
    data: st.DataObject, shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> None:
    whole = tensor_of(shape, dtype, seed)
    bounds = data.draw(cuts(shape))
    parts = [state_hash(whole[slices(*box)], shape, box[0]) for box in grid(bounds)]
    assert sum(parts) % 2**64 == state_hash(whole)


@given(st.data(), shapes, st.sampled_from(DTYPES), seeds)
def test_state_hash__one_bit(data: st.DataObject, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
    whole = tensor_of(shape, dtype, seed)
    assume(whole.numel())
    other = whole.clone()
    raw = other.reshape(-1).view(torch.uint8)
    at = data.draw(st.integers(0, raw.numel() - 1))
    raw[at] ^= 1 if dtype == torch.bool else 1 << data.draw(st.integers(0, 7))
    other = raw.view(dtype).reshape(shape)
    assert state_hash(other) != state_hash(whole)


@given(st.data(), shapes, st.sampled_from(DTYPES), seeds)
def test_state_hash__two_elements_swapped(
    data: st.DataObject, shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> None:
    whole = tensor_of(shape, dtype, seed)
    flat = whole.reshape(-1)
    assume(flat.numel() > 1)
    i, j = data.draw(st.lists(st.integers(0, flat.numel() - 1), min_size=2, max_size=2, unique=True))
    raw = flat.clone().view(torch.uint8).view(flat.numel(), -1)
    assume(not torch.equal(raw[i], raw[j]))
    raw[[i, j]] = raw[[j, i]]
    assert state_hash(raw.reshape(-1).view(dtype).reshape(shape)) != state_hash(whole)


def test_state_hash__two_signs() -> None:
    """Both differ in the highest bit only, the one that a product modulo 2^64 mixes least."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = torch.ones(1000, dtype=dtype)
        seen = {state_hash(x)}
        for i in range(1, 1000):
            y = x.clone()
            y[0], y[i] = -1, -1
            seen.add(state_hash(y))
        assert len(seen) == 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_state_hash__bits_count_where_values_are_equal(dtype: torch.dtype) -> None:
    zeros = torch.zeros(5, dtype=dtype)
    assert state_hash(-zeros) != state_hash(zeros)
    raw = torch.full((5 * zeros.element_size(),), 255, dtype=torch.uint8)
    other = raw.clone()
    other[0] = 254  # the lowest bit of a NaN's payload
    assert raw.view(dtype).isnan().all()
    assert state_hash(other.view(dtype)) != state_hash(raw.view(dtype))


def test_state_hash__is_the_same_in_every_process() -> None:
    """A record is compared with one that another machine wrote, so these values are part of the format."""
    assert f"{state_hash(torch.arange(6.0).view(2, 3)):016x}" == "a84aeafb61200000"
    assert f"{state_hash(torch.arange(6.0, dtype=torch.float64)):016x}" == "2bf97f25f6f40000"
    assert f"{state_hash(torch.arange(6, dtype=torch.uint8)):016x}" == "7584c37c85cc775d"
    assert keys((2, 3), (0, 1), (2, 3)).tolist() == keys((6,), (0,), (6,))[[1, 2, 4, 5]].tolist()


def test_state_hash__not_contiguous() -> None:
    x = torch.randn(70, 90)
    assert state_hash(x.t()) == state_hash(x.t().contiguous()) != state_hash(x)


@given(st.data(), shapes, seeds)
def test_sketch__parts_add_up_under_any_cut(data: st.DataObject, shape: tuple[int, ...], seed: int) -> None:
    whole = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    bounds = data.draw(cuts(shape))
    parts = [sketch(whole[slices(*box)], shape, box[0]) for box in grid(bounds)]
    total = torch.stack(parts).sum(0) if parts else torch.zeros(64, dtype=torch.float64)
    torch.testing.assert_close(total, sketch(whole), rtol=1e-12, atol=1e-12)


@given(st.integers(1, 5000), st.floats(-10, 10), seeds)
def test_sketch__is_linear(size: int, factor: float, seed: int) -> None:
    a, b = torch.randn(2, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(sketch(a + factor * b), sketch(a) + factor * sketch(b), rtol=1e-10, atol=1e-10)


def test_sketch__a_column_goes_to_many_slots() -> None:
    """By the index modulo 64, a fault in one column of a matrix 64 wide would fill a single slot."""
    x = torch.zeros(1000, 64)
    x[:, 3] = 1
    assert (sketch(x) != 0).sum() > 55


def test_sketch__low_precision_is_added_up_in_float64() -> None:
    x = torch.full((1 << 18,), 1 + 2**-7, dtype=torch.bfloat16)
    torch.testing.assert_close(sketch(x), sketch(x.double()), rtol=0, atol=0)


def relative_errors(size: int, magnitudes: Sequence[float], tries: int) -> dict[float, float]:
    """How far estimates of the relative L2 distance are off in 95 of 100, of random gradients this far apart."""
    generator = torch.Generator().manual_seed(size)
    # Of very different magnitudes within one gradient, as in an embedding of which few rows were used.
    scale = torch.rand(size, dtype=torch.float64, generator=generator) ** 8
    a = torch.randn(size, dtype=torch.float64, generator=generator) * scale
    ours, norm = sketch(a), a.norm()
    errors: dict[float, list[float]] = {magnitude: [] for magnitude in magnitudes}
    for _ in range(tries):
        direction = torch.randn(size, dtype=torch.float64, generator=generator).mul_(scale)
        for magnitude, found in errors.items():
            b = torch.add(a, direction, alpha=magnitude)
            exact = float((b - a).norm() / norm)
            estimate = float((sketch(b) - ours).norm() / norm)
            found.append(abs(estimate / exact - 1))
    return {magnitude: sorted(found)[math.ceil(0.95 * tries) - 1] for magnitude, found in errors.items()}


def too_large(errors: dict[float, float]) -> dict[float, float]:
    return {magnitude: error for magnitude, error in errors.items() if not error <= 0.25}


@pytest.mark.parametrize(("size", "tries"), [(64, 200), (1000, 200), (20_000, 100), (200_000, 40)])
def test_sketch__relative_distance_within_a_quarter_in_95_of_100(size: int, tries: int) -> None:
    assert too_large(relative_errors(size, [1e-7, 1e-4, 1e-2, 1.0], tries)) == {}


@pytest.mark.slow
def test_sketch__relative_distance_of_ten_million_elements() -> None:
    assert too_large(relative_errors(10_000_000, [1e-7, 1.0], 20)) == {}


def test_importing_it_needs_torch_alone() -> None:
    code = (
        "import sys; import torch; before = set(sys.modules); import parity.record.watching;"
        "tops = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "sys.exit(bool(tops & {'numpy', 'pydantic', 'click', 'yaml', 'psutil'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
