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
    shows = isinstance(first, dict) and {"step", "epoch"} <= first.keys()
    return "a list of records with step and epoch" if shows else None


def _records(value: object, notes: Notes) -> list[Record] | None:
    if not isinstance(value, dict):
        return records_in(value)
    every = value.get("logging_steps")
    if isinstance(every, int) and every > 1:
        notes.add(f"logging_steps is {every}: each loss is a mean over so many steps, and each norm that of the last")
    return records_in(value.get("log_history"))


FORMAT = Document(
    name="trainer_state",
    shows=_shows,
    find=_records,
    absent="log_history",
    # Not train_loss, which the last entry has: the mean over the run.
    defaults={"step": ("step",), "loss": ("loss",), "grad_norm": ("grad_norm",), "lr": ("learning_rate",)},
)
