"""Fewer points for drawing that look like all of them."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["POINTS", "sampled"]

POINTS = 1000
"""Of a drawn line: more than a screen has columns for, and few enough for dozens of lines to stay quick."""


def sampled(
    count: int,
    largest: Sequence[NDArray[np.float64]],
    smallest: Sequence[NDArray[np.float64]] = (),
    *,
    broken: NDArray[np.bool_],
    most: int = POINTS,
    always: Collection[int] = (),
) -> NDArray[np.int64]:
    """Which of `count` points to draw: all if they are few.

    Of each stretch of steps: where each of `largest` is largest and each of `smallest` smallest, and the first and
    last point that is broken. Also the first and the last point of all.

    Args:
        count: n.
        largest, smallest: float64 (n,) each.
        broken: bool (n,), where values are not finite.
        most: points, but for those of `always`.
        always: indices that are kept.

    Returns:
        Indices, int64, sorted.
    """
    if count <= most:
        return np.arange(count, dtype=np.int64)
    kept = len(largest) + len(smallest) + (2 if broken.any() else 0)
    width = -(-count // max(1, (most - 2) // kept))
    starts = np.arange(0, count, width)

    def extremes(values: NDArray[np.float64]) -> NDArray[np.int64]:
        padded = np.full(starts.size * width, -np.inf)
        padded[:count] = np.where(np.isnan(values), -np.inf, values)
        at: NDArray[np.int64] = np.minimum(starts + np.argmax(padded.reshape(-1, width), axis=1), count - 1)
        return at

    found = [extremes(values) for values in largest] + [extremes(-values) for values in smallest]
    if broken.any():
        places = np.arange(count, dtype=np.float64)
        found += [extremes(np.where(broken, size, -np.inf)) for size in (places, -places)]
    ends = np.array([0, count - 1, *always], dtype=np.int64)
    return np.unique(np.concatenate([*found, ends]))
