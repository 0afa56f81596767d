"""`parity.yml`: the legs, what is compared with what, and what is allowed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    create_model,
    model_serializer,
)

from parity.checks.defaults import DEFAULT_K
from parity.document import Document, explain
from parity.errors import UsageError
from parity.layout import Layout
from parity.suite.launcher import Launcher, LauncherSetting
from parity.suite.values import (
    Environment,
    FloorSetting,
    Line,
    Model,
    Module,
    Name,
    Names,
    Pattern,
    Relative,
    Seconds,
    Source,
    SourceSetting,
)
from parity.train.options import TrainOptions

__all__ = [
    "Compare",
    "Evidence",
    "Leg",
    "Source",
    "Suite",
    "digest",
    "load",
    "run_of",
    "train_options",
]


Size = Annotated[int, Field(ge=1, le=1 << 20)]


class LayoutSizes(Model):
    """Parallel sizes; expert parallelism (`ep`) reuses the ranks of dp, fsdp and cp."""

    dp: Size = 1
    fsdp: Size = 1
    tp: Size = 1
    pp: Size = 1
    ep: Size = 1
    cp: Size = 1


class _TrainerBase(Model):
    """The embedded trainer, or any command. Written back with only the options that were given: a leg's own options
    override the suite's, and a default is no option of a leg.
    """

    @model_serializer(mode="wrap")
    def _given(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}

    embedded: Literal["qwen3", "deepseek_v4"] | None = Field(
        default=None, description="Model of the embedded trainer."
    )
    command: Line | list[Line] | None = Field(
        default=None, description="Shell line, or list of arguments, that runs one leg; may hold placeholders."
    )


def _option_fields() -> dict[str, Any]:
    """The embedded trainer's options, as fields that a suite or a leg may set."""
    options = {option.name: option for option in fields(TrainOptions)}
    model: Any = options.pop("model").type
    embedded = (model | None, Field(default=None, description="Model of the embedded trainer."))
    return {"embedded": embedded} | {
        name: (option.type, Field(default=option.default, description=option.metadata.get("help")))
        for name, option in options.items()
    }


Trainer: Any = create_model("Trainer", __base__=_TrainerBase, **_option_fields())


class Bounds(Model):
    """What is allowed for one metric; what is not given comes from the profile."""

    first_rtol: Relative | None = Field(default=None, description="Relative, at the first step.")
    rtol: Relative | None = Field(default=None, description="Relative, at later steps.")
    mean_rtol: Relative | None = Field(default=None, description="Relative, for the signed mean of the gap.")
    atol: Relative | None = Field(default=None, description="Absolute, added at every step.")
    resolve: Relative | None = Field(
        default=None, description="Relative; judged as long as noise leaves a gap of this size visible."
    )
    until: int | None = Field(default=None, ge=1, description="Last step that is judged; later ones are shown.")


class BoundsByMetric(Model):
    """Bounds for the metrics that are judged."""

    loss: Bounds | None = None
    grad_norm: Bounds | None = None


ProfileName = Literal["auto", "fp32-cpu", "fp32-gpu", "bf16"]
Require = list[
    Literal[
        "initial_state",
        "same_data",
        "layout",
        "forward",
        "grad_norm",
        "norm_consistent",
        "gradients",
        "update",
        "replicas",
        "drift",
        "control",
    ]
]
Proof = Literal["proven", "unproven"]


class Evidence(Model):
    """What a leg's logs must and must not say, for frameworks that only log which layout they applied."""

    must_match: list[Pattern] = Field(default=[], description="Regular expressions; each must match some line.")
    must_not_match: list[Pattern] = Field(default=[], description="Regular expressions that no line may match.")


class Leg(Model):
    """One training run of the model under one layout."""

    layout: LayoutSizes = Field(default=LayoutSizes(), description="Parallel sizes; what is not given is 1.")
    command: Line | list[Line] | None = Field(default=None, description="Instead of the suite's trainer.")
    trainer: Trainer | None = Field(default=None, description="Options that differ from the suite's trainer.")
    nproc: int | None = Field(default=None, ge=1, description="Ranks, if other than the product of the layout.")
    env: Environment = Field(default={}, description="Environment, added to the suite's.")
    cwd: Line | None = Field(default=None, description="Working folder, relative to the suite file.")
    timeout: Seconds | None = Field(default=None, description="Wall-clock limit.")
    launcher: LauncherSetting = Field(default=None, description="What starts its ranks, if other than the suite's.")
    source: SourceSetting = Field(
        default=None, description="Where the metrics are; the recorder's file if not given."
    )
    evidence: Evidence | None = Field(default=None, description="What the logs must and must not say of the layout.")

    def sizes(self) -> Layout:
        """The layout, with 1 for every axis that is not given."""
        return Layout(**self.layout.model_dump())

    @property
    def ranks(self) -> int:
        """How many ranks the leg takes."""
        return self.nproc or self.sizes().world_size


class Compare(Model):
    """One comparison."""

    baseline: Name
    candidate: Name
    control: Names = Field(default=(), description="Layouts trusted to be right; their gap is noise.")
    repeat: Names = Field(default=(), description="The baseline again.")
    perturbed: Names = Field(
        default=(), description="The baseline with weights moved, by PARITY_PERTURB in the leg's environment."
    )
    reference: Name | None = Field(default=None, description="The baseline in float64.")
    floor: FloorSetting = Field(
        default=None, description="Legs to make of the baseline's; instead of the suite's. An empty list makes none."
    )
    profile: ProfileName | None = None
    bounds: BoundsByMetric | None = None
    require: Require | None = Field(default=None, description="Checks without which there is no pass.")
    k: float | None = Field(default=None, ge=1, le=1e6, description="How many times the noise floor is allowed.")
    layout: Proof | None = Field(default=None, description="unproven: pass though nothing shows the layouts.")

    def legs(self) -> list[str]:
        """The names of all its legs, the baseline first."""
        named = (self.baseline, self.candidate, *self.control, *self.repeat, *self.perturbed, self.reference)
        return [name for name in named if name is not None]


