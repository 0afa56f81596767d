"""What a check is given: the legs of one comparison, and their gaps step by step."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from parity.checks.defaults import DEFAULT_K
from parity.checks.profiles import Bound, Profile
from parity.curves.curve import Curve, LegCurves
from parity.layout import Layout
from parity.records.record import LegRecords

__all__ = ["JUDGED", "WHOLE", "Comparison", "Gap", "Leg", "LogEvidence", "gap_between", "named_steps"]

# The metrics that checks judge against bounds. `same_data` compares `lr`; of others a passing summary says that they
# were not judged.
JUDGED = ("loss", "grad_norm")

_T = TypeVar("_T")

_LEAST_OF_MEDIAN = 1e-3

WHOLE = 1e-15
"""A float64 that is printed whole is known to a few parts in 10^16."""


@dataclass(frozen=True)
class LogEvidence:
    """What a leg's logs say of its layout, by the patterns that the suite gives.

    Attributes:
        found: patterns that must match and do, with the line that did.
        missing: patterns that must match and do not.
        forbidden: patterns that must not match and do, with the line.
    """

    found: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    forbidden: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Leg:
    """A leg under the name that a report calls it by.

    Attributes:
        name: the leg.
        curves: what it logged.
        layout: the layout that was asked for; None for a log that nobody said anything about.
        records: what its ranks recorded beyond curves, if anything.
        evidence: what its logs say of its layout, if the suite gives patterns.
    """

    name: str
    curves: LegCurves
    layout: Layout | None = None
    records: LegRecords | None = None
    evidence: LogEvidence | None = None

    def curve(self, metric: str) -> Curve | None:
        """The leg's curve of a metric, or None if it has none."""
        return self.curves.curves.get(metric)


@dataclass(frozen=True, eq=False)
class Gap:
    """Two legs' values of one metric at the steps that both have. All arrays have shape (n,).

    Attributes:
        metric: the metric.
        steps: int64.
        baseline, other: float64, the two legs' values.
        resolution: float64, the coarser of the two legs' printed spacing at each step.
        spacing: float64, the spacing of bfloat16 at each step if either leg logs nothing finer, else 0.
    """

    metric: str
    steps: NDArray[np.int64]
    baseline: NDArray[np.float64]
    other: NDArray[np.float64]
    resolution: NDArray[np.float64]
    spacing: NDArray[np.float64]

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """Where both values are finite: bool."""
        return np.isfinite(self.baseline) & np.isfinite(self.other)

    @cached_property
    def absolute(self) -> NDArray[np.float64]:
        """Size of the difference; NaN where either value is not finite."""
        return np.where(self.finite, np.abs(self.other - self.baseline), np.nan)

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """What gaps are relative to: the size of the baseline, at least a thousandth of its median.

        A loss that crosses zero is not known more precisely there: rounding comes from what was added up.
        """
        size = np.where(np.isfinite(self.baseline), np.abs(self.baseline), 0.0)
        return np.maximum(size, max(_LEAST_OF_MEDIAN * float(np.median(size)), float(np.finfo(np.float64).tiny)))

    @cached_property
    def signed(self) -> NDArray[np.float64]:
        """Relative difference with its sign; NaN where either value is not finite."""
        return np.where(self.finite, (self.other - self.baseline) / self.scale, np.nan)

    @cached_property
    def relative(self) -> NDArray[np.float64]:
        """Size of the relative difference; NaN where either value is not finite."""
        return np.abs(self.signed)

    def first(self) -> "Gap":
        """The same at the first common step alone."""
        return self._until(1)

    def until(self, step: float) -> "Gap | None":
        """The same up to a step; None if nothing is left."""
        count = int(np.searchsorted(self.steps, step, side="right"))
        return self if count == self.steps.size else self._until(count) if count else None

    def _until(self, count: int) -> "Gap":
        return Gap(
            self.metric,
            self.steps[:count],
            self.baseline[:count],
            self.other[:count],
            self.resolution[:count],
            self.spacing[:count],
        )


def gap_between(metric: str, baseline: Leg, other: Leg) -> Gap | None:
    """The gap at common steps, or None if either leg lacks the metric or they share no step."""
    left, right = baseline.curve(metric), other.curve(metric)
    if left is None or right is None:
        return None
    if np.array_equal(left.steps, right.steps):
        steps, a, b = left.steps, left.values, right.values
    else:
        steps, i, j = np.intersect1d(left.steps, right.steps, assume_unique=True, return_indices=True)
        a, b = left.values[i], right.values[j]
    if not steps.size:
        return None
    resolution = np.maximum(left.resolution.at(a), right.resolution.at(b))
    return Gap(metric, steps, a, b, resolution, np.maximum(_bfloat16_spacing(a), _bfloat16_spacing(b)))


def named_steps(curves: Iterable[Curve]) -> NDArray[np.int64]:
    """Every step that any of the curves names, with a value or without: int64, sorted."""
    named: list[NDArray[np.int64]] = []
    for curve in curves:
        # Curves mostly share their steps, and a union of 100,000 is not cheap.
        if not named or not np.array_equal(curve.steps, named[0]):
            named.append(curve.steps)
        if curve.missing:
            named.append(np.asarray(curve.missing, dtype=np.int64))
    if len(named) < 2:
        return named[0] if named else np.array([], dtype=np.int64)
    return np.unique(np.concatenate(named))


