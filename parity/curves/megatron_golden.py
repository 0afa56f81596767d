"""Megatron-LM's golden values: `{"lm loss": {"start_step": 1, "step_interval": 1, "values": {"1": 10.60965}}}`.

Rounded to five decimals. What its tools did not find they write as "nan", which is read as NaN: it may be one.
"""

import re
from collections.abc import Iterator

from parity.curves.documents import Document
from parity.curves.notes import Notes
from parity.curves.records import Record
from parity.curves.scalars import NAMES, by_step

__all__ = ["FORMAT"]

_METRIC = re.compile(r'\s*\{.*?"(?P<name>[^"\n]{1,64})"\s*:\s*\{[^{}\[\]]*"values"\s*:\s*[\[{]', re.DOTALL)


def _shows(head: str) -> str | None:
    found = _METRIC.match(head)
    return f"{found['name']} has values by step" if found else None


def _records(value: object, notes: Notes) -> tuple[list[Record], None] | None:
    return (by_step(_values(value)), None) if isinstance(value, dict) else None


def _values(metrics: dict[str, object]) -> Iterator[tuple[str, object, object]]:
    for name, metric in metrics.items():
        values = metric.get("values") if isinstance(metric, dict) else None
        if isinstance(values, dict):
            yield from ((name, step, value) for step, value in values.items())
        elif isinstance(values, list) and isinstance(metric, dict):
            # As they were before 2025.
            first, every = metric.get("start_step"), metric.get("step_interval")
            if isinstance(first, int) and isinstance(every, int):
                yield from ((name, first + at * every, value) for at, value in enumerate(values))


FORMAT = Document(name="megatron_golden", shows=_shows, find=_records, absent="values by step", defaults=NAMES)
