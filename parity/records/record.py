"""What the recorder left beyond curves: the parts that each rank holds, and their fingerprints. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["SLOTS", "Batch", "Fingerprints", "LegRecords", "OptimizerGroup", "Part", "RankRecord"]

# Numbers in a sketch; see `parity.record.fingerprint`.
SLOTS = 64

_MODULUS = 1 << 64


@dataclass(frozen=True)
class Part:
    """The box of one parameter or buffer that one rank holds.

    Attributes:
        name: model-wide.
        shape: of the whole tensor.
        start, stop: the box, per dimension.
        dtype: of the values, as torch names it.
        split: by dimension, the mesh axis that cut it, where the recorder knows.
        trainable: whether it gets a gradient.
        hash: state hash of the box before the first step.
    """

    name: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    stop: tuple[int, ...]
    dtype: str
    split: Mapping[int, str] = field(default_factory=dict)
    trainable: bool = True
    hash: int = 0

    @property
    def box(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Start and stop: what two ranks have in common if they hold the same."""
        return self.start, self.stop

    @property
    def size(self) -> int:
        """Elements in the box."""
        return math.prod(b - a for a, b in zip(self.start, self.stop, strict=True))

    @property
    def whole_size(self) -> int:
        """Elements in the whole tensor."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """Gradients or updates of one rank's parts at one step, in the order of its parameters.

    Attributes:
        norms: float64 (P,), L2 norm of each part; NaN where there was none.
        sketch: float64 (P, 64), or None at steps that are not sketched.
        read: when gradients were read.
        estimated: whether the norms are estimates from the sketch.
        hashes: state hash of each part after the step, or None where it was not taken.
        summed_over: ranks whose numbers for a part add up to those of the part, where each saw another piece of it;
            empty where each rank saw its parts whole.
    """

    norms: NDArray[np.float64]
    sketch: NDArray[np.float64] | None = None
    read: str = ""
    estimated: bool = False
    hashes: tuple[int | None, ...] = ()
    summed_over: tuple[int, ...] = ()


@dataclass(frozen=True)
class Batch:
    """What one rank trained on at one step.

    Attributes:
        hash: sum modulo 2^64 of the hashes of its samples.
        samples: how many.
        micro_batches: in how many pieces, or None if it was not said.
    """

    hash: int
    samples: int
    micro_batches: int | None = None


@dataclass(frozen=True)
class OptimizerGroup:
    """One parameter group, with its optimizer's class among the settings.

    Attributes:
        settings: numbers, booleans and text by name.
        parameters: names.
        state_step: steps that the optimizer says it had made before the first.
    """

    settings: Mapping[str, object]
    parameters: tuple[str, ...]
    state_step: float = 0.0


@dataclass(frozen=True, eq=False)
class RankRecord:
    """One rank's file.

    Attributes:
        rank, world_size: its place, and of how many.
        coordinates: its place on each axis; empty if it was not said.
        parameters, buffers: what it holds; empty if only curves were recorded.
        optimizer: its parameter groups.
        rng: hash of the random state before the first step.
        layers: the layers it owns, where said.
        experts: the experts it owns, by module, where said.
        gradients, updates, batches: by step.
        losses, grad_norms: by step, as this rank logged them; `losses` has every step.
        buffer_hashes: by step, the state hash of each buffer after it, or None where it was not taken.
        final, final_buffers: state hash of each part and each buffer after the last step, or None where it was not
            taken; empty if none was.
        ended: whether it said that it reached its end.
        peak_memory: bytes, the most that it held at once, where it said so at its end.
        run_id, leg: of the run and leg that it says it belongs to.
        traits: how modules really computed, by name, where a layout must not change it.
        has_model: whether the file describes a model at all.
        perturbed: whether the rank says, each time that it started, that it moved its weights.
        environment: what it said its numbers depend on, as JSON.
        unseen: what it says could not be seen, a sentence each.
    """

    rank: int
    world_size: int
    coordinates: Mapping[str, int] = field(default_factory=dict)
    parameters: tuple[Part, ...] = ()
    buffers: tuple[Part, ...] = ()
    optimizer: tuple[OptimizerGroup, ...] = ()
    rng: str = ""
    layers: tuple[int, ...] | None = None
    experts: Mapping[str, tuple[int, ...]] | None = None
    gradients: Mapping[int, Fingerprints] = field(default_factory=dict)
    updates: Mapping[int, Fingerprints] = field(default_factory=dict)
    batches: Mapping[int, Batch] = field(default_factory=dict)
    losses: Mapping[int, float | None] = field(default_factory=dict)
    grad_norms: Mapping[int, float] = field(default_factory=dict)
    buffer_hashes: Mapping[int, tuple[int | None, ...]] = field(default_factory=dict)
    final: tuple[int | None, ...] = ()
    final_buffers: tuple[int | None, ...] = ()
    ended: bool = True
    peak_memory: int | None = None
    run_id: str | None = None
    leg: str | None = None
    traits: Mapping[str, str] = field(default_factory=dict)
    has_model: bool = False
    perturbed: bool = False
    environment: Mapping[str, object] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Place of each parameter in the arrays, by name."""
        return {part.name: at for at, part in enumerate(self.parameters)}

    @cached_property
    def buffer_index(self) -> Mapping[str, int]:
        """Place of each buffer, by name."""
        return {part.name: at for at, part in enumerate(self.buffers)}


Holders = Sequence[tuple[RankRecord, Part]]


