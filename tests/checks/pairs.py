"""Pairs of legs with records, drawn under six layouts, whose candidate is to be broken."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Leg
from parity.checks.hints import hints
from parity.checks.run import run_checks
from parity.layout import Layout
from parity.records.record import Batch, LegRecords
from tests.drawing import LOSS, NORM, compare
from tests.drawing import leg as drawn_leg
from tests.records.drawing import ADAMW, Drawn, draw, split

Tensors = dict[str, NDArray[np.float64]]

SHAPES = {
    "embed.weight": (31, 8),
    "layers.0.attention.q.weight": (16, 8),
    "layers.0.attention.q.bias": (16,),
    "layers.0.attention_norm.weight": (8,),
    "layers.0.moe.experts.up": (4, 6, 8),
    "layers.0.moe.experts.down": (4, 8, 6),
    "layers.0.moe.gate.weight": (4, 8),
    "layers.1.attention.q.weight": (16, 8),
    "layers.1.attention.q.bias": (16,),
    "layers.1.attention_norm.weight": (8,),
    "layers.1.mlp.up.weight": (12, 8),
    "norm.weight": (8,),
}
MODEL: Tensors = {
    name: np.random.default_rng(at).normal(size=shape) for at, (name, shape) in enumerate(SHAPES.items())
}
EXPERTS = [name for name in MODEL if "experts" in name]
ROUTER = "layers.0.moe.gate.weight"
NORMS = [name for name in MODEL if "norm" in name]
ATTENTION = [name for name in MODEL if "attention.q" in name]
LAYER_0 = [name for name in MODEL if name.startswith("layers.0")]

LAYOUTS = {
    "dp2": Layout(dp=2),
    "fsdp4": Layout(fsdp=4),
    "tp2": Layout(tp=2),
    "pp2": Layout(pp=2),
    "ep2": Layout(dp=2, ep=2),
    "cp2": Layout(cp=2),
}


def part(value: NDArray[np.float64], parts: int) -> list[Any]:
    sizes = [value.shape[0] // parts + (rank < value.shape[0] % parts) for rank in range(parts)]
    return split(value, 0, sizes)


def laid_out(name: str) -> Drawn:
    """A leg of correct records under one of the layouts."""
    if name == "dp2":
        return Drawn(coordinates=[{"dp": rank} for rank in range(2)])
    if name == "fsdp4":
        return Drawn(
            coordinates=[{"fsdp": rank} for rank in range(4)],
            boxes={n: part(value, 4) for n, value in MODEL.items()},
            split={n: {0: "fsdp"} for n in MODEL},
        )
    if name == "tp2":
        cut = [*ATTENTION, "layers.1.mlp.up.weight", "embed.weight"]
        return Drawn(coordinates=[{"tp": 0}, {"tp": 1}], boxes={n: part(MODEL[n], 2) for n in cut})
    if name == "pp2":
        first = {"embed.weight", *LAYER_0}
        owners = {n: {0} if n in first else {1} for n in MODEL}
        return Drawn(coordinates=[{"pp": 0}, {"pp": 1}], owners=owners, layers=[(0,), (1,)])
    if name == "ep2":
        return Drawn(
            coordinates=[{"dp": rank, "ep": rank} for rank in range(2)],
            boxes={n: part(MODEL[n], 2) for n in EXPERTS},
            experts=[{"layers.0.moe.experts": (0, 1)}, {"layers.0.moe.experts": (2, 3)}],
        )
    return Drawn(coordinates=[{"cp": 0}, {"cp": 1}])


@dataclass
class Pair:
    """A baseline and a candidate to be broken: their records and curves."""

    name: str
    baseline: Drawn
    candidate: Drawn
    curves: dict[str, NDArray[np.float64]] = field(default_factory=lambda: {"loss": LOSS, "grad_norm": NORM})
    changed: Callable[[LegRecords], LegRecords] = field(default=lambda records: records)
    grouped: Callable[[LegRecords], LegRecords] = field(default=lambda records: records)
    known: bool = True

    def compared(self, **more: Any) -> Comparison:
        ranks = len(self.candidate.coordinates)
        dealt = LAYOUTS[self.name].dp * LAYOUTS[self.name].fsdp
        if self.known and not self.candidate.batches:
            whole = {step: Batch(1000 + step, 4, 2) for step in range(20)}
            self.baseline.batches = {0: whole}
            # The hashes of what ranks were dealt add up to the whole's.
            mine = (
                [
                    {
                        s: Batch(b.hash - 7 if not r else 7 // (dealt - 1) if dealt == 2 else r, 4 // dealt, 2)
                        for s, b in whole.items()
                    }
                    for r in range(dealt)
                ]
                if dealt > 1
                else [whole]
            )
            if dealt == 4:
                mine[0] = {s: Batch(b.hash - 6, 1, 2) for s, b in whole.items()}
            self.candidate.batches = {rank: mine[rank % dealt] for rank in range(ranks)}
        base = Leg(
            "base", drawn_leg("base", loss=LOSS, grad_norm=NORM).curves, Layout(), self.grouped(draw(self.baseline))
        )
        curves = drawn_leg(self.name, **self.curves).curves
        other = Leg(self.name, curves, LAYOUTS[self.name], self.changed(self.grouped(draw(self.candidate))))
        return compare(base, other, steps=20, **more)

    def said(self) -> tuple[str, ...]:
        comparison = self.compared()
        return hints(comparison, run_checks(comparison))


def pair(name: str) -> Pair:
    def leg(drawn: Drawn) -> Drawn:
        drawn.weights = MODEL
        drawn.gradients = {0: MODEL, 1: MODEL}
        drawn.updates = {0: MODEL, 1: MODEL}
        drawn.optimizer = {**ADAMW, "betas": "[0.9, 0.999]"}
        return drawn

    return Pair(name, leg(Drawn()), leg(laid_out(name)))


def scaled(names: Mapping[str, float] | list[str], factor: float = 1.0) -> Tensors:
    factors = names if isinstance(names, Mapping) else dict.fromkeys(names, factor)
    return {name: value * factors.get(name, 1.0) for name, value in MODEL.items()}


def shaken(size: float, names: list[str] | None = None, seed: int = 1) -> Tensors:
    """The model with noise of a relative size, in some parameters or in all."""
    made = {}
    for at, (name, value) in enumerate(MODEL.items()):
        noise = np.random.default_rng(seed + at).normal(size=value.shape)
        scale = size * np.linalg.norm(value) / np.linalg.norm(noise)
        made[name] = value + scale * noise if names is None or name in names else value
    return made


def gradients(of: Pair, whole: Tensors) -> None:
    of.candidate.gradients = {0: whole, 1: MODEL}


def in_pieces(of: Pair, names: list[str], mean: bool = False) -> None:
    """Each rank is left with its own addend of these gradients."""
    ranks = len(of.candidate.coordinates)
    for at, name in enumerate(names):
        noise = np.random.default_rng(100 + at).normal(size=(ranks, *MODEL[name].shape))
        addends = (MODEL[name] if mean else MODEL[name] / ranks) + noise - noise.mean(0)
        for rank in range(ranks):
            of.candidate.own[(rank, "gradients", name)] = addends[rank]


def first_loss(of: Pair, factor: float) -> None:
    of.curves["loss"] = LOSS * factor
