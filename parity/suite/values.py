"""The values of a suite's keys: lengths of time, names, paths, patterns, sources and environments."""

import re
from collections import Counter
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Literal, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from parity.curves.formats import formats
from parity.curves.pattern import EXAMPLE, problem

__all__ = [
    "PERTURB",
    "Environment",
    "Floor",
    "FloorSetting",
    "FormatName",
    "Line",
    "Model",
    "Module",
    "Name",
    "Names",
    "Pattern",
    "Relative",
    "Seconds",
    "Source",
    "SourceSetting",
]

PERTURB = "PARITY_PERTURB"
"""The variable that has the recorder move a leg's weights, and says which way."""

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: object) -> object:
    """Read `90`, `90s`, `10m` or `1h`; anything else is left for the validation to refuse."""
    if isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", value)):
        return float(match[1]) * _UNITS[match[2] or "s"]
    return value


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not hold a NUL character")
    return value


def _variable(value: object) -> object:
    """An environment variable's value: text; YAML's true and 1.0 as people mean them."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value) if isinstance(value, int | float) else value


def _listed(value: object) -> object:
    if isinstance(value, list | tuple):
        return value
    if value is not None and not isinstance(value, str):
        raise PydanticCustomError("names", "must be a leg's name or a list of names")
    return () if value is None else (value,)


def _known_format(value: str) -> str:
    if value not in formats():
        raise ValueError(f"must be one of {', '.join(formats())}")
    return value


def _line_pattern(value: str) -> str:
    if why := problem(value):
        raise PydanticCustomError("pattern", "must {why}", {"why": why})
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from None
    return value


Seconds = Annotated[
    float,
    BeforeValidator(_seconds, json_schema_input_type=float | str),
    Field(gt=0, le=30 * 86400, description="A length of time: seconds, or a number with s, m or h."),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Module = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")]
Names = Annotated[tuple[Name, ...], BeforeValidator(_listed, json_schema_input_type=Name | list[Name] | None)]
Relative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Line = Annotated[str, AfterValidator(_without_nul)]
Environment = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")],
    Annotated[Line, BeforeValidator(_variable, json_schema_input_type=str | int | float | bool)],
]
LinePattern = Annotated[str, AfterValidator(_line_pattern)]
FormatName = Annotated[str, AfterValidator(_known_format)]
Pattern = Annotated[str, AfterValidator(_pattern)]


class Model(BaseModel):
    """A mapping of a suite: it has no other keys, and `true` is no 1, which YAML's readers take it for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and info.field_name is not None:
            kinds = set(_kinds(cls.model_fields[info.field_name].annotation))
            if kinds & {int, float} and bool not in kinds:
                raise PydanticCustomError("number", "Input should be a number")
        return value


def _kinds(annotation: object) -> Iterator[object]:
    """The types that a value may have, by an annotation."""
    if get_origin(annotation) in (Union, UnionType, Annotated):
        for one in get_args(annotation):
            yield from _kinds(one)
    else:
        yield annotation


class Floor(Model):
    """How many legs are made of a comparison's baseline, to measure how far correct runs differ."""

    repeat: int = Field(default=0, ge=0, le=16, description="The baseline again.")
    perturbed: int = Field(default=0, ge=0, le=16, description="The baseline with every weight moved by one ulp.")
    reference: int = Field(
        default=0, ge=0, le=1, description="The baseline in float64; of the embedded trainer only."
    )


def _counted(value: object) -> object:
    """`perturbed` and `[repeat, perturbed]` as counts; anything else is left for the validation to refuse."""
    roles = [value] if isinstance(value, str) else value
    if isinstance(roles, list) and all(isinstance(role, str) for role in roles):
        return dict(Counter(roles))
    return value


_FloorRole = Literal["repeat", "perturbed", "reference"]
FloorSetting = (
    Annotated[Floor, BeforeValidator(_counted, json_schema_input_type=Floor | _FloorRole | list[_FloorRole])] | None
)


def _path_of_source(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


class Source(Model):
    """Where a leg's metrics are."""

    file: Line = Field(description="Path, relative to the leg's working folder; may hold placeholders.")
    format: FormatName | None = Field(default=None, description="Reader to use; found by content if not given.")
    pattern: LinePattern | None = Field(
        default=None,
        description="For format: pattern, a regular expression of RE2 to search in every line; its groups name the "
        "step and the metrics.",
    )
    keys: dict[str, str] = Field(default={}, description="Metric (or `step`) to the key that holds it.")
    first_step: int | None = Field(
        default=None, description="Number that this log gives to the first step; the format's own, else 0."
    )

    @model_validator(mode="after")
    def _has_its_pattern(self) -> Self:
        if self.pattern is None and self.format == "pattern":
            raise PydanticCustomError("pattern", f"must have a pattern, as its format is pattern, such as {EXAMPLE}")
        if self.pattern is not None and self.format not in (None, "pattern"):
            raise PydanticCustomError("pattern", "must have no pattern, as its format is another")
        return self


SourceSetting = Annotated[Source, BeforeValidator(_path_of_source, json_schema_input_type=Source | str)] | None
