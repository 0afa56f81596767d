"""Torchtitan's golden losses, `1 8.049097061157227` a line: the step and the loss in full."""

import itertools
import re

from parity.curves.curve import LegCurves
from parity.curves.keys import Keys
from parity.curves.opening import Opened
from parity.curves.reading import Reading
from parity.curves.records import Record

__all__ = ["FORMAT", "TorchtitanGolden"]

BATCH = 1024
# The loss has a point or is not finite, so that two columns of counts are none.
_LINE = re.compile(r"\s*(\d{1,16})[ \t]+([+-]?(?:\d+\.\d+(?:e[+-]?\d+)?|nan|inf))\s*", re.IGNORECASE)


class TorchtitanGolden:
    """The format `torchtitan_golden`."""

    name = "torchtitan_golden"
    generic = False
    first_step = 1

    def matches(self, head: str) -> str | None:
        """How many lines the beginning has, if every one is a step and a loss and the steps grow."""
        *whole, rest = head.split("\n")  # the rest may go on
        found = [_LINE.fullmatch(line) for line in whole or [rest] if line.strip()]
        steps = [int(one[1]) for one in found if one]
        grows = all(step < later for step, later in itertools.pairwise(steps))
        return f"{len(steps)} lines of a step and a loss" if steps and len(steps) == len(found) and grows else None

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`."""
        reading = Reading(source, keys, {"step": ("step",), "loss": ("loss",)}, records="step and loss")
        *whole, rest = opened.text().split("\n")
        for start in range(0, len(whole), BATCH):
            records: list[Record] = []
            numbers: list[int] = []
            for number, line in enumerate(whole[start : start + BATCH], start=start + 1):
                if found := _LINE.fullmatch(line):
                    records.append({"step": found[1], "loss": found[2]})
                    numbers.append(number)
                elif line.strip():
                    reading.notes.at("lines of other text were ignored", number)
            if records:
                reading.take(records, numbers)
        if rest.strip():
            reading.notes.at("the last line has no end, so its number may be cut, and was ignored", len(whole) + 1)
        return reading.leg(self.name)


FORMAT = TorchtitanGolden()
