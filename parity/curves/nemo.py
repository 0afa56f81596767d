"""NeMo's training lines: version 2's `Training epoch 0, iteration 120/149 | … | reduced_train_loss: 1.233 | …`, and
the older progress bar's `reduced_train_loss=3.090, global_step=794.0`."""

import re

from parity.curves.printed import Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(
    r"\bTraining epoch \d{1,9}, iteration (?P<step>\d{1,16})/\d{1,16} \|"
    r"|\bEpoch \d{1,9}: {1,4}[^|\[\]]{0,16}\|[^|\[\]]{0,256}\| \d{1,16}/\d{1,16} \["
    r"(?=[^\[\]]{0,4096}\breduced_train_loss=)"
)
_FIELD = re.compile(r"\| (?P<name>[\w /-]{1,64}): (?P<value>[^|\s]{1,64})(?= *\||\s*$)")
_POSTFIX = re.compile(r"(?P<name>[\w/-]{1,64})=(?P<value>[^\s,\]]{0,64})(?=[,\]])")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    if not begin["step"]:
        return named(_POSTFIX.finditer(text, begin.end()))
    found = named(_FIELD.finditer(text, begin.end() - 1))
    # The iteration counts from every epoch's first.
    found.setdefault("global_step", begin["step"])
    return found


FORMAT = Printed(
    name="nemo",
    needles=("reduced_train_loss",),
    begins=_BEGINS,
    fields=_fields,
    # The bar's own `loss` is a running mean.
    defaults={
        "step": ("global_step",),
        "loss": ("reduced_train_loss",),
        "grad_norm": ("grad_norm",),
        "lr": ("lr",),
    },
)
