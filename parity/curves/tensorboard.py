"""TensorBoard's event files, one or the folder of a run."""

import os
from dataclasses import replace

from parity.curves.curve import LegCurves
from parity.curves.events import SIGNATURE, Restart, events
from parity.curves.files import Files
from parity.curves.keys import Keys, listed
from parity.curves.notes import Notes, refusal
from parity.curves.reading import Reading
from parity.curves.scalars import NAMES, Scalar, by_step, steps_of_samples, wanted

__all__ = ["FORMAT", "TensorBoard"]

_IN_NAME = ".tfevents."
# Of the metrics asked for: 100,000 steps with four of them are 400,000.
MOST_SCALARS = 2_000_000
MOST_TAGS = 1000
# Each costs a look at every scalar so far.
MOST_RESTARTS = 100
# Megatron-LM writes its curves once more over the number of samples.
_TWIN = " vs samples"
# By what the loss is called, for frameworks that always count so.
_FIRST_STEPS = {"loss_metrics/global_avg_loss": 1, "lm loss": 1}


class TensorBoard:
    """The format `tensorboard`."""

    name = "tensorboard"

    def finds(self, files: Files) -> str | None:
        """How many event files there are."""
        if not files.is_folder:
            return "it begins as an event file does" if SIGNATURE in files.head() else None
        count = len(_event_files(files))
        return f"{count} event file{'s' * (count > 1)}" if count else None

    def read(self, files: Files, keys: Keys | None) -> LegCurves:
        """See `Stored.read`. Values are float32.

        Several files in one folder are one run that was started again. Where a later one says from which step
        (`purge_step`), what the earlier ones have from there on is left out, as TensorBoard does. What then is
        still there twice is a conflict.
        """
        names = wanted(keys, files.source)
        reading = Reading(files.source, keys, NAMES, records="scalar")
        scalars = steps_of_samples(_one_run(files, names, reading.notes), reading.notes)
        if scalars:
            records = by_step(scalars)
            reading.take(records, range(1, len(records) + 1))
        leg = reading.leg(self.name)
        curves = {m: replace(c, resolution=replace(c.resolution, float32=True)) for m, c in leg.curves.items()}
        return replace(leg, curves=curves, base=_FIRST_STEPS.get(leg.fields.get("loss", "")))


def _event_files(files: Files) -> list[str]:
    if not files.is_folder:
        return [*files.names]
    return [name for name in files.names if _IN_NAME in os.path.basename(name)]


def _one_run(files: Files, names: set[str], notes: Notes) -> list[Scalar]:
    """The scalars of the only folder that has any.

    Raises:
        UsageError: several have, or none.
    """
    runs: dict[str, list[str]] = {}
    for name in _event_files(files):
        runs.setdefault(os.path.dirname(name), []).append(name)
    found: dict[str, list[Scalar]] = {}
    for folder, its_files in runs.items():
        run = _Run(files, names, notes)
        for name in its_files:  # sorted: the names begin with the time at which the file was made
            run.take(name)
        if run.scalars:
            found[folder or "."] = run.scalars
        if len(found) > 1:
            raise refusal(files.source, f"holds several runs, {listed(found)}: name the folder of one")
    if not found:
        raise refusal(files.source, "holds no scalars: the run logged none, or has not flushed them yet")
    return next(iter(found.values()))


class _Run:
    def __init__(self, files: Files, names: set[str], notes: Notes) -> None:
        self._files, self._names, self._notes = files, names, notes
        self._others: set[str] = set()
        self._restarts = 0
        self._last = -1
        self.scalars: list[Scalar] = []

    def take(self, name: str) -> None:
        source = os.path.join(self._files.source, name) if name else self._files.source
        with self._files.open(name) as file:
            for one in events(file, source, self._notes):
                if isinstance(one, Restart):
                    self._restart(one.step)
                elif self._keep(one[0]):
                    self.scalars.append(one)
                    self._last = max(self._last, one[1])
                    if len(self.scalars) > MOST_SCALARS:
                        raise refusal(source, f"holds more than {MOST_SCALARS:,} values of the metrics asked for")

    def _keep(self, tag: str) -> bool:
        """Whether it may be a metric, or is the first of its tag: messages name the tags that there are."""
        if tag in self._names:
            return True
        if tag.endswith(_TWIN):
            self._notes.add(f"tags that end in {_TWIN!r} were left out: they are not by step")
        elif tag != "step" and tag not in self._others and len(self._others) < MOST_TAGS:
            self._others.add(tag)
            return True
        return False

    def _restart(self, step: int) -> None:
        if self._last < step:
            return
        self._restarts += 1
        if self._restarts > MOST_RESTARTS:
            raise refusal(self._files.source, f"was started again more than {MOST_RESTARTS} times")
        kept = [one for one in self.scalars if one[1] < step]
        self._notes.add(
            f"the run was started again from step {step}: {len(self.scalars) - len(kept)} earlier values from there "
            "on were left out"
        )
        self.scalars = kept
        self._last = max((one[1] for one in kept), default=-1)


FORMAT = TensorBoard()
