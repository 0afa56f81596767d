"""Legs with records, drawn under four layouts, for the tests of checks that look beyond curves."""

from collections.abc import Callable
from typing import Any

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Outcome, Status
from parity.layout import Layout
from tests.drawing import LOSS, NORM, compare
from tests.drawing import leg as drawn_leg
from tests.records.drawing import MODEL, Drawn, draw, split

Q0, Q1 = "layers.0.attention.q_proj.weight", "layers.1.attention.q_proj.weight"
EXPERTS, ROUTER = "layers.0.experts.w1", "layers.0.router.weight"


def plain_run() -> Drawn:
    return Drawn()


def tp3() -> Drawn:
    """Attention cut 6/6/4, the embedding 11/10/10; the rest whole on every rank."""
    return Drawn(
        coordinates=[{"tp": rank} for rank in range(3)],
        boxes={
            Q0: split(MODEL[Q0], 0, (6, 6, 4)),
            Q1: split(MODEL[Q1], 0, (6, 6, 4)),
            "embed.weight": split(MODEL["embed.weight"], 0, (11, 10, 10)),
        },
    )


def pp2() -> Drawn:
    first = {"embed.weight", Q0, EXPERTS, ROUTER}
    return Drawn(
        coordinates=[{"pp": 0}, {"pp": 1}],
        owners={name: {0} if name in first else {1} for name in MODEL},
        layers=[(0,), (1,)],
    )


def ep2() -> Drawn:
    return Drawn(
        coordinates=[{"fsdp": 0, "ep": 0}, {"fsdp": 1, "ep": 1}],
        boxes={
            EXPERTS: split(MODEL[EXPERTS], 0, (2, 2)),
            Q0: split(MODEL[Q0], 0, (8, 8)),
            Q1: split(MODEL[Q1], 0, (8, 8)),
        },
        experts=[{"layers.0.experts": (0, 1)}, {"layers.0.experts": (2, 3)}],
    )


def dp2() -> Drawn:
    return Drawn(coordinates=[{"dp": 0}, {"dp": 1}])


SIZES = {"tp3": Layout(tp=3), "pp2": Layout(pp=2), "ep2": Layout(fsdp=2, ep=2), "dp2": Layout(dp=2)}
LEGS: dict[str, Callable[[], Drawn]] = {"tp3": tp3, "pp2": pp2, "ep2": ep2, "dp2": dp2}


def comparison(candidate: Drawn, name: str = "tp3", baseline: Drawn | None = None, **more: Any) -> Comparison:
    def made(label: str, drawn: Drawn, shape: Layout) -> Leg:
        curves = drawn_leg(label, loss=LOSS, grad_norm=NORM).curves
        return Leg(label, curves, shape, draw(drawn))

    control = more.pop("control", None)
    return compare(
        made("base", baseline or plain_run(), Layout()),
        made(name, candidate, SIZES[name]),
        made("control", control, SIZES[name]) if control else None,
        steps=20,
        **more,
    )


def assert_fails(outcome: Outcome, said: str) -> None:
    assert outcome.status is Status.FAIL, outcome.reason
    assert said in outcome.reason


def scaled(name: str, factor: float) -> dict[str, np.ndarray]:
    return {**MODEL, name: MODEL[name] * factor}
