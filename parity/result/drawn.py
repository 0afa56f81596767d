"""The parts of `result.json` that reports draw: curves, gaps, gradients, what ranks hold, ends of logs."""

from pydantic import BaseModel, Field

from parity.result.values import WRITTEN, Number

__all__ = [
    "CurveResult",
    "DeviationResult",
    "ExpertsResult",
    "GradientMap",
    "LogTail",
    "PartResult",
    "RankResult",
    "ShardedResult",
]


class _Drawn(BaseModel):
    model_config = WRITTEN


class CurveResult(_Drawn):
    """One metric of one leg, to be drawn: of each stretch of steps the smallest and the largest value, the first and
    the last step, and steps that are not finite."""

    leg: str
    metric: str
    count: int = Field(description="Steps that the leg has, of which these are some.")
    steps: list[int]
    values: list[Number]


class DeviationResult(_Drawn):
    """One metric's gap over the whole run, to be drawn; relative to the baseline. Of each stretch of steps the
    largest and the smallest gap, the largest in units of what was allowed, and steps that are not finite."""

    count: int = Field(description="Steps that both legs have, of which these are some.")
    steps: list[int]
    gap: list[Number] = Field(description="Size of candidate minus baseline; NaN where either is not finite.")
    allowed: list[Number]
    times_allowed: list[Number]
    floor: list[Number] | None = Field(default=None, description="The noise floor.")
    noise: list[Number | None] | None = Field(
        default=None, description="The largest gap of the legs that measure noise; none at steps that they lack."
    )


class GradientMap(_Drawn):
    """How far the candidate's gradients are from the baseline's, parameter by sketched step, to be drawn. Parameters
    stand layer by layer, and within a layer by group."""

    count: int = Field(description="Parameters that both legs have; the furthest out are here.")
    sketched: int = Field(description="Steps that both legs sketched, of which these are some.")
    steps: list[int]
    names: list[str]
    groups: list[str]
    layers: list[int | None]
    distance: list[list[Number | None]] = Field(description="By parameter, then step: relative L2 distance.")
    times_floor: list[list[Number | None]] | None = Field(default=None, description="The same over the noise floor.")


class ExpertsResult(_Drawn):
    """Experts that a rank holds, the same in some modules."""

    modules: int = Field(description="How many.")
    first: str = Field(description="The first of these modules.")
    experts: list[int]


class RankResult(_Drawn):
    """What one rank holds, as it recorded."""

    rank: int
    coordinates: dict[str, int] = {}
    elements: int = Field(description="Of parameters.")
    layers: list[int] | None = None
    experts: list[ExpertsResult] = []


class PartResult(_Drawn):
    """What one rank holds of a parameter, along the dimension that is cut: `start` up to, without, `stop`."""

    rank: int
    start: int
    stop: int


class ShardedResult(_Drawn):
    """A parameter that ranks hold in parts; it stands for others of its group."""

    name: str
    group: str
    axis: str = Field(default="", description="What cut it, where that was recorded.")
    dimension: int
    size: int = Field(description="Of that dimension.")
    head_size: int | None = Field(default=None, description="Where the dimension is made of heads.")
    parts: list[PartResult]


class LogTail(_Drawn):
    """The last lines of a log."""

    path: str = Field(description="In the run directory.")
    lines: list[str]
