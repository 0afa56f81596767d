"""Curves and comparisons drawn in a line, for tests."""

from collections.abc import Mapping, Sequence

import numpy as np

from parity.checks.comparison import Comparison, Leg
from parity.checks.profiles import PROFILES, Profile
from parity.curves.curve import Conflict, Curve, LegCurves, Resolution

__all__ = ["LOSS", "NORM", "compare", "curve", "leg", "noisy"]

FULL = Resolution(decimals=17, significant=17)

# A run of 20 steps that learns: loss from 6.0 down to 5.1, gradient norm about 2.
LOSS = 6.0 - 0.05 * np.arange(20) + 0.01 * np.sin(np.arange(20))
NORM = 2.0 + 0.2 * np.cos(np.arange(20))


def curve(
    metric: str,
    values: Sequence[float] | np.ndarray,
    steps: Sequence[int] | np.ndarray | None = None,
    resolution: Resolution = FULL,
    conflicts: tuple[Conflict, ...] = (),
    missing: tuple[int, ...] = (),
) -> Curve:
    """A curve with steps counted from 0 unless given."""
    at = np.arange(len(values)) if steps is None else np.asarray(steps)
    return Curve(metric, at.astype(np.int64), np.asarray(values, dtype=np.float64), resolution, conflicts, missing)


def leg(name: str, *curves: Curve, **values: Sequence[float] | np.ndarray) -> Leg:
    """A leg with curves, given whole or as `loss=[...]`."""
    every = [*curves, *(curve(metric, given) for metric, given in values.items())]
    by_metric: Mapping[str, Curve] = {one.metric: one for one in every}
    return Leg(name, LegCurves(source=f"{name}.jsonl", format="drawn", curves=by_metric))


def noisy(values: np.ndarray, size: float, seed: int = 0) -> np.ndarray:
    """The values with a relative jitter of about `size`; the first value stays as it is."""
    jitter = np.random.default_rng(seed).normal(size=values.shape) * size
    jitter[0] = 0.0
    return values * (1 + jitter)


def compare(
    baseline: Leg,
    candidate: Leg,
    control: Leg | None = None,
    *,
    profile: Profile = PROFILES["fp32-cpu"],
    steps: int | None = None,
    **more: object,
) -> Comparison:
    """A comparison; `steps` says how many there should be, counted from 0."""
    expected = None if steps is None else np.arange(steps, dtype=np.int64)
    controls = () if control is None else (control,)
    return Comparison(baseline, candidate, profile, controls, expected_steps=expected, **more)  # type: ignore[arg-type]
