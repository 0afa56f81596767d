"""Which rank printed what, where launchers say so, and how the ranks of one log go together."""

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.curves.notes import LINES_NAMED, Notes
from parity.curves.numbers import ABSENT, as_number, as_step
from parity.curves.records import Record

__all__ = ["Prefix", "Ranks", "prefixes"]

# "[rank0]:" by torchrun's --tee with torchtitan's role, "[default0]:" with none, "[0]:" by --tee's older versions,
# "[Rank 0]" by DeepSpeed, "0: " by srun --label, "[INFO|DP=0|PP=0|TP=0]" by nanotron.
_PREFIX = re.compile(
    r"\[(?P<of>rank|default|[Rr]ank )?(?P<rank>\d{1,6})\](?:(?<=\d\]):|(?=[ ]))"
    r"|^ *(?P<task>\d{1,6}): "
    r"|\[[A-Z]{1,16}\|(?P<axes>[A-Z]{2,4}=\d{1,6}(?:\|[A-Z]{2,4}=\d{1,6})*)(?:\|[\w.-]{1,255})?\]:"
)
# Ranks wait for each other at every step, so what they print of a step lies close together.
_WINDOW = 64
# A person looks at one pair of ranks; thousands of ranks would be thousands of notes.
_MOST_PAIRS = 3
_BACK = "steps go back, as where a run was started again or a log was added to"


@dataclass(frozen=True)
class Prefix:
    """Where a line says which rank printed what follows.

    Attributes:
        start, stop: its place in the line.
        rank: "rank 0", or "DP=0|PP=0|TP=0".
    """

    start: int
    stop: int
    rank: str


def prefixes(text: str) -> Iterator[Prefix]:
    """The prefixes in a line, in order: more than one where ranks' output ran together."""
    for found in _PREFIX.finditer(text):
        if found["rank"] is not None and not found["of"] and text[found.end() - 1] != ":":
            continue  # "[1] " is a footnote, or a list
        rank = found["axes"] or f"rank {int(found['rank'] or found['task'])}"
        yield Prefix(found.start(), found.end(), rank)


class Ranks:
    """The records of one log, by the rank that printed them: numbers those without a step, and notes where ranks
    differ and where steps go back.

    Args:
        step: names of the step.
        metrics: names whose values are compared.
    """

    def __init__(self, notes: Notes, step: Sequence[str], metrics: Sequence[str]) -> None:
        self._notes, self._step, self._metrics = notes, step, metrics
        self._counts: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._recent: OrderedDict[int, tuple[str, Record]] = OrderedDict()
        self._pairs: set[str] = set()

    def number(self, record: Record, rank: str) -> None:
        """Give `record` the step after the one that `rank` printed before it, from 1."""
        self._counts[rank] = record[self._step[0]] = self._counts.get(rank, 0) + 1

    def take(self, record: Record, rank: str, line: int) -> None:
        """Look at a record in the order in which they were printed; `rank` is empty where no prefix says it."""
        name = next((name for name in self._step if name in record), "")
        step = as_step(record.get(name))
        if step is None:
            return
        record[name] = step  # as a number it need not be parsed again
        # Ranks without prefixes may be one step apart.
        if step < self._last.get(rank, 0) - 1:
            self._notes.at(_BACK, line)
        self._last[rank] = step
        if not rank:
            return
        first = self._recent.setdefault(step, (rank, record))
        if len(self._recent) > _WINDOW:
            self._recent.popitem(last=False)
        if first[0] != rank:
            self._compare(first, (rank, record), line)

    def take_steps(self, steps: NDArray[np.int64], lines: Sequence[int]) -> None:
        """The same for records of one rank that no prefix names."""
        before = np.concatenate([[self._last.get("", 0)], steps[:-1]])
        back = np.flatnonzero(steps < before - 1)
        for row in back[:LINES_NAMED].tolist():
            self._notes.at(_BACK, lines[row])
        if back.size > LINES_NAMED:
            self._notes.at(_BACK, lines[int(back[LINES_NAMED])], int(back.size) - LINES_NAMED)
        self._last[""] = int(steps[-1])

    def _compare(self, one: tuple[str, Record], other: tuple[str, Record], line: int) -> None:
        for name in self._metrics:
            a, b = one[1].get(name, ABSENT), other[1].get(name, ABSENT)
            if a is ABSENT or b is ABSENT or a == b or repr(as_number(a)) == repr(as_number(b)):
                continue
            what = f"{other[0]} prints another {name} than {one[0]}"
            if what in self._pairs or len(self._pairs) < _MOST_PAIRS:
                self._pairs.add(what)
                self._notes.at(what, line)
