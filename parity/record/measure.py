"""Norms, hashes and sketches of many tensors in few operations, none of which waits for the device.

Small tensors are laid end to end and large ones cut, so that every operation sees about as many elements as suit
the device.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from parity.record.fingerprint import BINS, bins, chunk, keys, mix, signed, total
from parity.record.parts import Part

__all__ = ["KEY_BYTES", "Measure"]

KEY_BYTES = 32 << 20
"""Keys are kept up to this size, for four million elements; those of further elements are made anew each time,
at three times the cost of a hash with keys at hand. A model of this size is a small one on any device."""


@dataclass
class _Block:
    """Pieces of tensors of one device and dtype that are taken together.

    Attributes:
        rows: for each piece, which tensor.
        spans: for each piece, its first element in the flattened tensor and one past its last.
        index: int64, `rows` on the device.
        counts: int64, elements of each piece on the device.
        key: kept keys of all elements.
    """

    device: torch.device
    rows: list[int] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    index: Tensor | None = None
    counts: Tensor | None = None
    key: Tensor | None = None

    @property
    def items(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Rows with their spans."""
        return zip(self.rows, self.spans, strict=True)

    @property
    def sizes(self) -> list[int]:
        return [last - first for first, last in self.spans]

    @property
    def numel(self) -> int:
        return sum(self.sizes)


class Measure:
    """Measures tensors that lie where a list of parts lie: their values, gradients or changes.

    To be used where no gradients are recorded. Every method takes one tensor for each part, of the part's own
    shape, or None where there is none, whose result is 0. Results are on the first part's device.

    Args:
        parts: at least one.
        key_bytes: keys are kept up to this size.
    """

    def __init__(self, parts: Sequence[Part], key_bytes: int = KEY_BYTES) -> None:
        self._parts = parts
        self._numel = [part.box.numel for part in parts]
        self._all = list(range(len(parts)))
        self._blocks = _blocks(parts)
        self._cut = any(last - first < self._numel[row] for b in self._blocks for row, (first, last) in b.items)
        self._room = key_bytes
        self.device = parts[0].local.device

    def norms(self, tensors: Sequence[Tensor | None], *, exact: bool = True) -> Tensor:
        """L2 norms, float64 (P,).

        Args:
            tensors: see above.
            exact: add squares up in float64. In float32, 65,536 elements (a block on the CPU) lose one digit, and
                a million two; but it takes a third of the time.
        """
        rows, pieces = self._all, list(tensors)
        if self._cut or any(tensor is None for tensor in tensors):
            there = [(r, p) for block, its in self._pieces(tensors) for r, p in zip(block.rows, its, strict=True)]
            rows = [row for row, piece in there if piece is not None]
            pieces = [piece for _, piece in there if piece is not None]
        if not rows:
            return self._zeros(torch.float64)
        norms = torch._foreach_norm(pieces, 2, dtype=torch.float64 if exact else None)
        if len({(norm.device, norm.dtype) for norm in norms}) > 1:
            norms = [norm.to(self.device, torch.float64) for norm in norms]
        found = torch.stack(norms).to(self.device, torch.float64)
        if rows == self._all:
            return found
        index = torch.tensor(rows).to(self.device, non_blocking=True)
        return self._zeros(torch.float64).index_add_(0, index, found.square()).sqrt()

    def hashes(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """State hashes, int64 (P,), to be read modulo 2^64."""
        hashes = self._zeros(torch.int64)
        for block, pieces in self._pieces(tensors):
            key = self._key(block)
            if block.device.type == "cpu":
                each = zip(pieces, key.split(block.sizes), strict=True)
                sums = [total(piece, its) if piece is not None else key.new_zeros(()) for piece, its in each]
            else:
                sums = [piece.sum() for piece in mix(_joined(block, pieces), key).split(block.sizes)]
            hashes.index_add_(0, self._index(block), torch.stack(sums).to(self.device))
        return hashes

    def sketches(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """Sketches, float64 (P, 64)."""
        added = self._zeros(torch.float64, BINS)
        for block, pieces in self._pieces(tensors):
            if block.counts is None:
                block.counts = torch.tensor(block.sizes, device=block.device)
            place = torch.arange(0, BINS * len(block.rows), BINS, device=block.device)
            place = place.repeat_interleave(block.counts, output_size=block.numel)
            place += bins(self._key(block))
            sums = torch.zeros(BINS * len(block.rows), dtype=torch.float64, device=block.device)
            sums.scatter_add_(0, place, _joined(block, pieces).to(torch.float64))
            added.index_add_(0, self._index(block), sums.view(-1, BINS).to(self.device))
        return signed(added)

    def _zeros(self, dtype: torch.dtype, *more: int) -> Tensor:
        return torch.zeros(len(self._parts), *more, dtype=dtype, device=self.device)

    def _pieces(self, tensors: Sequence[Tensor | None]) -> Iterator[tuple[_Block, list[Tensor | None]]]:
        """Blocks with at least one piece, and their pieces, each (n,)."""
        at, flat = -1, None
        for block in self._blocks:
            if all(tensors[row] is None for row in block.rows):
                continue
            pieces: list[Tensor | None] = []
            for row, (first, last) in block.items:
                tensor = tensors[row]
                if tensor is None:
                    pieces.append(None)
                    continue
                if row != at or flat is None:
                    # Only what is not contiguous is copied here, one tensor at a time and not once per piece.
                    at, flat = row, tensor.reshape(-1)
                pieces.append(flat if last - first == self._numel[row] else flat[first:last])
            yield block, pieces

    def _index(self, block: _Block) -> Tensor:
        if block.index is None:
            block.index = torch.tensor(block.rows, device=self.device)
        return block.index

    def _key(self, block: _Block) -> Tensor:
        if block.key is not None:
            return block.key
        made = []
        for row, (first, last) in block.items:
            box = self._parts[row].box
            made.append(keys(box.shape, box.starts, box.stops, first=first, last=last, device=block.device))
        key = torch.cat(made)
        if 8 * key.numel() <= self._room:
            self._room -= 8 * key.numel()
            block.key = key
        return key


def _joined(block: _Block, pieces: Sequence[Tensor | None]) -> Tensor:
    there = next(piece for piece in pieces if piece is not None)
    if len(pieces) == 1:
        return there
    return torch.cat(
        [there.new_zeros(size) if piece is None else piece for piece, size in zip(pieces, block.sizes, strict=True)]
    )


def _blocks(parts: Sequence[Part]) -> list[_Block]:
    blocks: list[_Block] = []
    current: dict[tuple[torch.device, torch.dtype, bool], _Block] = {}
    for row, part in enumerate(parts):
        # Frozen parameters apart: their gradients are missing, and whole blocks can be passed over.
        kind = (part.local.device, part.tensor.dtype, part.trainable)
        step = chunk(kind[0])
        for first in range(0, part.box.numel, step):
            last = min(first + step, part.box.numel)
            block = current.get(kind)
            if block is None or block.numel + last - first > step:
                block = current[kind] = _Block(part.local.device)
                blocks.append(block)
            block.rows.append(row)
            block.spans.append((first, last))
    return blocks
