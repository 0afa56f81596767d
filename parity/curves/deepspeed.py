"""DeepSpeed's lines: the pipeline engine's `steps: 10 loss: 2.3456 iter time (s): 0.512 …`, and every engine's
`step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]`, which has no loss."""

import re

from parity.curves.printed import Printed
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(
    r"\bsteps: (?P<steps>\d{1,16}) loss: |(?<![\w/])step=(?P<step>\d{1,16}), skipped=\d{1,16}, lr=\["
)
_LOSS = re.compile(r"(?P<value>\S{1,64}) iter time")
_RATES = re.compile(r"(?P<values>[^\]]{1,4096})\]")


def _fields(text: str) -> Record | None:
    begin = _BEGINS.match(text)
    if begin is None:
        return None
    if begin["steps"]:
        loss = _LOSS.match(text, begin.end())
        return {"step": begin["steps"], "loss": loss["value"]} if loss else None
    rates = _RATES.match(text, begin.end())
    if rates is None:
        return None
    several = [rate.strip() for rate in rates["values"].split(",")]
    # Parameter groups at different rates have none that is the run's.
    named = {"lr": several[0]} if len(set(several)) == 1 else {f"lr{at}": rate for at, rate in enumerate(several)}
    return {"step": begin["step"], **named}


FORMAT = Printed(
    name="deepspeed",
    needles=("iter time (s)", ", skipped="),
    begins=_BEGINS,
    fields=_fields,
    defaults={"step": ("step",), "loss": ("loss",), "lr": ("lr",)},
    lossless="DeepSpeed's engine prints no loss and no gradient norm: have the training script write both, "
    'as {"step": 0, "loss": …, "grad_norm": …} on a line for each step (engine.get_global_grad_norm())',
    # A framework that trains with DeepSpeed prints its own lines beside, and they have the loss.
    generic=True,
)
