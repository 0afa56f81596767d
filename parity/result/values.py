"""What the models of `result.json` are made of."""

import math
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema

__all__ = ["WRITTEN", "Number"]


def _to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# JSON has no NaN, and a NaN is what a reader of a report most needs to see.
Number = Annotated[
    float,
    BeforeValidator(lambda value: float(value) if value in ("NaN", "Infinity", "-Infinity") else value),
    PlainSerializer(_to_json, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}),
]

WRITTEN = ConfigDict(extra="forbid", frozen=True)
"""What is written to a file and read back: nothing else is in it, and it does not change."""
