"""What a check answers: its status, its reason and its numbers."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Kind", "MetricGap", "Outcome", "ParameterGap", "Status", "Verdict"]


class Status(StrEnum):
    """How a check ended."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    NOT_RUN = "not run"


class Kind(StrEnum):
    """What a failed check says.

    A failed comparability check means that the runs cannot be compared; a failed parity check means that
    they compute different things.
    """

    COMPARABILITY = "comparability"
    PARITY = "parity"


class Verdict(StrEnum):
    """The answer for a comparison or a suite, with the exit code of the command line."""

    PASS = "pass"  # noqa: S105
    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"
    ERROR = "error"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 inconclusive, 4 error; 2 is kept for usage errors."""
        return {"pass": 0, "fail": 1, "inconclusive": 3, "error": 4}[self.value]

    @property
    def severity(self) -> int:
        """Precedence when verdicts are merged: error, fail, inconclusive, pass."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class MetricGap:
    """The numbers of one metric in one check. Gaps are relative to the baseline at the same step.

    Attributes:
        metric: `loss`, `grad_norm`, …
        first: gap at the first common step.
        mean: mean of the gap's size over the steps judged (the signed mean for the check `drift`).
        worst: gap at the worst step.
        worst_step: the step of the largest gap in units of what was allowed there.
        allowed: what was allowed at the worst step, relative to the baseline there.
        times_allowed: the gap at the worst step in units of what was allowed.
        times_floor: the gap at the worst step in units of the measured noise floor; None if not measured.
        peak: the largest gap, whatever was allowed there.
        peak_step: its step.
        steps_over: how many steps are beyond what was allowed.
        first_over: the first step beyond what was allowed, or None.
    """

    metric: str
    first: float | None = None
    mean: float | None = None
    worst: float | None = None
    worst_step: int | None = None
    allowed: float | None = None
    times_allowed: float | None = None
    times_floor: float | None = None
    peak: float | None = None
    peak_step: int | None = None
    steps_over: int = 0
    first_over: int | None = None


@dataclass(frozen=True)
class ParameterGap:
    """One parameter's gradient or update in two legs, estimated from its sketches.

    Attributes:
        name, group: the parameter, and the kind of parameter it is.
        step: the step.
        distance: L2 norm of the difference, over that of the baseline or, where this is next to nothing, over 1e-4 of
            the whole model's.
        ratio: exact norm in the candidate over that in the baseline.
        cosine: of the angle between the two.
        share: part of the whole model's squared error.
        allowed: distance that was allowed.
        times_floor: distance in units of the measured noise floor; None if not measured.
    """

    name: str
    group: str
    step: int
    distance: float
    ratio: float
    cosine: float
    share: float
    allowed: float
    times_floor: float | None = None

    @property
    def times_allowed(self) -> float:
        """Distance in units of what was allowed."""
        return self.distance / self.allowed if self.allowed else (float("inf") if self.distance else 0.0)


@dataclass(frozen=True)
class Outcome:
    """One check's answer.

    Attributes:
        check: the check's name, as in `parity.yml` and in the report.
        kind: what a failure would mean.
        status: pass, fail or not run.
        reason: one sentence with the numbers a person needs next.
        required: whether the verdict may be `pass` without it.
        gaps: the numbers, by metric.
        warnings: what weakens the answer without changing it.
        parameters: the parameters furthest out, worst first.
        shares: by group of parameters, its part of the whole model's squared error.
    """

    check: str
    kind: Kind
    status: Status
    reason: str
    required: bool = True
    gaps: tuple[MetricGap, ...] = ()
    warnings: tuple[str, ...] = ()
    parameters: tuple[ParameterGap, ...] = ()
    shares: tuple[tuple[str, float], ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What this outcome alone makes of the comparison. A required check that did not run is never green."""
        if self.status is Status.FAIL:
            return Verdict.FAIL if self.kind is Kind.PARITY else Verdict.INCONCLUSIVE
        if self.status is Status.NOT_RUN and self.required:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS
