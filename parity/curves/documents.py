"""Sources that are one JSON value over the whole file, where a file cut short is no source."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from parity.curves.curve import LegCurves
from parity.curves.keys import Keys
from parity.curves.notes import Notes, refusal
from parity.curves.opening import Opened
from parity.curves.reading import Reading
from parity.curves.records import Record, beginning
from parity.plain import plain

__all__ = ["Document", "cut_short", "records_in", "whole"]

# Enough to convert columns in C.
BATCH = 1024
# Of a name or an escape, where a text ends in one.
_HALF = re.compile(r"-|[tfnNI-][a-zN]{0,8}|\\(?:u[0-9a-fA-F]{0,3})?")


@dataclass(frozen=True)
class Document:
    """A format that is one JSON value.

    Attributes:
        name: as users write it in `format:`.
        shows: from the beginning of a source, what shows the format, or None.
        find: from the value, its records in the order of training, and the number of the first step where it is
            sure; None where there are none. May add notes.
        absent: what is not there then.
        defaults: which key is which metric, and `step`; of several names the first that the source has.
    """

    name: str
    shows: Callable[[str], str | None]
    find: Callable[[object, Notes], tuple[list[Record], int | None] | None]
    absent: str
    defaults: Mapping[str, tuple[str, ...]]
    generic: bool = False

    def matches(self, head: str) -> str | None:
        """What `shows` says."""
        return self.shows(head)

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`."""
        reading = Reading(source, keys, self.defaults)
        reading.notes.place = "record"
        value = whole(opened.text(), source)
        found = self.find(value, reading.notes)
        if found is None or not found[0]:
            raise refusal(source, f"holds no {self.absent}; it {_about(value)}")
        records, first_step = found
        for start in range(0, len(records), BATCH):
            batch = records[start : start + BATCH]
            reading.take(batch, range(start + 1, start + len(batch) + 1))
        return replace(reading.leg(self.name), base=first_step)


def whole(text: str, source: str) -> object:
    """The JSON value that is the whole of `text`. NaN and infinities are read, as Python writes them.

    Raises:
        UsageError: it is none, is cut short, is nested too deeply, or is followed by something.
    """
    try:
        value, rest = beginning(text)
    except RecursionError:
        raise refusal(source, "is nested too deeply to be a log") from None
    except json.JSONDecodeError as error:
        if cut_short(error):
            raise refusal(source, "is cut short, as after a crash: a JSON document is read whole or not") from None
        raise refusal(source, f"is not JSON: {plain(error.msg)} at line {error.lineno}") from None
    except ValueError:  # an integer of thousands of digits
        raise refusal(source, "is not JSON: it holds a number of thousands of digits") from None
    if rest:
        raise refusal(source, f"is not one JSON document: after it comes {plain(rest[:40])!r}")
    return value


def cut_short(error: json.JSONDecodeError) -> bool:
    """Whether the text ended in the middle of a value."""
    rest = error.doc[error.pos :].strip()
    return not rest or error.msg.startswith("Unterminated") or _HALF.fullmatch(rest) is not None


def records_in(value: object) -> list[Record] | None:
    """`value` if it is a list of objects and nothing else, else None."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return value
    return None


def _about(value: object) -> str:
    if isinstance(value, dict):
        some = ", ".join(plain(key, 40) for key in list(value)[:8])
        return f"has {some or 'nothing'}" + (f" and {len(value) - 8} more" if len(value) > 8 else "")
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is {plain(value, 40)}"
