"""The Hugging Face Trainer's printed dicts: `{'loss': 2.3456, 'grad_norm': 1.23, 'learning_rate': 4.9e-05, …}`.

Version 4 prints numbers, the loss with four decimals; version 5 texts of four digits. Neither prints the step; other
loops print such dicts with one.
"""

import re

from parity.curves.printed import TORN, Printed, named
from parity.curves.records import Record

__all__ = ["FORMAT"]

# An evaluation has an eval_loss, the end of the run a train_loss. A dict after a key is a value of another.
_BEGINS = re.compile(r"(?<!': )\{(?=[^{}]{0,2048}'loss': )")
_FIELD = re.compile(
    r"'(?P<name>[^']{1,64})': (?:'(?=[^']{0,64}')|(?:np\.float\d{2}|tensor)\(|(?=[\w.+-]))"
    r"(?P<value>[^\s'(),{}\[\]]{1,64})[^{}]{0,64}?(?=, '|\})"
)
_BRACE = re.compile(r"[{}]")


def _fields(text: str) -> Record | None:
    own = _own(text)
    return TORN if own is None else named(_FIELD.finditer(own))


def _own(text: str) -> str | None:
    """The dict that `text` begins with, without what is nested in it; None if it does not end."""
    depth, start, parts = 0, 0, []
    for brace in _BRACE.finditer(text):
        opens = brace[0] == "{"
        if opens and depth == 1:
            parts.append(text[start : brace.start()])
        depth += 1 if opens else -1
        if not opens and depth == 1:
            start = brace.end()
        if depth == 0:
            return "".join((*parts, text[start : brace.end()]))
    return None


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
