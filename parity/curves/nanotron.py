"""nanotron's training lines: `iteration: 7 / 15 | consumed_tokens: 1.84M | … | lm_loss: 2.38 | … | grad_norm: 0.4`.

Three digits, and K for thousands.
"""

import re

from parity.curves.printed import Printed, named
from parity.curves.records import Record, Repeated

__all__ = ["FORMAT"]

_BEGINS = re.compile(r"\biteration: (?P<step>\d{1,16}) / \d{1,16} \|")
_FIELD = re.compile(r"\| (?P<name>[\w/-]{1,64}): (?P<value>[^|\s]{1,64})(?= \||\s*$)")
_SUFFIXED = re.compile(r"([+-]?\d{1,3}(?:\.\d{1,3})?)([KMGBTP])", re.ASCII)
_POWERS = {"K": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15}


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    found = named(_FIELD.finditer(text, begin.end() - 1))
    return {**{name: _number(value) for name, value in found.items()}, "iteration": begin["step"]}


def _number(value: object) -> object:
    """`value` with an exponent for its suffix, so that its digits are still those that were printed."""
    if isinstance(value, Repeated):
        return Repeated(map(_number, value))
    suffixed = _SUFFIXED.fullmatch(value) if isinstance(value, str) else None
    return f"{suffixed[1]}e{_POWERS[suffixed[2]]}" if suffixed else value


FORMAT = Printed(
    name="nanotron",
    needles=("iteration: ",),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("iteration",), "loss": ("lm_loss",), "grad_norm": ("grad_norm",), "lr": ("lr",)},
)
