"""A Weights & Biases run's history, exported as JSON lines: a record for every `log` call, with `_step`.

`_step` counts those calls. Trainers that log at other times too give their own step beside it, which W&B then shows
as the axis; so it is taken here.
"""

from parity.curves.curve import LegCurves
from parity.curves.keys import Keys
from parity.curves.notes import Notes
from parity.curves.opening import Opened
from parity.curves.reading import Reading
from parity.curves.records import Record, objects
from parity.curves.scalars import NAMES

__all__ = ["FORMAT", "Wandb"]

# The Hugging Face Trainer's and Lightning's, by `define_metric`.
_OWN = ("train/global_step", "trainer/global_step")


class Wandb:
    """The format `wandb`."""

    name = "wandb"
    generic = False

    def matches(self, head: str) -> str | None:
        """How many records of the beginning have `_step`."""
        count = sum("_step" in record for record in _first(head))
        return f"{count} record{'s' * (count > 1)} with _step" if count else None

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`."""
        first = _first(opened.head)
        step = next((own for own in _OWN if any(own in record for record in first)), "_step")
        reading = Reading(source, keys, {**NAMES, "step": (step,)}, records="JSON object")
        if step != "_step":
            reading.notes.add(f"the step is {step}, not _step, which counts calls of log")
        for records, numbers in objects(opened.lines(), reading.notes):
            reading.take(records, numbers)
        return reading.leg(self.name)


def _first(head: str) -> list[Record]:
    return [record for records, _ in objects(iter(head.strip().split("\n")), Notes()) for record in records]


FORMAT = Wandb()
