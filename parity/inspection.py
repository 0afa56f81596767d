"""What was understood of a log: its format, metrics, steps and precision, and what was left out. Pure."""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import named_steps
from parity.checks.words import number, plural, spans
from parity.curves import Curve, LegCurves, Resolution
from parity.plain import plain
from parity.result import Model, Number

__all__ = ["FORMAT", "Inspected", "InspectedFile", "MetricSeen", "ResolutionSeen", "StepsSeen", "inspect"]

FORMAT: Final = "parity.inspect/1"

# More ranges than a person reads; the rest is counted.
_MOST_SPANS = 20
_MOST_CONFLICTS = 20
_MOST_FIELDS = 100
# From here on a float64 was printed whole, and a shorter text would not read back as it.
_WHOLE = 15
# What a field's name is cut to, as everywhere in messages.
_NAME_LENGTH = 40


class ResolutionSeen(Model):
    """How finely a metric was printed."""

    decimals: int
    significant: int
    spacing: Number
    at: Number
    text: str


class MetricSeen(Model):
    """One metric of a log."""

    metric: str
    field: str
    count: int
    first: Number
    last: Number
    missing: str
    missing_count: int
    conflicts: list[str]
    nan: int
    infinite: int
    resolution: ResolutionSeen | None


class StepsSeen(Model):
    """The steps of a log, over all its metrics."""

    field: str
    count: int
    first: int
    last: int
    stride: int
    gaps: str
    gap_count: int
    text: str


class InspectedFile(Model):
    """What was understood of one file; with `error`, why nothing was."""

    source: str
    error: str = ""
    format: str = ""
    evidence: str = ""
    finished: bool | None = None
    steps: StepsSeen | None = None
    metrics: tuple[MetricSeen, ...] = ()
    other_fields: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


class Inspected(Model):
    """What `parity inspect --json` prints."""

    format: Literal["parity.inspect/1"] = FORMAT
    files: list[InspectedFile]


def inspect(leg: LegCurves, *, given: bool = False) -> InspectedFile:
    """What was understood of a leg's log.

    Args:
        leg: as read.
        given: the format was named and not told from the content, so no note gives evidence.
    """
    notes = [plain(note.text, 500) for note in leg.notes]
    evidence = "" if given or not notes else notes.pop(0)
    steps = _steps(leg)
    return InspectedFile(
        source=plain(leg.source),
        format=leg.format,
        evidence=evidence.removeprefix(f"{leg.format}: "),
        finished=leg.finished,
        steps=steps,
        metrics=tuple(_metric(leg, curve) for curve in leg.curves.values()),
        other_fields=tuple(plain(name, _NAME_LENGTH) for name in leg.others[:_MOST_FIELDS]),
        notes=tuple(notes),
        hints=() if steps is None else tuple(_hints(leg, steps)),
    )


def _steps(leg: LegCurves) -> StepsSeen | None:
    every = named_steps(leg.curves.values())
    if not every.size:
        return None
    stride, absent, count = _gaps(every)
    first, last = int(every[0]), int(every[-1])
    how = plural(int(every.size), "step") + (f", {first} to {last}" if last > first else f", {first}")
    how += f", every {stride}" if stride > 1 else ""
    return StepsSeen(
        field=plain(leg.fields.get("step", "step"), _NAME_LENGTH),
        count=int(every.size),
        first=first,
        last=last,
        stride=stride,
        gaps=absent,
        gap_count=count,
        text=how + (f"; {plural(count, 'step')} between them missing: {absent}" if count else "; none missing"),
    )


def _gaps(steps: NDArray[np.int64]) -> tuple[int, str, int]:
    """The usual distance between steps, and those left out between them: as ranges, and their number."""
    if steps.size < 2:
        return 1, "", 0
    distances = np.diff(steps)
    sizes, counts = np.unique(distances, return_counts=True)
    stride = int(sizes[np.argmax(counts)])
    wide = np.flatnonzero(distances > stride)
    ranges = [(int(steps[at]) + stride, int(steps[at + 1]) - 1) for at in wide[:_MOST_SPANS]]
    text = ", ".join(f"{a}" if b < a + stride else f"{a}–{a + (b - a) // stride * stride}" for a, b in ranges)
    more = wide.size - len(ranges)
    count = int(((distances[wide] - 1) // stride).sum())
    return stride, text + (f" and {plural(more, 'more range')}" if more else ""), count


def _metric(leg: LegCurves, curve: Curve) -> MetricSeen:
    values = curve.values
    finite = values[np.isfinite(values)]
    return MetricSeen(
        metric=plain(curve.metric, _NAME_LENGTH),
        field=plain(leg.fields.get(curve.metric, curve.metric), _NAME_LENGTH),
        count=int(values.size),
        first=float(values[0]),
        last=float(values[-1]),
        missing=spans(curve.missing, _MOST_SPANS),
        missing_count=len(curve.missing),
        conflicts=[
            f"step {one.step}: {' and '.join(f'{value:.9g}' for value in one.values[:3])}"
            for one in curve.conflicts[:_MOST_CONFLICTS]
        ],
        nan=int(np.isnan(values).sum()),
        infinite=int(np.isinf(values).sum()),
        resolution=_resolution(curve.resolution, float(finite[-1])) if finite.size else None,
    )


def _resolution(printed: Resolution, at: float) -> ResolutionSeen:
    spacing = float(printed.at(np.array([at]))[0])
    if printed.float32 and spacing > 2 * 10.0**-printed.decimals:
        how = "stored as float32"
    elif printed.significant >= _WHOLE:
        how = "in full"
    elif spacing > 2 * 10.0**-printed.decimals:
        how = f"to {plural(printed.significant, 'significant digit')}"
    else:
        how = f"to {plural(printed.decimals, 'decimal')}"
    return ResolutionSeen(
        decimals=printed.decimals,
        significant=printed.significant,
        spacing=spacing,
        at=at,
        text=f"{how}: {number(spacing)} at {number(at)}",
    )


def _hints(leg: LegCurves, steps: StepsSeen) -> list[str]:
    """What the first step says of how the leg can be compared."""
    begins, base = steps.first, leg.base
    if base is not None and begins > base:
        return [
            f"{leg.format} counts steps from {base} and this log begins at {begins}: its first step is not in it, and"
            " checks of the first step do not run"
        ]
    if begins > 1:
        return [
            f"the log begins at step {begins}: checks of the first step do not run unless first_step: {begins} says"
            " that it is the first"
        ]
    if begins == 1:
        counts = f"{leg.format} counts" if base == 1 else "the log counts"
        return [f"{counts} steps from 1: beside a leg that counts from 0, say first_step: 1 for this one"]
    return []
