"""NeMo Automodel's training lines: `step 16 | epoch 0 | loss 5.2869 | grad_norm 2.4979 | lr 1.00e-03 | …`."""

import re

from parity.curves.printed import EVALUATION, Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(r"(?P<val>\[val\] (?:[^|]{0,200}\| )?)?\bstep (?P<step>\d{1,16}) \| epoch ")
_FIELD = re.compile(r"\| (?P<name>\w{1,64}) (?P<value>[^|\s]{1,64})(?= \||\s*$)")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    if begin["val"]:
        return EVALUATION
    return {**named(_FIELD.finditer(text)), "step": begin["step"]}


FORMAT = Printed(
    name="automodel",
    needles=("| epoch ",),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("step",), "loss": ("loss",), "grad_norm": ("grad_norm",), "lr": ("lr",)},
    first_step=0,
)
