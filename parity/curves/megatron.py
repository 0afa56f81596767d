"""Megatron-LM's training lines: ` iteration  1/ 100 | ... | lm loss: 6.612992E+00 | ... | grad norm: 111.173 |`."""

import re

from parity.curves.printed import Printed
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(r"\biteration +(?P<step>\d+)/ *\d+ \|")
_FIELD = re.compile(r"\| *(?P<name>[^|:]{1,64}): *(?P<value>[^|\s]{1,64}) *(?=\|)")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    found: Record = {field["name"]: field["value"] for field in _FIELD.finditer(text, begin.end() - 1)}
    found["iteration"] = begin["step"]
    if "lm loss" not in found and _above_zero(found.get("number of nan iterations")):
        # A loss is printed only where it is not below 0, which NaN fails: it vanishes when it matters most.
        found["lm loss"] = "nan"
    return found


def _above_zero(value: object) -> bool:
    return isinstance(value, str) and value.isdecimal() and int(value) > 0


FORMAT = Printed(
    name="megatron",
    needles=("iteration ",),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("iteration",), "loss": ("lm loss",), "grad_norm": ("grad norm",), "lr": ("learning rate",)},
)
