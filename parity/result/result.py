"""The one thing that every report is rendered from: `result.json`, versioned."""

import time
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError

from parity import __version__
from parity.errors import UsageError
from parity.plain import plain
from parity.result.drawn import CurveResult, DeviationResult, GradientMap, LogTail, RankResult, ShardedResult
from parity.result.values import WRITTEN, Number
from parity.untrusted import MissingError, read_bytes

__all__ = [
    "FORMAT",
    "Chart",
    "ComparisonResult",
    "GapResult",
    "LeastResult",
    "LegResult",
    "MetricResult",
    "Model",
    "Number",
    "OutcomeResult",
    "ParameterResult",
    "Result",
    "Reused",
    "Row",
    "SensitivityResult",
    "VerdictName",
    "now",
    "read_result",
]

FORMAT: Final = "parity.result/1"

# A result is written by this program and read from an untrusted run; far larger than any real one.
_MOST_BYTES = 64 << 20


Status = Literal["pass", "fail", "not run"]
LegStatus = Literal[
    "finished",
    "failed",
    "timed out",
    "interrupted",
    "stopped",  # by us, for its verdict was known
    "not started",
    "no curve",  # it ended well and left nothing to judge
    "not run",  # never, or under another suite than today's
    "read",  # a log that existed already
]
LegCause = Literal[
    "crashed",
    "out of memory",
    "device busy",  # another process had it, or its memory
    "timed out",
    "hung in a collective",
    "hung at teardown",  # after its last step; its curve counts
    "cancelled",
]
VerdictName = Literal["pass", "fail", "inconclusive", "error"]


def now() -> str:
    """UTC, ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Model(BaseModel):
    """What is written to a file and read back: nothing else is in it, and it does not change."""

    model_config = WRITTEN


class Row(Model):
    """One step of one metric. Values as logged; gaps against the baseline."""

    step: int
    baseline: Number | None = None
    candidate: Number | None = None
    noise: Number | None = Field(default=None, description="Of the leg beside them, which measures noise.")
    absolute: Number | None = Field(default=None, description="Size of candidate minus baseline.")
    relative: Number | None = Field(default=None, description="The same, over the size of the baseline.")
    allowed: Number | None = Field(default=None, description="Absolute gap allowed.")
    times_allowed: Number | None = None
    noise_absolute: Number | None = Field(default=None, description="Gap of the leg beside them.")
    noise_relative: Number | None = None
    times_floor: Number | None = Field(default=None, description="Absolute gap in units of the noise floor.")


class Chart(Model):
    """The whole run in at most some dozens of buckets: the largest relative value in each."""

    first_steps: list[int] = Field(description="First step of each bucket.")
    gap: list[Number | None]
    allowed: list[Number | None]
    noise: list[Number | None] | None = Field(default=None, description="The largest of the legs that measure noise.")


class MetricResult(Model):
    """Where one metric was furthest off."""

    metric: str
    steps: int = Field(description="Steps that both legs have.")
    worst_step: int | None
    peak_step: int | None = Field(description="Step of the largest relative gap, whatever was allowed there.")
    first_divergent_step: int | None = Field(description="First step beyond what was allowed.")
    horizon: int | None = Field(
        default=None, description="Last step judged; later, noise hides a fault. None if every step was."
    )
    window: list[Row] = Field(description="The worst step and three on each side.")
    peak_window: list[Row] = Field(default=[], description="The same around the peak, where it is elsewhere.")
    sample: list[Row] = Field(description="Some steps of the whole run, always with the worst.")
    chart: Chart
    deviation: DeviationResult | None = None


class GapResult(Model):
    """The numbers of one metric in one check, relative to the baseline."""

    metric: str
    first: Number | None = None
    mean: Number | None = None
    worst: Number | None = None
    worst_step: int | None = None
    allowed: Number | None = None
    times_allowed: Number | None = None
    times_floor: Number | None = None
    peak: Number | None = None
    peak_step: int | None = None
    steps_over: int = 0
    first_over: int | None = None


class ParameterResult(Model):
    """One parameter's gradient or update in two legs."""

    name: str
    group: str
    step: int
    distance: Number = Field(description="L2 norm of the difference over that of the baseline.")
    ratio: Number = Field(description="Norm in the candidate over that in the baseline.")
    cosine: Number
    share: Number = Field(description="Part of the whole model's squared error.")
    allowed: Number
    times_floor: Number | None = None


class OutcomeResult(Model):
    """One check's answer."""

    check: str
    kind: Literal["comparability", "parity"]
    status: Status
    required: bool
    reason: str
    gaps: list[GapResult] = []
    warnings: list[str] = []
    parameters: list[ParameterResult] = Field(default=[], description="The parameters furthest out, worst first.")
    shares: dict[str, Number] = Field(default={}, description="By group, its part of the squared error.")


