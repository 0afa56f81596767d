"""What there is of a run: a run directory with records and logs, or a result alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parity.checks.allowance import allowance
from parity.checks.comparison import JUDGED, Comparison, Leg
from parity.checks.noise import noise_floor
from parity.display.curves import deviation
from parity.errors import UsageError
from parity.judge import judge
from parity.plain import plain
from parity.report.details import printable
from parity.result import ComparisonResult, LegResult, Result, read_result
from parity.result.drawn import DeviationResult
from parity.rundir import RunDirectory

__all__ = ["Opened", "Series", "open_run"]


@dataclass(frozen=True, eq=False)
class Series:
    """One metric of one leg.

    Attributes:
        steps: int64 (n,), rising.
        values: float64 (n,).
        count: steps that the leg has; more than n where a result keeps only some.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    count: int

    def at(self, step: int) -> float | None:
        """The value at a step; None where there is none."""
        place = int(np.searchsorted(self.steps, step))
        return float(self.values[place]) if place < self.steps.size and self.steps[place] == step else None


@dataclass(frozen=True, eq=False)
class Opened:
    """A run, or the result on logs.

    Attributes:
        path: as it was given.
        directory: where files of legs are.
        result: the verdict, and what reports draw.
        legs: what was judged, by name; empty where there is a result alone.
        comparisons: the same of comparisons.
    """

    path: Path
    directory: RunDirectory
    result: Result
    legs: Mapping[str, Leg] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()

    def leg(self, name: str) -> LegResult:
        """A leg by its name.

        Raises:
            UsageError: there is none of this name.
        """
        for leg in self.result.legs:
            if leg.name == name:
                return leg
        names = ", ".join(leg.name for leg in self.result.legs)
        raise UsageError(f"--leg {plain(name)}: no such leg; there is {names}")

    def judged(self, told: ComparisonResult) -> Comparison | None:
        """What a comparison was made of; None where there is a result alone."""
        pairs = ((one.candidate.name, one.baseline.name) for one in self.comparisons)
        found = dict(zip(pairs, self.comparisons, strict=True))
        return found.get((told.candidate, told.baseline))

    @cached_property
    def series(self) -> Mapping[str, Mapping[str, Series]]:
        """By leg and metric, the leg's curve."""
        found: dict[str, dict[str, Series]] = {leg.name: {} for leg in self.result.legs}
        for one in self.result.curves:
            steps, values = np.array(one.steps, dtype=np.int64), np.array(one.values, dtype=np.float64)
            found.setdefault(one.leg, {})[one.metric] = Series(steps, values, one.count)
        for name, leg in self.legs.items():
            found[name] = {
                metric: Series(curve.steps, curve.values, curve.steps.size)
                for metric, curve in leg.curves.curves.items()
            }
        return found

    def metrics(self, legs: Iterable[str]) -> list[str]:
        """Names of the legs' curves, the judged ones first."""
        names = dict.fromkeys(metric for leg in legs for metric in self.series.get(leg, {}))
        return [*(one for one in JUDGED if one in names), *(one for one in names if one not in JUDGED)]

    def deviations(self, told: ComparisonResult, leg: str, step: int) -> Mapping[str, DeviationResult]:
        """By metric, a leg's gap to the baseline, with the step in it if both have it and it was kept."""
        comparison = self.judged(told)
        if comparison is None:
            drawn = {one.metric: one.deviation for one in told.metrics if one.deviation is not None}
            return drawn if leg == told.candidate else {}
        found = {}
        for metric in comparison.metrics():
            gap = comparison.gap(metric) if leg == told.candidate else comparison.gap_of(metric, self.legs[leg])
            if gap is not None:
                allowed, floor = allowance(comparison, gap).allowed, noise_floor(comparison, gap)
                found[metric] = deviation(comparison, gap, allowed, floor, always=(step,))
        return found


def open_run(path: Path) -> Opened:
    """Open a run directory, judging it anew, or a folder or file with a result alone.

    Raises:
        UsageError: it is neither.
    """
    if path.is_dir() and (path / "suite.json").exists():
        directory = RunDirectory(path)
        judged = judge(directory)
        return Opened(path, directory, printable(judged.result), judged.legs, judged.comparisons)
    file = path / "result.json" if path.is_dir() else path
    if not file.exists():
        what = "holds no suite.json and no result.json" if path.is_dir() else "no such folder"
        raise UsageError(f"{path}: {what}; give the folder that `parity run` or `parity compare --out` wrote")
    return Opened(path, RunDirectory(file.parent), printable(read_result(file)))
