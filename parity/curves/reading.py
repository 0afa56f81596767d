"""From records with keys to a leg's curves: which key is which metric, and what is not training."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.curves.curve import LegCurves
from parity.curves.gather import Gather
from parity.curves.keys import Keys, chosen, listed, lookalikes, lookup, names
from parity.curves.notes import Notes, refusal
from parity.curves.numbers import ABSENT, as_number
from parity.curves.records import Record
from parity.curves.shape import Digits
from parity.errors import UsageError
from parity.plain import plain

__all__ = ["MARKS", "NothingError", "Reading"]

# Fields by which loops tell evaluation from training where both call their loss `loss`.
MARKS = ("type", "split", "mode", "phase", "stage")
_EVALUATION = {"eval", "evaluation", "test", "val", "valid", "validation"}

# Records of each batch searched for nested names, which are only needed for messages.
_SEARCHED = 20
# More names than a message could use: a hostile log can have a new one on every line.
_MOST_NAMES = 1000


class NothingError(UsageError):
    """There are records, or none, and nothing in them is of training."""


class Reading:
    """One file: what was seen so far, and at the end which key is which metric.

    Args:
        source: the path, for messages.
        keys: the user's, which go before the format's.
        defaults: the format's own names, by metric and for `step`; of several, the first that the file has.
        records: what a record is called where there is none.

    Raises:
        UsageError: `keys` are malformed.
    """

    def __init__(
        self, source: str, keys: Keys | None, defaults: Mapping[str, tuple[str, ...]], *, records: str = "record"
    ) -> None:
        self.notes = Notes()
        self._gather = Gather(source, self.notes)
        self._source = source
        self._called = records
        self._given = chosen(keys)
        self._metrics = {**defaults, **self._given}
        self._step_keys = self._metrics.pop("step")
        self._keys = tuple(dict.fromkeys(key for several in self._metrics.values() for key in several))
        self._step: str | None = None
        self._steps = False
        self._names: set[str] = set()

    def take(self, records: list[Record], lines: Sequence[int]) -> None:
        """Take a batch of records in the order in which they were written, and the lines that they stand on."""
        present: set[str] = set().union(*records)
        if len(self._names) < _MOST_NAMES:
            new = sorted(names(records[:_SEARCHED]) | present)
            self._names.update(new[:_MOST_NAMES])
        if present.intersection(MARKS):
            records, lines = self._training(records, lines)
        if self._step is None:
            self._step = self._step_key(records)
        steps, records, lines = self._gather.steps(records, lines, self._step or self._step_keys[0])
        self._steps = self._steps or bool(steps.size)
        known = self._gather.add(steps, records, lines, [key for key in self._keys if _may_have(present, key)])
        for row in np.flatnonzero(~known).tolist():
            self.notes.at("records with a step and no metric, as of evaluations, were ignored", lines[row])
        for metric, several in self._metrics.items():
            if metric not in self._given and len(present.intersection(several)) > 1:
                self._ask_if_together(metric, several, records)

    def take_columns(
        self, steps: NDArray[np.int64], columns: Mapping[str, tuple[NDArray[np.int64], NDArray[np.float64], Digits]]
    ) -> None:
        """Take records with the fields of one that was taken before, each with a number printed as text.

        Args:
            steps: int64 (n,), from 0 to 2^53.
            columns: by field, for some of the n records: their rows, int64, and values, float64; and their digits.
        """
        self._steps = True
        self._gather.add_columns(steps, columns)

    def _training(self, records: list[Record], lines: Sequence[int]) -> tuple[list[Record], list[int]]:
        kept = []
        for record, line in zip(records, lines, strict=True):
            marks = (record.get(key) for key in MARKS)
            if any(isinstance(mark, str) and mark.lower() in _EVALUATION for mark in marks):
                self.notes.at("records marked as evaluation were ignored", line)
            else:
                kept.append((record, line))
        return [record for record, _ in kept], [line for _, line in kept]

    def _step_key(self, records: list[Record]) -> str | None:
        for record in records:
            there = [key for key in self._step_keys if lookup(record, key) not in (ABSENT, None)]
            if len(there) > 1 and "step" not in self._given:
                raise self._ask("step", there)
            if there:
                return there[0]
        return None

    def _ask_if_together(self, metric: str, several: Sequence[str], records: list[Record]) -> None:
        """Names for a metric that never share a record are no riddle: the Hugging Face Trainer ends a log of
        `loss` with one summary that has `train_loss`. Two in one record are."""
        for record in records:
            there = [key for key in several if as_number(record.get(key)) is not None]
            if len(there) > 1:
                raise self._ask(metric, there)

    def _ask(self, metric: str, there: Sequence[str]) -> UsageError:
        choice = _asked(metric, there[0])
        return refusal(self._source, f"{' and '.join(there)} could each be the {metric}: say which, {choice}")

    def leg(self, name: str) -> LegCurves:
        """What was read, once everything was taken.

        Args:
            name: the format's.

        Raises:
            NothingError: there is no record, no step, or no metric.
            UsageError: there is none under a key that the user gave.
        """
        chosen_keys = self._choose()
        curves = self._gather.curves(chosen_keys)
        fields = {"step": self._step or self._step_keys[0], **chosen_keys}
        others = tuple(sorted(self._names.difference(fields.values())))
        return LegCurves(self._source, name, curves, self.notes.all(), fields=fields, others=others)

    def _choose(self) -> dict[str, str]:
        if not self._names:
            raise self._nothing(f"no line is a {self._called}")
        if self._step is None:
            if "step" in self._given:
                raise self._nowhere("step", self._step_keys)
            raise self._nothing(
                f"no record has a step; the keys are: {listed(self._names)}; name it, {_asked('step', '…')}"
            )
        metrics: dict[str, str] = {}
        seen = False
        for metric, several in self._metrics.items():
            there = [key for key in several if self._gather.has(key)]
            seen = seen or bool(there)
            key = next((key for key in there if self._gather.has_number(key)), None)
            if key is not None:
                metrics[metric] = key
            elif there:
                self.notes.add(f"{metric} has no number at any step, so it is absent{self._hint(metric, there)}")
            elif metric in self._given:
                raise self._nowhere(metric, several)
            elif hint := self._hint(metric, ()):
                self.notes.add(f"there is no {metric}{hint}")
        if not seen and not self._steps:
            raise self._nothing(
                f'"{plain(self._step, 40)}" is no whole number in any record: name the step, {_asked("step", "…")}'
            )
        if not seen:
            raise self._nothing(
                f"no record has a {', '.join(self._metrics)}; the keys are: {listed(self._names)}; "
                f"name them, {_asked('loss', '…')}"
            )
        return metrics

    def _nothing(self, why: str) -> NothingError:
        return NothingError(*refusal(self._source, why).lines)

    def _hint(self, metric: str, but: Sequence[str]) -> str:
        taken = {*but, *(key for key in self._keys if self._gather.has_number(key))}
        like = lookalikes(metric, self._names - taken)
        return f"; looks like it: {listed(like)} (choose with --key)" if like and metric != "lr" else ""

    def _nowhere(self, metric: str, several: Sequence[str]) -> UsageError:
        asked = " or ".join(plain(key, 40) for key in several)
        like = [found for key in several for found in lookalikes(key, self._names)] or lookalikes(metric, self._names)
        hint = f", did you mean {plain(like[0], 40)}?" if like else ";"
        return refusal(
            self._source, f"keys.{plain(metric, 40)}: no record has {asked}{hint} the keys are: {listed(self._names)}"
        )


def _asked(metric: str, key: str) -> str:
    """How a user says which key holds a metric: in a suite, and to a command."""
    return f"keys: {{{metric}: {key}}} (--key {metric}={key})"


def _may_have(present: set[str], key: str) -> bool:
    return key in present or key.split(".", 1)[0] in present