@dataclass(frozen=True, eq=False)
class LegRecords:
    """All ranks of a leg.

    Attributes:
        ranks: in order; every rank that left a file.
    """

    ranks: tuple[RankRecord, ...]

    @property
    def environment(self) -> Mapping[str, object]:
        """What the first rank said."""
        return self.ranks[0].environment if self.ranks else {}

    @property
    def peak_memory(self) -> int | None:
        """The most of all ranks."""
        return max((rank.peak_memory for rank in self.ranks if rank.peak_memory is not None), default=None)

    @property
    def has_model(self) -> bool:
        """Whether every rank described what it holds."""
        return bool(self.ranks) and all(rank.has_model for rank in self.ranks)

    @cached_property
    def holders(self) -> Mapping[str, Holders]:
        """By parameter, who holds which part of it; empty parts left out."""
        return _holders((rank, rank.parameters) for rank in self.ranks)

    @cached_property
    def buffer_holders(self) -> Mapping[str, Holders]:
        """The same for buffers."""
        return _holders((rank, rank.buffers) for rank in self.ranks)

    @cached_property
    def distinct(self) -> Mapping[str, Holders]:
        """By parameter, one holder of each part: what a sum over the whole tensor runs over."""
        return {name: _one_of_each(holders) for name, holders in self.holders.items()}

    def state_hash(self, name: str) -> int:
        """Hash of a whole parameter before the first step: the sum of its parts' modulo 2^64."""
        return sum(part.hash for _, part in self.distinct[name]) % _MODULUS

    def sketched_steps(self, kind: str) -> list[int]:
        """Steps at which every rank left sketches of `gradients` or `updates`."""
        of_ranks = [
            {step for step, one in _taken(rank, kind).items() if one.sketch is not None} for rank in self.ranks
        ]
        return sorted(set.intersection(*of_ranks)) if of_ranks else []

    def norms(self, kind: str, step: int) -> dict[str, float]:
        """L2 norm of each whole parameter's gradient or update; parameters without one are left out."""
        total, parts, there, absent = self._summed(kind, step, lambda one: np.square(one.norms))
        kept = (there == parts) & (absent < parts)
        return {
            name: float(value) for name, value, keep in zip(self.distinct, np.sqrt(total), kept, strict=True) if keep
        }

    def sketches(self, kind: str, step: int) -> dict[str, NDArray[np.float64]]:
        """Sketch of each whole parameter's gradient or update: the sum of its parts', float64 (64,)."""
        total, parts, there, absent = self._summed(kind, step, lambda one: one.sketch)
        kept = (there == parts) & (absent == 0) & (parts > 0)
        return {name: value for name, value, keep in zip(self.distinct, total, kept, strict=True) if keep}

    @cached_property
    def _rows(self) -> Mapping[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """By rank: which of `distinct` each of its parts belongs to, and the part's row in the rank's arrays."""
        return self._rows_of(self.distinct)

    @cached_property
    def _pieces(self) -> Mapping[str, Holders]:
        """`distinct`, and with each holder those that saw other pieces of its gradients."""
        found: dict[str, Holders] = {}
        for name, holders in self.distinct.items():
            together = []
            for rank, part in holders:
                ranks = {one for taken in rank.gradients.values() for one in taken.summed_over}
                others = [one for one in self.holders[name] if one[0].rank in ranks and one[1].box == part.box]
                together += others or [(rank, part)]
            found[name] = together
        return found

    @staticmethod
    def _rows_of(holders: "Mapping[str, Holders]") -> Mapping[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        pairs: dict[int, tuple[list[int], list[int]]] = {}
        for at, (name, some) in enumerate(holders.items()):
            for rank, _ in some:
                whose, rows = pairs.setdefault(id(rank), ([], []))
                whose.append(at)
                rows.append(rank.index[name])
        return {key: (np.array(whose), np.array(rows)) for key, (whose, rows) in pairs.items()}

    def _summed(
        self, kind: str, step: int, of: Callable[[Fingerprints], NDArray[np.float64] | None]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each of `distinct`: the sum over its parts that had a gradient or update, float64; of how many it
        should be the sum, how many of these the step has, and how many of them had none, int64."""
        spread = any(one.summed_over for rank in self.ranks if (one := _taken(rank, kind).get(step)) is not None)
        holders = self._pieces if spread else self.distinct
        held = self._rows_of(holders) if spread else self._rows
        parts = np.array([len(some) for some in holders.values()], dtype=np.int64)
        total, there = None, np.zeros(len(parts), dtype=np.int64)
        absent = np.zeros(len(parts), dtype=np.int64)
        for rank in self.ranks:
            taken = _taken(rank, kind).get(step)
            values = None if taken is None else of(taken)
            if taken is None or values is None or id(rank) not in held:
                continue
            whose, rows = held[id(rank)]
            none = np.isnan(taken.norms[rows])
            total = np.zeros((len(parts), *values.shape[1:])) if total is None else total
            np.add.at(total, whose[~none], values[rows[~none]])
            np.add.at(there, whose, 1)
            np.add.at(absent, whose[none], 1)
        return np.zeros(len(parts)) if total is None else total, parts, there, absent


def _taken(rank: RankRecord, kind: str) -> Mapping[int, Fingerprints]:
    return rank.gradients if kind == "gradients" else rank.updates


def _holders(parts_of: Iterable[tuple[RankRecord, tuple[Part, ...]]]) -> dict[str, Holders]:
    found: dict[str, list[tuple[RankRecord, Part]]] = {}
    for rank, parts in parts_of:
        for part in parts:
            found.setdefault(part.name, [])
            if part.size:
                found[part.name].append((rank, part))
    return {**found}


def _one_of_each(holders: Holders) -> list[tuple[RankRecord, Part]]:
    first: dict[object, tuple[RankRecord, Part]] = {}
    for rank, part in holders:
        first.setdefault(part.box, (rank, part))
    return list(first.values())
