"""VeOmni's progress bar: `Epoch 1/1:  50%|█████     | 1/2 [00:03<00:03,  3.20s/it, total_loss: 6.93, …]`.

Two decimals, and a bar that is drawn again only so often: steps between are not there.
"""

import re

from parity.curves.printed import Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(
    r"(?:\bEpoch (?P<epoch>\d{1,9})/\d{1,9}: [^|\[\]]{0,16})?\|[^|\[\]]{0,256}\| (?P<step>\d{1,16})/(?P<of>\d{1,16}) "
    r"\[[^\[\],]{1,64}, [^\[\],]{1,32}(?:it/s|s/it), (?=[^\[\]]{0,1024}\bgrad_norm: )"
)
_FIELD = re.compile(r"(?P<name>[\w/.-]{1,64}): (?P<value>[^\s,\]]{1,64})(?=[,\]])")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    found = named(_FIELD.finditer(text, begin.end()))
    # Each epoch has a bar of its own, which counts from its first step.
    before = (int(begin["epoch"] or 1) - 1) * int(begin["of"])
    return {**found, "step": before + int(begin["step"])}


FORMAT = Printed(
    name="veomni",
    needles=("grad_norm: ",),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("step",), "loss": ("total_loss", "loss"), "grad_norm": ("grad_norm",), "lr": ("lr",)},
)
