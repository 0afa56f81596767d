"""What the Hugging Face Trainer saves: `trainer_state.json`, or its `log_history` alone.

Version 5 keeps full precision; version 4 rounds the loss to four decimals here, too. Steps count from 1.
"""

import re

from parity.curves.documents import Document, records_in
from parity.curves.notes import Notes
from parity.curves.records import Record, beginning

__all__ = ["FORMAT"]

_STATE = re.compile(r'\s*\{.*?"log_history"\s*:\s*\[', re.DOTALL)
_LIST = re.compile(r"\s*\[\s*(?=\{)")


def _shows(head: str) -> str | None:
    if _STATE.match(head):
        return "it has log_history"
    listed = _LIST.match(head)
    if listed is None:
        return None
    try:
        first, _ = beginning(head[listed.end() :])
    except (ValueError, RecursionError):
        return None
    # What the Trainer logs of a training step, whatever else.
    shows = isinstance(first, dict) and {"step", "epoch", "learning_rate"} <= first.keys()
    return "a list of records with step, epoch and learning_rate" if shows else None


def _records(value: object, notes: Notes) -> tuple[list[Record], int] | None:
    records = records_in(value.get("log_history") if isinstance(value, dict) else value)
    every = value.get("logging_steps") if isinstance(value, dict) else None
    if isinstance(every, int) and every > 1:
        notes.add(f"logging_steps is {every}: each loss is a mean over so many steps, and each norm that of the last")
    return (records, 1) if records else None


FORMAT = Document(
    name="trainer_state",
    shows=_shows,
    find=_records,
    absent="log_history",
    # Not train_loss, which the last entry has: the mean over the run.
    defaults={"step": ("step",), "loss": ("loss",), "grad_norm": ("grad_norm",), "lr": ("learning_rate",)},
)
