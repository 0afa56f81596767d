"""Explicit bounds from measured noise, for those who want fixed numbers."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parity.allowed import choose_profile
from parity.checks.comparison import Comparison
from parity.checks.control import check as judge_controls
from parity.checks.noise import horizon, noise_floor, sane_legs
from parity.checks.outcome import Status
from parity.checks.words import number
from parity.errors import UsageError
from parity.legs import read_legs
from parity.rundir import RunDirectory
from parity.suite import Suite
from parity.suite.floor import with_floor_legs
from parity.suite.values import Floor

__all__ = ["Calibrated", "Calibration", "as_yaml", "bounds_of", "calibrated", "with_runs"]


@dataclass(frozen=True)
class Calibrated:
    """Bounds of one metric. All are relative, rounded up to two digits.

    Attributes:
        metric: `loss` or `grad_norm`.
        first_rtol, rtol, mean_rtol: as a suite's `bounds` has them; None where no step tells.
        first, worst: the largest gaps seen at the first and at later steps.
        worst_step: where the latter was.
        until: the last step that they hold for: the evidence horizon, or the last.
        cut: whether that is the horizon.
    """

    metric: str
    first_rtol: float | None
    rtol: float | None
    mean_rtol: float | None
    first: float
    worst: float
    worst_step: int
    until: int
    cut: bool


def with_runs(suite: Suite, runs: int) -> Suite:
    """The suite with so many perturbed legs of each baseline, and each repeated once.

    Raises:
        UsageError: such legs cannot be made.
    """
    compare = [
        item.model_copy(update={"floor": Floor(repeat=1, perturbed=runs), "repeat": (), "perturbed": ()})
        for item in suite.compare
    ]
    made, problems = with_floor_legs(suite.model_copy(update={"compare": compare}))
    if problems:
        raise UsageError(*(f"{'.'.join(map(str, path))}: {text}" for path, text in problems))
    return made


@dataclass(frozen=True)
class Baseline:
    """What was measured of one baseline.

    Attributes:
        name: the leg.
        legs: those that measured noise.
        metrics: the bounds.
    """

    name: str
    legs: tuple[str, ...]
    metrics: tuple[Calibrated, ...]


@dataclass(frozen=True)
class Calibration:
    """Bounds by baseline, and where they come from.

    Attributes:
        baselines: by leg.
        source: the command, when it was run, and on what.
        k: how many times the noise is allowed.
        steps: of each leg.
    """

    baselines: tuple[Baseline, ...]
    source: tuple[str, ...]
    k: float
    steps: int


def calibrated(directory: RunDirectory, k: float) -> Calibration:
    """Bounds from the legs of a run directory.

    Raises:
        UsageError: a leg did not run, a control carries a bug, or a leg measures no noise.
    """
    snapshot = directory.read_snapshot()
    suite, legs = snapshot.suite, read_legs(directory)
    found: list[Baseline] = []
    for name in dict.fromkeys(item.baseline for item in suite.compare):
        items = [item for item in suite.compare if item.baseline == name]
        roles = {
            role: list(dict.fromkeys(leg for item in items for leg in getattr(item, role)))
            for role in ("control", "repeat", "perturbed")
        }
        names = [leg for role in roles.values() for leg in role]
        absent = [leg for leg in (name, *names) if leg not in legs]
        if absent:
            raise UsageError(
                f"{directory.path}: {', '.join(absent)} left nothing to measure noise with: it did not run to the"
                " end, or its trainer has no recorder that is given the model"
            )
        asked = next((item.profile for item in items if item.profile not in (None, "auto")), suite.profile)
        profile, _ = choose_profile(asked, [legs[name].curves.environment], snapshot.device)
        # The baseline as its own candidate has no gap, so that the floors are all that is asked for.
        comparison = Comparison(
            legs[name],
            legs[name],
            profile,
            controls=tuple(legs[leg] for leg in roles["control"]),
            repeats=tuple(legs[leg] for leg in roles["repeat"]),
            perturbed=tuple(legs[leg] for leg in roles["perturbed"]),
            k=k,
        )
        judged = judge_controls(comparison)
        if judged.status is not Status.PASS:
            raise UsageError(f"{name}: {judged.reason}")
        found.append(Baseline(name, tuple(names), tuple(bounds_of(comparison))))
    environment = legs[found[0].name].curves.environment
    about = ", ".join(f"{key} {environment[key]}" for key in ("torch", "device", "dtype") if key in environment)
    source = (snapshot.reproduce, f"{time.strftime('%Y-%m-%d', time.gmtime())}, {about}")
    return Calibration(tuple(found), source, k, suite.steps)


def bounds_of(comparison: Comparison) -> Iterator[Calibrated]:
    """What `k` times the noise of a comparison allows, by metric; nothing where no leg measured it.

    Raises:
        UsageError: noise is beyond what must be told after the first update already.
    """
    for metric in comparison.metrics():
        gap = comparison.gap(metric)
        floor = None if gap is None else noise_floor(comparison, gap)
        if gap is None or floor is None:
            continue
        end = horizon(comparison, metric)
        shown = gap.steps <= end
        if int(shown.sum()) < 2 <= gap.steps.size:
            raise UsageError(
                f"{comparison.baseline.name}: {number(comparison.k)} times the noise of {metric} is beyond"
                f" {number(comparison.bound(metric).resolve)} from the first update on, so that no bound tells a"
                " fault: a lower learning rate or a more precise dtype would"
            )
        relative = (floor / gap.scale)[shown]
        worst, step = _largest(comparison, metric, end)
        yield Calibrated(
            metric=metric,
            first_rtol=_up(comparison.k * relative[0]),
            rtol=_up(comparison.k * relative[1:].max()) if relative.size > 1 else None,
            mean_rtol=_up(comparison.k * relative[1:].mean()) if relative.size > 1 else None,
            first=float(relative[0]),
            worst=worst,
            worst_step=step,
            until=int(gap.steps[shown][-1]),
            cut=bool(end < gap.steps[-1]),
        )


def _largest(comparison: Comparison, metric: str, end: float) -> tuple[float, int]:
    """The largest relative gap that a leg showed after the first step, and where."""
    largest, step = 0.0, 0
    for leg in sane_legs(comparison):
        gap = comparison.gap_of(metric, leg)
        gap = None if gap is None else gap.until(end)
        if gap is None or not gap.finite[1:].any():
            continue
        at = int(np.nanargmax(gap.relative[1:])) + 1
        if gap.relative[at] > largest:
            largest, step = float(gap.relative[at]), int(gap.steps[at])
    return largest, step


def _up(number: float) -> float:
    """The next larger number of two digits."""
    if not number:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / unit - 1e-9) * unit:.1e}")


def as_yaml(found: Calibration) -> str:
    """A block to put into the suite, or for each baseline into its comparisons, with where it comes from."""
    lines = [f"# {line}" for line in found.source]
    for baseline in found.baselines:
        where = "this suite" if len(found.baselines) == 1 else f"comparisons with the baseline {baseline.name}"
        lines.append(f"# For {where}: {found.k:g} times the most that {', '.join(baseline.legs)}")
        lines.append(f"# were from {baseline.name}, up to each of {found.steps} steps.")
        lines.append("bounds:")
        for one in baseline.metrics:
            given = {"first_rtol": one.first_rtol, "rtol": one.rtol, "mean_rtol": one.mean_rtol}
            inner = ", ".join(f"{key}: {value:.1e}" for key, value in given.items() if value is not None)
            inner += f", until: {one.until}" if one.cut else ""
            lines.append(f"  # noise {one.first:.1e} at the first step, {one.worst:.1e} at step {one.worst_step}")
            if one.cut:
                lines.append(f"  # beyond step {one.until} noise hides a fault")
            lines.append(f"  {one.metric}: {{{inner}}}")
    return "\n".join(lines) + "\n"
