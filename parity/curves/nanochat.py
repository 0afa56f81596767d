"""nanochat's training lines: `step 00010/21400 (0.05%) | loss: 9.123456 | grad norm: 1.2345 | lrm: 1.00 | …`."""

import re

from parity.curves.printed import Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(r"\bstep (?P<step>\d{1,16})/\d{1,16} \(\d{1,3}\.\d{1,6}%\)(?= \|)")
_FIELD = re.compile(r"\| (?P<name>[\w/ -]{1,64}): (?P<value>[^|\s]{1,64})(?= \||\s*$)")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    return None if begin is None else {**named(_FIELD.finditer(text, begin.end())), "step": begin["step"]}


FORMAT = Printed(
    name="nanochat",
    needles=("%) | ",),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("step",), "loss": ("loss",), "grad_norm": ("grad norm",)},
    remark="nanochat prints a running mean of the loss over the steps before: it hides how far single steps differ",
)
