"""JSON lines with a step and metrics in each, whatever the keys are called.

Reads as they are: `training.jsonl` of NeMo Automodel and the metrics files of DeepSpeedExamples' AutoTP check.
"""

from parity.curves.curve import LegCurves
from parity.curves.keys import DEFAULTS, Keys, listed
from parity.curves.notes import Notes, refusal
from parity.curves.opening import Opened
from parity.curves.reading import Reading
from parity.curves.records import Record, objects

__all__ = ["FORMAT", "JsonLines"]


_TRACE = '"logger_name": "torchtitan.structured_logger"'


class JsonLines:
    """The format `jsonl`."""

    name = "jsonl"
    generic = True

    def matches(self, head: str) -> str | None:
        """How many lines of the head are JSON objects, and the keys of the last."""
        complete = head.strip().split("\n")
        found: list[Record] = [record for records, _ in objects(iter(complete), Notes()) for record in records]
        if not found:
            return None
        few = listed(list(found[-1])[:6])
        return f"{len(found)} of the first {len(complete)} lines are JSON objects, with {few}"

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`. Curves: loss, grad_norm, lr and whatever else `keys` names."""
        if _TRACE in opened.head and not keys:
            raise refusal(source, "is torchtitan's structured log, which has times and no loss: give its tb folder")
        reading = Reading(source, keys, DEFAULTS, records="JSON object")
        for records, numbers in objects(opened.lines(), reading.notes):
            reading.take(records, numbers)
        return reading.leg(self.name)


FORMAT = JsonLines()
