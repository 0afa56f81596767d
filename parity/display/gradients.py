"""How far gradients are apart, parameter by step, to be drawn. Pure."""

import re

import numpy as np

from parity.checks.comparison import Comparison
from parity.checks.groups import GROUPS
from parity.checks.noise import parameter_floors
from parity.checks.parameters import Apart, apart, common_steps, recorded
from parity.result.drawn import GradientMap

__all__ = ["gradient_map", "layer_of"]

# Of a drawn map: more rows than this are lines no more, and its numbers would make most of a result.
_MOST_PARAMETERS = 300
_MOST_CELLS = 6000


def layer_of(name: str) -> int | None:
    """The layer that a parameter's name says: the first number in it."""
    found = re.search(r"(?:^|\.)(\d{1,6})(?:\.|$)", name)
    return int(found[1]) if found else None


def gradient_map(comparison: Comparison) -> GradientMap | None:
    """The candidate's gradients against the baseline's; None where they were not sketched."""
    candidate = comparison.candidate
    if not recorded(comparison.baseline) or not recorded(candidate):
        return None
    sketched = common_steps(comparison, candidate, "gradients")
    measured = {}
    for step in _some(sketched, _MOST_CELLS // 20):
        measured[step] = apart(comparison, candidate, "gradients", step).parameters
    found: dict[str, list[Apart]] = {}
    for parameters in measured.values():
        for name, one in parameters.items():
            found.setdefault(name, []).append(one)
    if not found:
        return None
    worst = {name: max(_size(one.distance) for one in ones) for name, ones in found.items()}
    kept = set(sorted(worst, key=lambda name: worst[name], reverse=True)[:_MOST_PARAMETERS])
    names = _by_layer([name for name in found if name in kept], found)
    steps = _some(list(measured), max(1, _MOST_CELLS // len(names)))
    floors = {step: parameter_floors(comparison, "gradients", step) for step in steps}
    distance = [[_distance(measured[step].get(name)) for step in steps] for name in names]
    times = [
        [
            None if gap is None or not (floor := (floors[step] or {}).get(name)) else gap / floor
            for step, gap in zip(steps, row, strict=True)
        ]
        for name, row in zip(names, distance, strict=True)
    ]
    return GradientMap(
        count=len(found),
        sketched=len(sketched),
        steps=steps,
        names=names,
        groups=[found[name][0].group for name in names],
        layers=[layer_of(name) for name in names],
        distance=distance,
        times_floor=times if any(floors.values()) else None,
    )


def _size(number: float) -> float:
    return number if np.isfinite(number) else np.inf


def _distance(one: Apart | None) -> float | None:
    return None if one is None else one.distance


def _some(steps: list[int], most: int) -> list[int]:
    """At most so many steps: the first, which tell most, then as many over the rest, with the last."""
    if len(steps) <= most:
        return steps
    first = max(1, most // 2)
    rest = np.linspace(first, len(steps) - 1, most - first).astype(np.int64).tolist()
    return [*steps[:first], *(steps[at] for at in dict.fromkeys(rest))]


def _by_layer(names: list[str], found: dict[str, list[Apart]]) -> list[str]:
    """What lies before the layers, layer by layer, what lies after; in each by group, then as the model has them."""
    layered = [at for at, name in enumerate(names) if layer_of(name) is not None]

    def place(at: int) -> tuple[int, int, int, int]:
        name = names[at]
        layer = layer_of(name)
        part = 1 if layer is not None else 0 if not layered or at < layered[0] else 2
        return part, layer or 0, GROUPS.index(found[name][0].group), at

    return [names[at] for at in sorted(range(len(names)), key=place)]
