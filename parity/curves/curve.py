"""What a reader hands on: the curves of one leg, with the precision they were written in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Conflict", "Curve", "LegCurves", "Note", "Resolution"]


@dataclass(frozen=True)
class Resolution:
    """How finely a source prints a metric.

    Attributes:
        decimals: most digits after the point seen in any value.
        significant: most significant digits seen in any value.
        float32: whether the source stores float32, whatever the run computed in.

    The digits are taken from the values, so a lower bound that is exact once a curve has several distinct values.
    A curve that is 0.001 all along was printed like the source's other metrics if those are in full.
    """

    decimals: int
    significant: int
    float32: bool = False

    def at(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The spacing of printed numbers at each value: float64, same shape; 0 where not finite.

        A source that prints %.4f has 4 decimals; one that prints %.4g has 4 significant digits. Whichever
        of the two is coarser at a value holds there.
        """
        finite = np.isfinite(values)
        size = np.where(finite & (values != 0), np.abs(values), 1.0)
        by_significant = 10.0 ** (np.floor(np.log10(size)) + 1 - self.significant)
        coarser = np.maximum(by_significant, 10.0**-self.decimals)
        if self.float32:
            coarser = np.maximum(coarser, np.spacing(size.astype(np.float32)).astype(np.float64))
        return np.where(finite, coarser, 0.0)


@dataclass(frozen=True)
class Conflict:
    """A step that was written more than once with different values."""

    step: int
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric of one leg.

    Attributes:
        metric: `loss`, `grad_norm`, `lr` or another name.
        steps: int64, shape (n,), strictly increasing.
        values: float64, shape (n,); may hold NaN and infinities, as the run wrote them.
        resolution: how finely the source printed the values.
        conflicts: steps with several different values (the first 1,000 such steps); `values` holds the first
            value of each.
        missing: steps that the source names without a value (null or absent) for this metric.
    """

    metric: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    resolution: Resolution
    conflicts: tuple[Conflict, ...] = ()
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class Note:
    """Something a reader noticed that a person may want to know; it never changes a verdict."""

    text: str


@dataclass(frozen=True, eq=False)
class LegCurves:
    """Everything read from one leg's source.

    Attributes:
        source: the file's path, as given.
        format: the reader that understood it.
        curves: by metric name. Only metrics that have at least one value.
        notes: what was odd and how it was taken.
        environment: what the recorder wrote about the leg; empty for other formats.
        start: who wrote the recorder's file: `run_id`, `leg`, `rank`, `world_size`, `time`; empty for other
            formats.
        finished: True or False where the format says whether the run reached its end, else None.
        fields: by metric, and for `step`, the field that it was taken from, where the format has named fields.
        others: fields that nothing was taken from.
        base: the number that this leg's first step has, where format or user say so: a log that begins later lacks
            its first step. None where it can't be known.
    """

    source: str
    format: str
    curves: Mapping[str, Curve]
    notes: tuple[Note, ...] = ()
    environment: Mapping[str, object] = field(default_factory=dict)
    start: Mapping[str, object] = field(default_factory=dict)
    finished: bool | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    base: int | None = None

    def counted_from(self, first_step: int) -> "LegCurves":
        """The same curves with steps counted from 0, where the source calls the first one `first_step`."""
        if not first_step:
            return replace(self, base=0)
        moved = {
            metric: replace(
                curve,
                steps=curve.steps - first_step,
                conflicts=tuple(replace(one, step=one.step - first_step) for one in curve.conflicts),
                missing=tuple(step - first_step for step in curve.missing),
            )
            for metric, curve in self.curves.items()
        }
        return replace(self, curves=moved, base=0)
