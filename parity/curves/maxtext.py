"""MaxText's training lines: `completed step: 1, seconds: 2.345, TFLOP/s/device: 3.4, …, loss: 12.979`."""

import re

from parity.curves.printed import Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(r"\bcompleted step: (?P<step>\d{1,16})(?=,)")
_FIELD = re.compile(r", (?P<name>[\w/ -]{1,64}): (?P<value>[^\s,]{1,64})(?=,|\s*$)")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    return None if begin is None else {**named(_FIELD.finditer(text, begin.end())), "step": begin["step"]}


FORMAT = Printed(
    name="maxtext",
    needles=("completed step: ",),
    begins=_BEGINS,
    fields=_fields,
    defaults={
        "step": ("step",),
        "loss": ("loss",),
        "grad_norm": ("grad_norm", "raw_grad_norm"),
        "lr": ("learning_rate", "lr"),
    },
)
