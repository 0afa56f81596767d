"""What hints look at: a comparison's failed checks, sizes, first gradients and updates, and who holds what."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from parity.checks.comparison import Comparison, Gap
from parity.checks.hints.sizes import Size, sizes_of
from parity.checks.outcome import Outcome, Status
from parity.checks.parameters import Apart, StepApart, apart, common_steps, recorded
from parity.checks.per_parameter import gaps_by_parameter
from parity.checks.profiles import ParameterBound
from parity.layout import AXES
from parity.records.record import Holders, LegRecords, RankRecord

__all__ = ["Facts", "Hint", "groups_in", "line", "median", "values_agree"]

# How many times what is allowed per parameter a ratio may be off: rounding is not spread evenly over parameters. In
# bf16, where much is allowed, never more than 2 in 100, for 0.98 is no size of a layout.
_TIMES, _MOST = 10.0, 2e-2

# Places that go with a place on another axis: expert parallelism reuses the ranks of dp, fsdp and cp.
_TOGETHER = {"ep": ("dp", "fsdp", "cp"), "dp": ("ep",), "fsdp": ("ep",), "cp": ("ep",)}


@dataclass(frozen=True)
class Hint:
    """One likely cause.

    Attributes:
        topic: what it explains, such as `gradients` or `loss`; of a topic the most telling hint is shown.
        text: one sentence with the numbers, without a full stop.
        names: the parameters that it explains; a later hint on the topic is shown if it explains others.
    """

    topic: str
    text: str
    names: frozenset[str] = frozenset()


class Facts:
    """What is known of two legs that differ; computed once for all hints.

    Args:
        comparison: the legs.
        outcomes: of all checks.
    """

    def __init__(self, comparison: Comparison, outcomes: Sequence[Outcome]) -> None:
        self.comparison = comparison
        self.outcomes = {outcome.check: outcome for outcome in outcomes}
        self.baseline = comparison.baseline
        self.candidate = comparison.candidate

    def failed(self, *checks: str) -> bool:
        """Whether any of the checks failed."""
        return any(one.check in checks and one.status is Status.FAIL for one in self.outcomes.values())

    def reason(self, check: str) -> str:
        """What a check said; empty if it was not run."""
        return self.outcomes[check].reason if check in self.outcomes else ""

    def passed(self, *checks: str) -> bool:
        """Whether all of the checks passed."""
        return all(check in self.outcomes and self.outcomes[check].status is Status.PASS for check in checks)

    @cached_property
    def same_start(self) -> bool:
        """Whether nothing shows other weights or samples; where neither was recorded nothing does."""
        return not self.failed("initial_state", "same_data")

    @cached_property
    def records(self) -> LegRecords | None:
        """The candidate's, if every rank of both legs described its model."""
        both = recorded(self.baseline) and recorded(self.candidate)
        return self.candidate.records if both else None

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """Sizes of the candidate's layout that a fault may multiply by."""
        return sizes_of(self.baseline, self.candidate)

    def size(self, axis: str) -> int:
        """The candidate's size on one axis, 1 where nothing tells."""
        return next((size.value for size in self.sizes if size.name == axis), 1)

    def gap(self, metric: str) -> Gap | None:
        """Candidate against baseline at the common steps at which both are finite; None if there is none."""
        gap = self.comparison.gap(metric)
        if gap is None or not gap.finite.any():
            return None
        at = gap.finite
        return Gap(metric, gap.steps[at], gap.baseline[at], gap.other[at], gap.resolution[at], gap.spacing[at])

    @cached_property
    def first_loss_agrees(self) -> bool:
        """Whether the loss before any update is the same."""
        return self.passed("forward")

    @cached_property
    def tolerance(self) -> float:
        """How far a ratio of gradients may be from a size, relative."""
        return min(_TIMES * self.comparison.profile.gradient.first, _MOST)

    @cached_property
    def gradient_step(self) -> int | None:
        """The first step at which both legs sketched gradients."""
        return next(iter(self._steps("gradients")), None)

    @cached_property
    def update_step(self) -> int | None:
        """The first step at which both legs sketched updates."""
        return next(iter(self._steps("updates")), None)

    @cached_property
    def gradients(self) -> StepApart | None:
        """All gradients at that step, where weights and data were not shown to be others."""
        return self._apart("gradients", self.gradient_step)

    @cached_property
    def updates(self) -> StepApart | None:
        """All updates at their first step."""
        return self._apart("updates", self.update_step)

    @cached_property
    def differing(self) -> dict[str, Apart]:
        """Parameters whose first gradients are beyond what is allowed; those that are nothing but rounding left
        out."""
        return self._beyond(self.gradients, "gradients", self.gradient_step, self.comparison.profile.gradient)

    @cached_property
    def agreeing(self) -> dict[str, Apart]:
        """The other parameters with gradients to speak of."""
        if self.gradients is None:
            return {}
        return {n: one for n, one in self.gradients.parameters.items() if n not in self.differing and telling(one)}

    @cached_property
    def moved_otherwise(self) -> dict[str, Apart]:
        """Parameters whose first updates are beyond what is allowed."""
        return self._beyond(self.updates, "updates", self.update_step, self.comparison.profile.update)

    @cached_property
    def stage_of(self) -> dict[str, int]:
        """The pipeline stage that alone holds a parameter; empty with one stage."""
        if self.records is None:
            return {}
        place = _stages(self.records.ranks)
        held = {name: {place[r.rank] for r, _ in holders} for name, holders in self.records.holders.items()}
        if len(set().union(*held.values(), set())) < 2:
            return {}
        return {name: next(iter(places)) for name, places in held.items() if len(places) == 1}

    def replicated(self, name: str) -> bool:
        """Whether several ranks of the candidate hold the same part of a parameter."""
        if self.records is None:
            return False
        return len(self.records.holders.get(name, ())) > len(self.records.distinct.get(name, ()))

    def is_split(self, name: str) -> bool:
        """Whether ranks of the candidate hold different parts of a parameter."""
        return self.records is not None and len(self.records.distinct.get(name, ())) > 1

    def _steps(self, kind: str) -> list[int]:
        return [] if self.records is None else common_steps(self.comparison, self.candidate, kind)

    def _apart(self, kind: str, step: int | None) -> StepApart | None:
        if step is None or not self.same_start:
            return None
        return apart(self.comparison, self.candidate, kind, step)

    def _beyond(self, at: StepApart | None, kind: str, step: int | None, bound: ParameterBound) -> dict[str, Apart]:
        if at is None or step is None:
            return {}
        gaps = gaps_by_parameter(self.comparison, at, kind, step, bound)
        over = {gap.name for gap in gaps if gap.times_allowed > 1}
        return {name: one for name, one in at.parameters.items() if name in over and telling(one)}