class LeastResult(Model):
    """The smallest change that a comparison would have caught, whichever way it went."""

    size: Number | None = Field(description="0 if it is beyond what is allowed as it is; none if no size is caught.")
    check: str = ""
    step: int | None = None
    reason: str = ""


class SensitivityResult(Model):
    """What a comparison would have caught, by its curves and sketches."""

    line: str
    gradient_factor: LeastResult = Field(description="e: all gradients times 1 + e or 1 - e.")
    group_factors: dict[str, LeastResult] = Field(default={}, description="The same for one group of parameters.")
    loss_offset: LeastResult = Field(description="Absolute.")


class ComparisonResult(Model):
    """One comparison: who, under which rules, and what came out."""

    baseline: str
    candidate: str
    controls: list[str] = []
    repeats: list[str] = []
    perturbed: list[str] = []
    reference: str | None = None
    beside: str | None = Field(default=None, description="The leg whose values stand beside the two in tables.")
    profile: str
    profile_reason: str = ""
    k: float
    verdict: VerdictName
    summary: str
    deciding: list[str] = Field(default=[], description="The checks that make the verdict, the most telling first.")
    hints: list[str] = Field(default=[], description="What the difference looks like.")
    sensitivity: SensitivityResult | None = None
    warnings: list[str] = Field(
        default=[], description="Bounds that say little, being far wider or finer than sense."
    )
    outcomes: list[OutcomeResult] = []
    metrics: list[MetricResult] = []
    gradients: GradientMap | None = None


class Reused(Model):
    """Where a leg is from that did not run."""

    # What a stranger's leg.json says is spelled out in a report.
    age: float = Field(ge=0, le=1e10, allow_inf_nan=False, description="Seconds since it was kept.")
    key: str = Field(pattern="^[0-9a-f]{64}$", description="Of all that its numbers depend on.")


class LegResult(Model):
    """One leg: what ran, and how it ended. For `parity compare` on files, only where it was read from."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    run_id: str | None = None
    digest: str | None = Field(default=None, description="Of what the leg's numbers depend on, as it was run.")
    status: LegStatus
    reused: Reused | None = Field(default=None, description="Set if it came from the cache, and did not run.")
    layout: dict[Annotated[str, Field(pattern="^(dp|fsdp|tp|pp|ep|cp)$")], int] = {}
    ranks: int | None = None
    command: str | None = None
    cause: LegCause | None = Field(default=None, description="Why it did not finish, where its processes tell.")
    exit_code: int | None = None
    failing_rank: int | None = None
    error: str | None = None
    seconds: float | None = Field(default=None, description="Wall-clock seconds.")
    device_seconds: float | None = Field(default=None, description="Wall-clock seconds times ranks.")
    saved_device_seconds: float | None = Field(
        default=None,
        description="Of a leg that was stopped: what was left of it, if it took as long as its baseline.",
    )
    peak_memory: int | None = Field(
        default=None,
        description="Bytes, the most that any rank said it held at once: allocated by torch on its accelerator, or of"
        " the host's memory where it has none.",
    )
    samples: int | None = Field(default=None, description="Rows that rank 0 trained on at its first step.")
    micro_batches: int | None = Field(default=None, description="In how many pieces.")
    leftovers: int = Field(default=0, description="Processes that had to be ended after the leg's own end.")
    last_steps: dict[int, int] = Field(default={}, description="Last recorded step of each rank.")
    environment: dict[str, Any] = {}
    source: str | None = None
    format: str | None = None
    notes: list[str] = []
    logs: list[str] = Field(default=[], description="Paths in the run directory.")
    tails: list[LogTail] = Field(default=[], description="Ends of the logs that tell most, of a leg that failed.")
    holds: list[RankResult] = []
    sharded: list[ShardedResult] = []


class Result(Model):
    """A suite's whole result."""

    format: Literal["parity.result/1"] = FORMAT
    parity_version: str = __version__
    created: str = Field(default_factory=now, description="UTC, ISO 8601.")
    suite: str
    run_id: str | None = None
    steps: int | None = None
    verdict: VerdictName
    summary: str
    reproduce: str
    tested: str | None = Field(default=None, description="Which commit ran, against the newest, in a sentence.")
    notes: list[str] = []
    legs: list[LegResult] = []
    comparisons: list[ComparisonResult] = []
    curves: list[CurveResult] = []

    def dumps(self) -> str:
        """The text of `result.json`."""
        return self.model_dump_json(indent=1) + "\n"


def read_result(path: Path) -> Result:
    """Read a `result.json`.

    Raises:
        UsageError: it is missing, too large, or no result of this version.
    """
    try:
        data = read_bytes(path, within=path.parent, limit=_MOST_BYTES)
    except MissingError:
        raise UsageError(f"{path}: no such file; `parity compare` makes it from a run directory") from None
    try:
        return Result.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = plain(".".join(map(str, first["loc"])))
        what = f"{where}: {plain(first['msg'])}" if where else plain(first["msg"])
        raise UsageError(f"{path}: not a result of format {FORMAT}: {what}") from None
