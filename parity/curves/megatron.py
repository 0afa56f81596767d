"""Megatron-LM's training lines: ` iteration  1/ 100 | ... | lm loss: 6.612992E+00 | ... | grad norm: 111.173 |`.

Printed by the last rank, and by Megatron-DeepSpeed and other forks alike; newer versions put a time before it.
"""

import re

from parity.curves.numbers import as_number
from parity.curves.printed import Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

# Not NeMo's "Training epoch 0, iteration 120/149 |".
_BEGINS = re.compile(r"(?<!, )\biteration +(?P<step>\d{1,16})/ *\d{1,16} \|")
# The bar after a number shows that it is whole; a name with a loss in it may come with any other.
_FIELD = re.compile(r"\| *(?P<name>[^|:]{1,64}): *(?P<value>[^|\s]{1,64}) *(?=\|)")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    found = named(_FIELD.finditer(text, begin.end() - 1))
    found["iteration"] = begin["step"]
    if not any("loss" in name and name != "loss scale" for name in found) and _broke(found):
        # A loss is printed only where it is not below 0, which NaN fails: it vanishes when it matters most.
        found["lm loss"] = "nan"
    return found


def _broke(found: Record) -> bool:
    nan, norm = as_number(found.get("number of nan iterations")), as_number(found.get("grad norm"))
    return bool(nan) or norm != norm  # noqa: PLR0124  NaN


FORMAT = Printed(
    name="megatron",
    # In every version; "iteration " alone would be twice in every record, and takes twice as long to search.
    needles=("elapsed time per iteration",),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("iteration",), "loss": ("lm loss",), "grad_norm": ("grad norm",), "lr": ("learning rate",)},
    first_step=1,
)
