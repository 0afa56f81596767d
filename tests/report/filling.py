"""A result with something in every field, for tests of what reports do with it."""

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from parity.result import OutcomeResult, ParameterResult, Result

__all__ = ["replaced", "with_parameters"]

ModelT = TypeVar("ModelT", bound=BaseModel)


def with_parameters(result: Result) -> Result:
    """The result with a failed check of gradients in its first comparison, and dicts that are not empty."""
    worst = ParameterResult(
        name="layers.0.experts.w1", group="experts", step=0, distance=0.3, ratio=0.5, cosine=0.954, share=0.98,
        allowed=1e-5, times_floor=12345.0,
    )  # fmt: skip
    other = ParameterResult(
        name="layers.0.router.weight", group="router", step=1, distance=1e-6, ratio=float("inf"), cosine=float("nan"),
        share=0.02, allowed=1e-5,
    )  # fmt: skip
    outcome = OutcomeResult(
        check="gradients", kind="parity", status="fail", required=True, reason="1 of 2 parameters",
        warnings=["a warning"], parameters=[worst, other], shares={"experts": 0.976, "router": 0.021, "norms": 0.003},
    )  # fmt: skip
    first, *more = result.comparisons
    first = first.model_copy(update={"outcomes": [*first.outcomes, outcome]})
    legs = [one.model_copy(update={"layout": {"tp": 3}, "environment": {"torch": "2"}}) for one in result.legs]
    return result.model_copy(update={"comparisons": [first, *more], "legs": legs})


def replaced(model: ModelT, values: Mapping[type, Any]) -> ModelT:
    """The model with each text, number, ... in it replaced by the value given for its type, whatever field holds it.

    What may be None or empty is filled as well. Fields that can hold a few texts only (`Literal`) stay as they are.
    """
    update = {
        name: _replaced(field.annotation, getattr(model, name), values)
        for name, field in type(model).model_fields.items()
    }
    return model.model_copy(update=update)


def _replaced(annotation: Any, value: Any, values: Mapping[type, Any]) -> Any:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return value
    if origin is Annotated:
        return _replaced(args[0], value, values)
    if origin in (Union, UnionType):
        return _replaced(args[0] if args[1] is type(None) else args[1], value, values)
    if origin is list:
        filled = value or ([None] if args[0] in values else [])
        return [_replaced(args[0], one, values) for one in filled]
    if origin is dict:
        return {_replaced(args[0], key, values): _replaced(args[1], one, values) for key, one in value.items()}
    if annotation is Any:
        annotation = type(value)
    if isinstance(value, BaseModel):
        return replaced(value, values)
    return values.get(annotation, value)