class Suite(Model):
    """One `parity.yml`."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    steps: int = Field(ge=1, le=10_000_000, description="Optimizer steps of every leg.")
    seed: int = Field(default=1234, ge=0, lt=1 << 63)
    device: Literal["auto", "cpu", "cuda", "npu", "xpu"] = Field(
        default="auto",
        description="auto takes GPUs, or other accelerators, if the machine has enough for the largest leg.",
    )
    profile: ProfileName = Field(default="auto", description="auto goes by dtype and device.")
    bounds: BoundsByMetric = BoundsByMetric()
    require: Require = Field(default=[])
    k: float = Field(default=DEFAULT_K, ge=1, le=1e6, description="How many times the noise floor is allowed.")
    layout: Proof = Field(default="proven", description="unproven: pass though nothing shows the layouts.")
    floor: FloorSetting = Field(
        default=None,
        description="Legs to make of each comparison's baseline, to measure how far correct runs differ.",
    )
    stop: Literal["first-divergence"] | None = Field(
        default=None, description="Ends a candidate that is wrong at its first step there, for its verdict is known."
    )
    needs: list[Module] = Field(
        default=[], description="Python modules that the legs import; nothing is started where one is missing."
    )
    timeout: Seconds = Field(default=600.0, description="Wall-clock limit of each leg.")
    launcher: LauncherSetting = Field(
        default=None, description="What starts the legs' ranks: local, slurm or torchrun; this machine if not given."
    )
    env: Environment = Field(default={})
    cwd: Line | None = Field(default=None, description="Working folder of the legs, relative to the suite file.")
    trainer: Trainer | None = Field(default=None, description="What every leg runs.")
    source: SourceSetting = None
    legs: dict[Name, Leg] = Field(min_length=1)
    compare: list[Compare] = Field(min_length=1)

    def compared(self) -> list[str]:
        """The legs that some comparison needs, in the suite's order; others are not run."""
        named = {name for item in self.compare for name in item.legs()}
        return [name for name in self.legs if name in named]

    def launcher_of(self, leg: Leg) -> Launcher:
        """What starts the leg's ranks."""
        return leg.launcher or self.launcher or Launcher()

    def command_of(self, leg: Leg) -> str | list[str] | None:
        """The leg's command with its placeholders, or None if it runs the embedded trainer."""
        own = leg.trainer.command if leg.trainer else None
        if leg.command or own:
            return leg.command or own
        if leg.trainer is not None and leg.trainer.embedded:
            return None
        return self.trainer.command if self.trainer else None


def digest(suite: Suite, name: str, device: str) -> str:
    """What a leg's numbers depend on, and where they are, as a hash: a leg that was run under another one is another
    leg.
    """
    source = suite.legs[name].source or suite.source
    content = run_of(suite, name, device) | ({} if source is None else {"source": source.file})
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def run_of(suite: Suite, name: str, device: str) -> dict[str, Any]:
    """What a leg's numbers depend on."""
    leg = suite.legs[name]
    command = suite.command_of(leg)
    return {
        "layout": leg.sizes().sizes(),
        "ranks": leg.ranks,
        "runs": command if command is not None else asdict(train_options(suite, leg)),
        "steps": suite.steps,
        "seed": suite.seed,
        "device": device,
        "env": {**suite.env, **leg.env},
        "cwd": leg.cwd or suite.cwd,
        **({"nodes": nodes} if (nodes := suite.launcher_of(leg).nodes(leg.ranks)) > 1 else {}),
    }


def train_options(suite: Suite, leg: Leg) -> TrainOptions:
    """The embedded trainer's options for a leg: the suite's, overridden by the leg's."""
    merged: dict[str, Any] = {}
    for trainer in (suite.trainer, leg.trainer):
        if trainer is not None:
            merged |= trainer.model_dump(exclude={"command"})
    model = merged.pop("embedded", None)
    return TrainOptions(**({"model": model} if model else {}), **merged)


def load(path: Path, overrides: Mapping[str, object] | None = None) -> Suite:
    """Read and validate a suite, and make the legs that its floors ask for.

    Args:
        path: the file.
        overrides: top-level keys to set before validation, such as `steps` from the command line.

    Raises:
        UsageError: one line for every mistake, with the file, the line and the path of the key.
    """
    from parity.suite.floor import with_floor_legs
    from parity.suite.rules import broken_rules

    document = Document.read(path)
    content = document.content
    if not isinstance(content, dict):
        raise UsageError(f"{path}: a suite is a mapping with the keys name, steps, legs and compare")
    content = {**content, **(overrides or {})}
    problems: list[tuple[tuple[str | int, ...], str]] = []
    suite = None
    try:
        suite = Suite.model_validate(content)
    except ValidationError as error:
        problems += explain(error, Suite.model_json_schema())
    problems += broken_rules(content)
    if suite is not None:
        suite, more = with_floor_legs(suite)
        problems += more
    if problems or suite is None:
        raise UsageError(*document.lines(problems))
    return suite
