"""The folder of DeepSpeed's CSV monitor: a file for each curve, `step,value` a line, named by its tag."""

import dataclasses
import os
from collections.abc import Iterator
from typing import BinaryIO

from parity.curves.curve import LegCurves
from parity.curves.files import Files
from parity.curves.keys import Keys
from parity.curves.notes import Notes, refusal
from parity.curves.numbers import as_number, as_step
from parity.curves.reading import Reading
from parity.curves.scalars import NAMES, SAMPLES_FILE, by_step, only_run, steps_of_samples, take, wanted
from parity.plain import plain

__all__ = ["FORMAT", "CsvMonitor"]

_SUFFIX = ".csv"
LONGEST = 1 << 10


class CsvMonitor:
    """The format `csv_monitor`."""

    name = "csv_monitor"

    def finds(self, files: Files) -> str | None:
        """How many curves the monitor's folders have."""
        count = sum(map(len, _runs(files).values()))
        return f"{count} curve{'s' * (count > 1)} of DeepSpeed's CSV monitor" if count else None

    def read(self, files: Files, keys: Keys | None) -> LegCurves:
        """See `Stored.read`. Numbers of samples are taken for steps, the first of which is 1, where they can be. A
        value that was written again at a step, as by a run that was started again, is a conflict."""
        names = wanted(keys, files.source)
        runs = _runs(files)
        if not runs:
            raise refusal(files.source, f"holds no file {SAMPLES_FILE}….csv, as DeepSpeed's CSV monitor makes")
        reading = Reading(files.source, keys, NAMES, records="row of a curve")
        values: list[tuple[str, int, object]] = []
        for name in only_run(runs, files.source)[1]:
            with files.open(name) as file:
                tag, several = _values(name, file, reading.notes)
                take(values, several, tag in names, files.source)
        counted = steps_of_samples(values, reading.notes)
        if records := by_step(counted):
            reading.take(records, range(1, len(records) + 1))
        leg = reading.leg(self.name)
        return leg if counted == values else dataclasses.replace(leg, base=1)


def _runs(files: Files) -> dict[str, list[str]]:
    """The tables of each folder that has one of DeepSpeed's own. Beside these lie the curves that a trainer adds."""
    runs: dict[str, list[str]] = {}
    for name in files.names:
        if name.endswith(_SUFFIX):
            runs.setdefault(os.path.dirname(name) or ".", []).append(name)
    return {folder: names for folder, names in runs.items() if any(map(_is_deepspeeds, names))}


def _is_deepspeeds(name: str) -> bool:
    return os.path.basename(name).startswith(SAMPLES_FILE)


def _values(name: str, file: BinaryIO, notes: Notes) -> tuple[str, Iterator[tuple[str, int, object]]]:
    """A curve's tag and its values; none of a table of something else, as of the monitor's own configuration."""
    header = file.readline(LONGEST).decode(errors="replace").strip().split(",")
    if len(header) != 2 or header[0] != "step":
        return "", iter(())
    # The tag's last part is the header; what stands before it in the file's name had slashes.
    stem = os.path.basename(name).removesuffix(_SUFFIX)
    last = header[1].replace(" ", "_")
    tag = stem.removesuffix(last).replace("_", "/") + header[1] if stem.endswith(last) else stem
    return tag, _rows(tag, header, file, notes)


def _rows(tag: str, header: list[str], file: BinaryIO, notes: Notes) -> Iterator[tuple[str, int, object]]:
    while line := file.readline(LONGEST):
        if not line.strip():
            continue
        cells = line.decode(errors="replace").strip().split(",")
        step = as_step(cells[0])
        if len(cells) == 2 and step is not None and as_number(cells[1]) is not None and line.endswith(b"\n"):
            yield tag, step, cells[1]
        elif cells == header:
            notes.add(f"{plain(tag, 40)} has its header again, as of another start")
        else:
            notes.add(f"lines of {plain(tag, 40)} that are not step and value were ignored")


FORMAT = CsvMonitor()
