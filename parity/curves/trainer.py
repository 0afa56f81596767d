"""The Hugging Face Trainer's printed dicts: `{'loss': 2.3456, 'grad_norm': 1.23, 'learning_rate': 4.9e-05, …}`.

Version 4 prints numbers, the loss with four decimals; version 5 texts of four digits. Neither prints the step; other
loops print such dicts with one.
"""

import re

from parity.curves.printed import TORN, Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

_BEGINS = re.compile(r"\{(?='[^'{}\n]{1,64}': )")
_FIELD = re.compile(
    r"'(?P<name>[^']{1,64})': (?:'(?=[^']{0,64}')|(?:np\.float\d{2}|tensor)\(|(?=[\w.+-]))"
    r"(?P<value>[^\s'(),{}\[\]]{1,64})[^{}]{0,64}?(?=, '|\})"
)
_LOSS = re.compile(r"'loss': ")


def _fields(text: str) -> Record | None:
    if _LOSS.search(text) is None:
        return None  # an evaluation has an eval_loss, the end of the run a train_loss
    whole = text.find("}") + 1
    return named(_FIELD.finditer(text, 0, whole)) if whole else TORN


FORMAT = Printed(
    name="trainer",
    needles=("'loss': ",),
    begins=_BEGINS,
    fields=_fields,
    defaults={
        "step": ("step", "global_step"),
        "loss": ("loss",),
        "grad_norm": ("grad_norm",),
        "lr": ("learning_rate", "lr"),
    },
    unnumbered="the lines hold no step: counted from 1, as with logging_steps: 1",
)
