"""The values of a suite's keys: lengths of time, names, paths, patterns and environments."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from parity.curves.formats import formats

__all__ = ["Environment", "FormatName", "Line", "Name", "Pattern", "Relative", "Seconds"]

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


def _known_format(value: str) -> str:
    if value not in formats():
        raise ValueError(f"must be one of {', '.join(formats())}")
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
Relative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Line = Annotated[str, AfterValidator(_without_nul)]
Environment = dict[
    Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")],
    Annotated[Line, BeforeValidator(_variable, json_schema_input_type=str | int | float | bool)],
]
FormatName = Annotated[str, AfterValidator(_known_format)]
Pattern = Annotated[str, AfterValidator(_pattern)]
