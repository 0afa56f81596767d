"""torchtitan's training lines: `[titan] … step:  1  loss:  8.04910  grad_norm:  1.3412  memory: …  tps: 12,345  …`.

Every rank prints them, unless the launcher drops all but one; those without the loss print -1.
"""

import re

from parity.curves.printed import EVALUATION, Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(r"(?P<val>\bvalidate )?(?<![\w.])step: *(?P<step>\d{1,16})(?=\s)")
# What follows a number shows that it is whole: the loss and the norm are never the last.
_FIELD = re.compile(r"(?<!\S)(?P<name>[a-z_]{1,64}): *(?P<value>\S{1,64})(?=\s+\S)")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    if begin["val"]:
        return EVALUATION
    found = named(_FIELD.finditer(text, begin.end()))
    return {**found, "step": begin["step"]} if "loss" in found else None


FORMAT = Printed(
    name="torchtitan",
    needles=("step:",),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("step",), "loss": ("loss",), "grad_norm": ("grad_norm",), "lr": ("lr",)},
    sentinels={"loss": -1.0},
    first_step=1,
)