def _bfloat16_spacing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spacing of bfloat16 (8 significant bits) at each value, if every finite value is one; else 0."""
    finite = values[np.isfinite(values) & (values != 0)]
    mantissa, _ = np.frexp(finite)
    if not finite.size or not np.array_equal(mantissa * 256, np.round(mantissa * 256)):
        return np.zeros(values.shape)
    _, exponent = np.frexp(np.where(np.isfinite(values) & (values != 0), values, 1.0))
    spacing: NDArray[np.float64] = np.ldexp(1.0, exponent - 8)
    return spacing


@dataclass(frozen=True, eq=False)
class Comparison:
    """One question: does the candidate compute what the baseline computes?

    Attributes:
        baseline, candidate: the legs compared.
        profile: what is allowed.
        controls: layouts trusted to be right, whose gap to the baseline is noise.
        repeats: the baseline again.
        perturbed: the baseline with every weight moved by one ulp.
        reference: the baseline in float64, or None.
        expected_steps: int64 (n,), the steps that every leg must have; None if nobody said.
        required: checks that must run whatever the legs hold, beside those whose input exists.
        k: how many times the noise floor is allowed.
        against_reference: the baseline is the reference, and its noise is what the baseline proper is off.
        layout_unproven: the suite says in so many words that nothing will show the layouts.
    """

    baseline: Leg
    candidate: Leg
    profile: Profile
    controls: tuple[Leg, ...] = ()
    repeats: tuple[Leg, ...] = ()
    perturbed: tuple[Leg, ...] = ()
    reference: Leg | None = None
    expected_steps: NDArray[np.int64] | None = None
    required: frozenset[str] = field(default_factory=frozenset)
    k: float = DEFAULT_K
    layout_unproven: bool = False
    against_reference: bool = False

    def legs(self) -> Iterator[Leg]:
        """Baseline, candidate, and the legs that measure noise."""
        yield self.baseline
        yield self.candidate
        yield from self.floor_legs()

    def floor_legs(self) -> Iterator[Leg]:
        """The legs whose gap to the baseline is noise, if they are what they are said to be."""
        yield from self.controls
        yield from self.repeats
        yield from self.perturbed

    def metrics(self) -> tuple[str, ...]:
        """The judged metrics that the baseline or the candidate has."""
        return tuple(m for m in JUDGED if self.baseline.curve(m) or self.candidate.curve(m))

    def gap(self, metric: str) -> Gap | None:
        """Candidate against baseline; None where they have no step in common, or count steps differently."""
        return None if self.shift else self.gap_of(metric, self.candidate)

    def gap_of(self, metric: str, leg: Leg) -> Gap | None:
        """A leg against the baseline; None where they have no step in common."""
        return self.once(("gap", metric, leg), lambda: gap_between(metric, self.baseline, leg))

    def once(self, key: tuple[object, ...], compute: Callable[[], _T]) -> _T:
        """What `compute` returned the first time that this comparison was asked for `key`: checks share what they
        measure."""
        if key not in self._known:
            self._known[key] = compute()
        return cast("_T", self._known[key])

    @cached_property
    def _known(self) -> dict[tuple[object, ...], object]:
        return {}

    def bound(self, metric: str) -> Bound:
        """The bound of a judged metric."""
        return self.profile.bounds[metric]

    @cached_property
    def shift(self) -> int:
        """By how much the candidate counts its steps from another number than the baseline; 0 if it does not.

        Two logs of equal length, one from 0 and one from 1, hold the same steps under other numbers. Comparing equal
        numbers would compare each step with the next, so the two are not compared at all until someone says which is
        which. Of other lengths one may lack its first step instead, and nobody knows unless their formats say how
        they count.
        """
        a, b = self.baseline.curve("loss"), self.candidate.curve("loss")
        if a is None or b is None:
            return 0
        bases = self.baseline.curves.base, self.candidate.curves.base
        if bases[0] is not None and bases[1] is not None:
            return bases[1] - bases[0]
        offset = int(b.steps[0] - a.steps[0])
        if {int(a.steps[0]), int(b.steps[0])} == {0, 1}:
            return offset
        return offset if a.steps.size == b.steps.size and np.array_equal(a.steps + offset, b.steps) else 0

    @cached_property
    def base(self) -> int | None:
        """The number of the first step, where a leg's format or the user says so."""
        return self.baseline.curves.base if self.baseline.curves.base is not None else self.candidate.curves.base

    @cached_property
    def first_step(self) -> int:
        """The step before which no weight was updated, as far as the legs tell."""
        if self.expected_steps is not None and self.expected_steps.size:
            return int(self.expected_steps[0])
        firsts = [int(curve.steps[0]) for leg in self.legs() for m in JUDGED if (curve := leg.curve(m)) is not None]
        return min(firsts, default=0)

    @property
    def begins(self) -> bool:
        """Whether `first_step` is the first of the run: by the base, else where the legs begin at 0 or 1."""
        return self.first_step <= (1 if self.base is None else self.base)

    def updates(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Optimizer steps done before each step: 0 at the first, if the log has it. Shape and dtype of `steps`."""
        if self.base is not None:
            return steps - self.base
        return steps - self.first_step if self.begins else steps
