"""A list of values per metric in one JSON object: VeOmni's `log_dict.json`, and what Keras calls a history."""

import re
from collections.abc import Mapping

from parity.curves.documents import Document
from parity.curves.notes import Notes
from parity.curves.records import Record, beginning
from parity.curves.scalars import NAMES

__all__ = ["FORMAT"]

_STEPS = ("step", "steps", "global_step", "iteration")
_LISTED = "|".join(map(re.escape, (*NAMES["loss"], *NAMES["grad_norm"])))
_COLUMN = re.compile(rf'"(?P<name>{_LISTED})"\s*:\s*\[\s*(?:-?\d|"|null|NaN|-?Infinity)')


def _shows(head: str) -> str | None:
    found = _COLUMN.search(head) if head.lstrip().startswith("{") else None
    if found is None:
        return None
    try:
        _, rest = beginning(head)
    except (ValueError, RecursionError):
        rest = ""  # the head is only a part of it
    # Else JSON lines, in each of which a list stands for one step.
    return None if rest else f"{found['name']} is a list of values"


def _records(value: object, notes: Notes) -> tuple[list[Record], int | None] | None:
    if not isinstance(value, dict):
        return None
    columns = {name: one for name, one in value.items() if isinstance(one, list) and not isinstance(one[:1], dict)}
    count = max(map(len, columns.values()), default=0)
    steps = next((name for name in _STEPS if name in columns), None)
    if steps is None:
        notes.add("there are no steps in it: values were counted from 0")
    return [_row(columns, row, steps) for row in range(count)], 0 if steps is None else None


def _row(columns: Mapping[str, list[object]], row: int, steps: str | None) -> Record:
    record = {name: one[row] for name, one in columns.items() if row < len(one)}
    if steps is None:
        record["step"] = row
    elif steps != "step":
        record["step"] = record.pop(steps, None)
    return record


FORMAT = Document(name="log_dict", shows=_shows, find=_records, absent="list of values", defaults=NAMES)
