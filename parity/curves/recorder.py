"""The project's own format: what the recorder writes in a leg, `rank-<r>.jsonl`."""

import re
from collections.abc import Mapping

from parity.curves.curve import LegCurves
from parity.curves.gather import Gather
from parity.curves.keys import Keys, chosen, listed, lookalikes
from parity.curves.notes import Notes, refusal
from parity.curves.opening import Opened
from parity.curves.records import Record, objects
from parity.errors import UsageError
from parity.plain import plain

__all__ = ["FORMAT", "VERSION", "Recorder"]

VERSION = "parity.record/1"

# In the text, not as JSON: the first line may be torn, or longer than what detection sees.
_SIGNATURE = re.compile(r'\s*\{[^\n]*?"format"\s*:\s*"(parity\.record/\w{1,20})"')
# A leg that breaks before its start line leaves an error line alone, and a trainer may record only steps.
_UNSTARTED = re.compile(r'\s*\{\s*"kind"\s*:\s*"(step|error|end)"')
_NOT_METRICS = {"kind", "step", "time"}
# A hostile file can have a new field in every line; a leg records some ten.
_MOST_METRICS = 256
# Environments are flat; readers of a deeper one may recurse.
_DEPTH = 8


class Recorder:
    """The format `recorder`."""

    name = "recorder"
    generic = False
    first_step = 0

    def matches(self, head: str) -> str | None:
        """The version that the first line gives."""
        if found := _SIGNATURE.match(head):
            return f"the first line says {found.group(1)}"
        found = _UNSTARTED.match(head)
        return f"the first line is of kind {found.group(1)}" if found else None

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """See `Format.read`. A curve for every field of the step lines that has numbers.

        `finished` is whether the file has an end line after its last start line. A file without any step
        is a leg that ended before its first: it has no curves, and notes say what the file tells of why.
        """
        given = chosen(keys)
        if "step" in given:
            raise refusal(source, "keys.step: the recorder names its own steps; leave it out")
        notes = Notes()
        gather = Gather(source, notes)
        metrics: dict[str, str] = {}
        life = _Life(source, notes)
        count = 0
        for records, numbers in objects(opened.lines(), notes):
            kinds = [record.get("kind") for record in records]
            if any(kind != "step" for kind in kinds):
                rows = [row for row, kind in enumerate(kinds) if kind == "step"]
                for record, line, kind in zip(records, numbers, kinds, strict=True):
                    life.take(kind, record, line)
                records, numbers = [records[row] for row in rows], [numbers[row] for row in rows]  # noqa: PLW2901
            if not records:
                continue
            steps, stepped, at = gather.steps(records, numbers, "step")
            new = sorted(set().union(*stepped) - _NOT_METRICS - metrics.keys())
            room = _MOST_METRICS - len(metrics)
            metrics.update((field, field) for field in new[:room])
            if len(new) > room:
                notes.add(f"fields past the first {_MOST_METRICS} were ignored")
            gather.add(steps, stepped, at, metrics)
            count += len(stepped)
        life.close(count)
        for field in metrics:
            if gather.has(field) and not gather.has_number(field):
                notes.add(f"{plain(field, 40)} has no number at any step, so it is absent")
        # Without any step a wrong key can't be told from a leg that ended too early; the latter is the news.
        curves = gather.curves(_renamed(metrics, given, source) if count else {})
        return LegCurves(source, self.name, curves, notes.all(), life.environment, life.start, life.finished)


class _Life:
    """What the lines other than steps tell: who wrote the file, and how the leg ended."""

    def __init__(self, source: str, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._starts = 0
        self._ours = False
        self._steps: object = None
        self.environment: Mapping[str, object] = {}
        self.start: Mapping[str, object] = {}
        self.finished = False

    def take(self, kind: object, record: Record, line: int) -> None:
        if kind == "start":
            self._begin(record, line)
        elif kind == "error":
            self._ours = True
            what = f"{plain(record.get('type'), 40)}: {plain(record.get('message'), 120)}"
            self._notes.add(f"the leg recorded an error, {what}")
        elif kind == "end":
            self._ours = True
            self.finished, self._steps = True, record.get("steps")

    def _begin(self, record: Record, line: int) -> None:
        version = record.get("format")
        if version != VERSION:
            raise refusal(self._source, f"says {plain(version, 40)}; this version of parity reads {VERSION}")
        self._starts += 1
        if self._starts > 1:
            self._notes.at("the leg was started again", line)
        self.finished = False
        environment = _shallow(record.get("environment"), _DEPTH)
        self.environment = environment if isinstance(environment, dict) else {}
        about = {key: value for key, value in record.items() if key not in ("kind", "format", "environment")}
        self.start = {key: _shallow(value, _DEPTH) for key, value in about.items()}

    def close(self, count: int) -> None:
        if not self._starts and not self._ours and not count:
            raise refusal(self._source, f"is not a recorder's file: no line says {VERSION}")
        if not self._starts:
            self._notes.add("there is no start line: the leg and its environment are not named")
        if not count:
            self._notes.add("no step was recorded: the leg ended before its first")
        elif self.finished and self._starts <= 1 and self._steps not in (None, count):
            self._notes.add(f"the end line says {plain(self._steps, 20)} steps, the file has {count}")


def _renamed(metrics: Mapping[str, str], given: Mapping[str, tuple[str, ...]], source: str) -> dict[str, str]:
    """Metrics by the names that the user wants them under."""
    renamed = dict(metrics)
    for metric, several in given.items():
        key = next((key for key in several if key in metrics), None)
        if key is None:
            raise _nowhere(source, metric, several, metrics)
        if key != metric:
            renamed.pop(key, None)
        renamed[metric] = key
    return renamed


def _nowhere(source: str, metric: str, several: tuple[str, ...], known: Mapping[str, str]) -> UsageError:
    like = [found for key in several for found in lookalikes(key, known)]
    hint = f", did you mean {plain(like[0], 40)}?" if like else ";"
    asked = " or ".join(plain(key, 40) for key in several)
    return refusal(source, f"keys.{plain(metric, 40)}: no step has {asked}{hint} the fields are: {listed(known)}")


def _shallow(value: object, depth: int) -> object:
    """`value` with what nests deeper than `depth` left out."""
    if isinstance(value, dict):
        return {key: _shallow(inner, depth - 1) for key, inner in value.items()} if depth else "…"
    if isinstance(value, (list, tuple)):
        return [_shallow(inner, depth - 1) for inner in value] if depth else "…"
    return value


FORMAT = Recorder()
