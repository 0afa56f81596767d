"""Records of legs, drawn from whole tensors and the boxes that each rank holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parity.records.record import SLOTS, Batch, Fingerprints, LegRecords, OptimizerGroup, Part, RankRecord

__all__ = ["ADAMW", "MODEL", "Drawn", "draw", "split"]

Tensors = Mapping[str, NDArray[np.float64]]
Box = tuple[tuple[int, ...], tuple[int, ...]]

ADAMW: dict[str, object] = {"class": "AdamW", "lr": 1e-3, "eps": 1e-8, "weight_decay": 0.01}


def _tensor(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=shape)


MODEL: Tensors = {
    "embed.weight": _tensor(1, 31, 8),
    "layers.0.attention.q_proj.weight": _tensor(2, 16, 8),
    "layers.0.experts.w1": _tensor(3, 4, 6, 8),
    "layers.0.router.weight": _tensor(4, 4, 8),
    "layers.1.attention.q_proj.weight": _tensor(5, 16, 8),
    "norm.weight": _tensor(6, 8),
}


def _mixed(shape: tuple[int, ...], start: tuple[int, ...], stop: tuple[int, ...]) -> NDArray[np.uint64]:
    """A 64-bit hash of the global index of each element of a box."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint64).reshape(shape)[tuple(map(slice, start, stop))]
    with np.errstate(over="ignore"):
        x = (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return x ^ (x >> np.uint64(27))


def state_hash(value: NDArray[np.float64], start: tuple[int, ...], stop: tuple[int, ...]) -> int:
    """A stand-in for the recorder's: additive over boxes, and of every bit."""
    bits = np.ascontiguousarray(value[tuple(map(slice, start, stop))]).view(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits ^ _mixed(value.shape, start, stop)) * np.uint64(0xFF51AFD7ED558CCD)
        return int((mixed ^ (mixed >> np.uint64(33))).sum(dtype=np.uint64))


def sketch(value: NDArray[np.float64], start: tuple[int, ...], stop: tuple[int, ...]) -> NDArray[np.float64]:
    """A count sketch of a box with 64 slots."""
    part = value[tuple(map(slice, start, stop))].ravel()
    mixed = _mixed(value.shape, start, stop).ravel()
    signs = np.where(mixed >> np.uint64(63), 1.0, -1.0)
    return np.bincount((mixed % np.uint64(SLOTS)).astype(np.int64), signs * part, SLOTS).astype(np.float64)


def split(value: NDArray[np.float64], dim: int, sizes: Sequence[int]) -> list[Box]:
    """Boxes of the given sizes along a dimension."""
    boxes, at = [], 0
    for size in sizes:
        start, stop = [0] * value.ndim, list(value.shape)
        start[dim], stop[dim] = at, at + size
        boxes.append((tuple(start), tuple(stop)))
        at += size
    return boxes


@dataclass
class Drawn:
    """A leg to draw: what each rank holds, and what it computed. Change fields to break it.

    Attributes:
        coordinates: by rank.
        boxes: by parameter, one box a rank; a parameter that is not named is whole everywhere.
        owners: by parameter, the ranks that hold it at all; others hold nothing of it.
        weights, gradients, updates: whole tensors; gradients and updates by step.
        own: weights, gradients or updates of single ranks, by (rank, kind, name), where they are not the whole's.
        batches: by rank, by step.
        grad_norms: by rank, by step; the true norm if not given.
        layers, experts: by rank.
    """

    coordinates: list[dict[str, int]] = field(default_factory=lambda: [{"dp": 0}])
    boxes: dict[str, list[Box]] = field(default_factory=dict)
    owners: dict[str, set[int]] = field(default_factory=dict)
    weights: Tensors = field(default_factory=lambda: MODEL)
    gradients: Mapping[int, Tensors] = field(default_factory=lambda: {0: MODEL, 1: MODEL})
    updates: Mapping[int, Tensors] = field(default_factory=lambda: {0: MODEL})
    own: dict[tuple[int, str, str], NDArray[np.float64]] = field(default_factory=dict)
    batches: dict[int, dict[int, Batch]] = field(default_factory=dict)
    grad_norms: dict[int, dict[int, float]] = field(default_factory=dict)
    layers: list[tuple[int, ...]] | None = None
    experts: list[dict[str, tuple[int, ...]]] | None = None
    optimizer: dict[str, object] = field(default_factory=lambda: dict(ADAMW))
    state_step: float = 0.0
    read: str = "before clipping"
    traits: list[dict[str, str]] | None = None
    split: dict[str, dict[int, str]] = field(default_factory=dict)


def draw(leg: Drawn) -> LegRecords:
    """The records that such a leg would leave."""
    return LegRecords(tuple(_rank(leg, rank) for rank in range(len(leg.coordinates))))


def _rank(leg: Drawn, rank: int) -> RankRecord:
    names = [name for name in leg.weights if rank in leg.owners.get(name, {rank})]

    def box(name: str) -> Box:
        whole = ((0,) * leg.weights[name].ndim, leg.weights[name].shape)
        return leg.boxes[name][rank] if name in leg.boxes else whole

    def own(kind: str, name: str, value: NDArray[np.float64]) -> NDArray[np.float64]:
        return leg.own.get((rank, kind, name), value)

    def taken(kind: str, whole: Tensors) -> Fingerprints:
        values = [own(kind, name, whole[name]) for name in names]
        after = [own("weights after", name, leg.weights[name]) for name in names]
        return Fingerprints(
            norms=np.array(
                [np.linalg.norm(v[tuple(map(slice, *box(n)))]) for n, v in zip(names, values, strict=True)]
            ),
            sketch=np.array([sketch(v, *box(n)) for n, v in zip(names, values, strict=True)]).reshape(-1, SLOTS),
            read=leg.read,
            hashes=tuple(state_hash(v, *box(n)) for n, v in zip(names, after, strict=True)),
        )

    total = {
        step: float(np.sqrt(sum(float((value**2).sum()) for value in whole.values())))
        for step, whole in leg.gradients.items()
    }
    parts = tuple(
        Part(
            name=name,
            shape=leg.weights[name].shape,
            start=box(name)[0],
            stop=box(name)[1],
            dtype="float32",
            split=leg.split.get(name, {}),
            hash=state_hash(own("weights", name, leg.weights[name]), *box(name)),
        )
        for name in names
    )
    return RankRecord(
        rank=rank,
        world_size=len(leg.coordinates),
        coordinates=leg.coordinates[rank],
        parameters=parts,
        optimizer=(OptimizerGroup(leg.optimizer, tuple(names), leg.state_step),),
        layers=leg.layers[rank] if leg.layers else None,
        experts=leg.experts[rank] if leg.experts else None,
        gradients={step: taken("gradients", whole) for step, whole in leg.gradients.items()},
        updates={step: taken("updates", whole) for step, whole in leg.updates.items()},
        batches=leg.batches.get(rank, {}),
        grad_norms=leg.grad_norms.get(rank, total),
        traits=leg.traits[rank] if leg.traits else {},
        has_model=True,
    )