def telling(one: Apart) -> bool:
    """Whether a gradient is more than what rounding leaves where everything cancels, in either leg."""
    return bool(np.isfinite(one.distance)) and (one.norm >= one.scale or one.distance > 1e-2)


def median(values: Iterable[float]) -> float:
    """The median; NaN of nothing."""
    found = list(values)
    return float(np.median(found)) if found else float("nan")


def values_agree(values: NDArray[np.float64], wanted: float, tolerance: float) -> bool:
    """Whether all are within a relative tolerance of one number."""
    return bool(values.size) and bool((np.abs(values - wanted) <= tolerance * abs(wanted)).all())


def groups_in(found: Collection[Apart]) -> dict[str, list[Apart]]:
    """Parameters by group, the largest group first."""
    by_group: dict[str, list[Apart]] = defaultdict(list)
    for one in found:
        by_group[one.group].append(one)
    return dict(sorted(by_group.items(), key=lambda item: -len(item[1])))


def line(holders: Holders, axis: str) -> list[RankRecord]:
    """Of ranks that hold the same, those that differ from the first in their place on one axis alone; all of them for
    the axis `every`."""
    ranks = [rank for rank, _ in holders]
    if axis == "every" or not ranks:
        return ranks
    free = {axis, *_TOGETHER.get(axis, ())}
    rest = [a for a in AXES if a not in free]
    first = ranks[0].coordinates
    if not first or axis not in first:
        return []
    mine = [r for r in ranks if all(r.coordinates.get(a, 0) == first.get(a, 0) for a in rest)]
    return mine if len({r.coordinates.get(axis) for r in mine}) == len(mine) else []


def _stages(ranks: Sequence[RankRecord]) -> dict[int, int]:
    """Each rank's pipeline stage: by its place or, failing that, in the order of the layers it owns."""
    if all("pp" in rank.coordinates for rank in ranks):
        return {rank.rank: rank.coordinates["pp"] for rank in ranks}
    owned = sorted({rank.layers for rank in ranks if rank.layers})
    return {rank.rank: owned.index(rank.layers) if rank.layers else 0 for rank in ranks}
