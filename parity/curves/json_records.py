"""A JSON document that holds a list with a record for each step, as TRL's references do under `steps`."""

import json
import re

from parity.curves import log_dict, megatron_golden, trainer_state
from parity.curves.documents import Document, cut_short, records_in
from parity.curves.notes import Notes
from parity.curves.records import Record, beginning
from parity.curves.scalars import NAMES
from parity.plain import plain

__all__ = ["FORMAT"]

_MORE_SPECIFIC = (log_dict.FORMAT, megatron_golden.FORMAT, trainer_state.FORMAT)
# A document over several lines, which no line of JSON lines is.
_BROKEN = re.compile(r'\s*(?:\{[ \t]*\n\s*"|\[\s*\{)')
_RECORDS = re.compile(r'"(?P<name>[^"\n]{1,64})"\s*:\s*\[\s*\{\s*"')


def _shows(head: str) -> str | None:
    if any(one.matches(head) for one in _MORE_SPECIFIC):
        return None
    broken = "one JSON document" if _BROKEN.match(head) else None
    try:
        value, rest = beginning(head)
    except json.JSONDecodeError as error:
        if not cut_short(error):
            return None
        found = _RECORDS.search(head) if head.lstrip().startswith("{") else None
        return f"{found['name']} is a list of records" if found else broken
    except (ValueError, RecursionError):
        return broken
    if rest:
        return None
    lists = _lists(value)
    return f"{' and '.join(lists)} is a list of records" if lists else broken


def _lists(value: object) -> dict[str, list[Record]]:
    """The lists of records, by where they are."""
    if records := records_in(value):
        return {"it": records}
    inner = value.items() if isinstance(value, dict) else ()
    return {plain(name, 40): records for name, one in inner if (records := records_in(one))}


def _records(value: object, notes: Notes) -> tuple[list[Record], None] | None:
    lists = _lists(value)
    return (next(iter(lists.values())), None) if len(lists) == 1 else None


FORMAT = Document(
    name="json",
    shows=_shows,
    find=_records,
    absent="list, or several, of records with a step and a loss",
    defaults={**NAMES, "step": ("step", "global_step", "iteration", "_step")},
)
