"""A run in MLflow's local store: its folder, with a file for each metric, `timestamp value step` a line.

The store's own folder will do where it holds one run, whose name nobody knows beforehand.
"""

from collections.abc import Iterator
from typing import BinaryIO

from parity.curves.curve import LegCurves
from parity.curves.files import Files
from parity.curves.keys import Keys
from parity.curves.notes import Notes, refusal
from parity.curves.numbers import as_number, as_step
from parity.curves.reading import Reading
from parity.curves.scalars import NAMES, by_step, only_run, take, wanted
from parity.plain import plain

__all__ = ["FORMAT", "Mlflow"]

_METRICS = "metrics/"
# Besides its metrics a run's folder has this, and so has that of an experiment above it.
_ABOUT = "meta.yaml"
LONGEST = 1 << 10


class Mlflow:
    """The format `mlflow`."""

    name = "mlflow"

    def finds(self, files: Files) -> str | None:
        """How many metrics the runs have."""
        counts = [len(metrics) for metrics in _runs(files).values()]
        if not counts:
            return None
        return f"{len(counts)} run{'s' * (len(counts) > 1)} with {sum(counts)} metric{'s' * (sum(counts) > 1)}"

    def read(self, files: Files, keys: Keys | None) -> LegCurves:
        """See `Stored.read`. A value that was logged again at a step is a conflict."""
        names = wanted(keys, files.source)
        runs = _runs(files)
        if not runs:
            raise refusal(
                files.source, "holds no run: the folder of one has meta.yaml, and metrics with a file for each"
            )
        reading = Reading(files.source, keys, NAMES, records="metric")
        run, metrics = only_run(runs, files.source)
        values: list[tuple[str, object, object]] = []
        for metric in metrics:
            with files.open(f"{run}{_METRICS}{metric}") as file:
                take(values, _values(metric, file, reading.notes), metric in names, files.source)
        records = by_step(values)
        if not records:
            raise refusal(files.source, "holds no values: the run logged none, or not yet")
        reading.take(records, range(1, len(records) + 1))
        return reading.leg(self.name)


def _runs(files: Files) -> dict[str, list[str]]:
    """The metrics of each run, by its folder: empty, or with a slash at its end."""
    runs: dict[str, list[str]] = {}
    known = set(files.names)
    for name in files.names:
        run, _, metric = f"/{name}".partition(f"/{_METRICS}")
        run = f"{run[1:]}/" if run else ""
        if metric and run + _ABOUT in known:
            runs.setdefault(run, []).append(metric)
    return runs


def _values(metric: str, file: BinaryIO, notes: Notes) -> Iterator[tuple[str, object, object]]:
    """The values in one metric's file."""
    while line := file.readline(LONGEST):
        cells = line.decode(errors="replace").split()
        # Before version 1 there was no step.
        if len(cells) in (2, 3) and line.endswith(b"\n"):
            step = as_step(cells[2]) if len(cells) == 3 else 0
            if step is not None and as_number(cells[1]) is not None:
                yield metric, step, cells[1]
                continue
        notes.add(f"lines of {plain(metric, 40)} that are not timestamp, value and step were ignored")


FORMAT = Mlflow()
