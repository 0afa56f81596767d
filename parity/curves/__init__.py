"""Read what a training leg left: any supported log, as curves.

Everything read here is data from code that is not trusted: JSON only, bounded in size, never executed.
"""

import dataclasses
import difflib
import functools
import os
import re
from collections.abc import Sequence

from parity.curves.curve import Conflict, Curve, LegCurves, Note, Resolution
from parity.curves.files import Files, find_files
from parity.curves.formats import Format, Stored, formats
from parity.curves.keys import Keys
from parity.curves.notes import Notes, refusal
from parity.curves.opening import HEAD, Limits, open_lines
from parity.curves.pattern import Pattern
from parity.curves.printed import Printed
from parity.curves.reading import NothingError
from parity.curves.unread import unread
from parity.errors import UsageError
from parity.plain import plain

__all__ = [
    "Conflict",
    "Curve",
    "Format",
    "Keys",
    "LegCurves",
    "Limits",
    "Note",
    "Resolution",
    "Stored",
    "formats",
    "read",
]

# What the Trainer saves at its end, and at each checkpoint; of those the last holds what the others do.
_STATE = re.compile(r"(?:checkpoint-(?P<step>\d{1,15})/)?trainer_state\.json")
# What others leave in a run's folder beside checkpoints and evaluations: NeMo Automodel, Lightning, VeOmni.
_LOGS = ("training.jsonl", "metrics.csv", "log_dict.json")


def read(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002  the word that users write in a suite
    keys: Keys | None = None,
    pattern: str | None = None,
    within: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
) -> LegCurves:
    """Read the curves that one leg left in one file, or in one folder: of event files, a
    tracking store, DeepSpeed's CSV monitor, or a framework's output with its one log.

    Args:
        format: the format's name; None: told from the content, with the evidence as the first note.
        keys: which key of a record holds which metric, `{"grad_norm": "grad_norm_own"}`; dots reach into
            nested objects; of several names the first that the file has is taken. `step` is one too.
        pattern: for the format `pattern`, which it implies: a regular expression of RE2 whose groups name the step
            and the metrics, searched in every line.
        within: the folder that the file must lie in without any link on the way, where untrusted code wrote
            that folder. Without it links are followed.
        limits: how large a file may be.

    Raises:
        UsageError: the file can't be read, is empty, isn't text, is too large, is in no known format, or has
            not the keys asked for. One line that names the path.
    """
    source = os.fspath(path)
    asked = None if format is None else _named(format)
    if pattern is not None:
        if asked is not None and asked.name != Pattern.name:
            raise UsageError(f"pattern: only for format: {Pattern.name}, not {asked.name}")
        asked = Pattern(pattern)
    if isinstance(asked, Stored):
        return asked.read(find_files(path, within=within, limits=limits), keys)
    files = None if asked is not None else find_files(path, within=within, limits=limits)
    if files is not None and (log := _log_of(files)):
        return read(os.path.join(source, log), keys=keys, within=path if within is None else within, limits=limits)
    if files is not None and (stored := _stored(files)):
        leg = stored[0].read(files, keys)
        return dataclasses.replace(leg, notes=(_evidence(*stored), *leg.notes))
    further = functools.partial(_printed_further_on, path, limits, within)
    notes = Notes()
    curves: LegCurves | None = None
    with open_lines(path, notes, limits=limits, within=within) as opened:
        detected = None if asked is not None else _detected(opened.head, source) or _detected(further(), source)
        found = asked if detected is None else detected[0]
        if found is None:
            raise refusal(source, unread(opened.head, formats()))
        try:
            curves = found.read(opened, source, keys)
        except NothingError:
            # JSON lines or a table at the beginning may be a configuration, with the records behind it.
            detected = None if detected is None or not found.generic else _detected(further(), source)
            if detected is None or detected[0].generic:
                raise
            found = detected[0]
    if curves is None:
        notes = Notes()
        with open_lines(path, notes, limits=limits, within=within) as opened:
            curves = found.read(opened, source, keys)
    shown = () if detected is None else (_evidence(*detected),)
    base = curves.base if curves.base is not None else getattr(found, "first_step", None)
    return dataclasses.replace(curves, notes=(*shown, *notes.all(), *curves.notes), base=base)


def _evidence(found: Format | Stored, evidence: str) -> Note:
    return Note(plain(f"{found.name}: {evidence}"))


def _named(name: str) -> Format | Stored:
    known = formats()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f", did you mean {close[0]}?" if close else ""
    raise UsageError(f"format {plain(name, 40)!r} is unknown{hint}; the formats are: {', '.join(known)}")


def _log_of(files: Files) -> str:
    """The file that holds all of a log in a framework's output folder; empty where it is no such folder, or holds
    several, or is of a format as a whole."""
    states = {name: int(one["step"] or 1 << 53) for name in files.names if (one := _STATE.fullmatch(name))}
    logs = [name for name in files.names if name in _LOGS]
    if len(logs) + bool(states) != 1:
        return ""
    if any(one.finds(files) for one in formats().values() if isinstance(one, Stored)):
        return ""
    return max(states, key=lambda name: states[name]) if states else logs[0]


def _stored(files: Files) -> tuple[Stored, str] | None:
    """The format of a source that is no text, and what shows it; None where it may be text.

    Raises:
        UsageError: it is a folder of no known format, or of several.
    """
    asked = [(one, one.finds(files)) for one in formats().values() if isinstance(one, Stored)]
    matching = [(one, evidence) for one, evidence in asked if evidence is not None]
    if len(matching) > 1:
        raise _several(matching, files.source)
    if not matching and files.is_folder:
        likely = [*filter(_LOGS.__contains__, files.names), *files.names]
        within = f", such as {plain(likely[0], 60)}" if likely else ""
        kinds = " or ".join(one.name for one, _ in asked)
        raise refusal(files.source, f"is a folder, and not one of {kinds}: name the file in it{within}")
    return matching[0] if matching else None


def _detected(head: str, source: str) -> tuple[Format, str] | None:
    texts = [one for one in formats().values() if not isinstance(one, Stored)]
    for generic in (False, True):
        asked = [(one, one.matches(head)) for one in texts if one.generic == generic]
        matching = [(one, evidence) for one, evidence in asked if evidence is not None]
        if len(matching) > 1:
            raise _several(matching, source)
        if matching:
            return matching[0]
    return None


def _several(matching: Sequence[tuple[Format | Stored, str]], source: str) -> UsageError:
    several = "; ".join(f"{one.name} ({evidence})" for one, evidence in matching)
    return refusal(source, f"could be {several}: say which with format")


def _printed_further_on(
    path: str | os.PathLike[str], limits: Limits | None, within: str | os.PathLike[str] | None
) -> str:
    """Lines that may be records of a printed format, where a file begins with something long that is not."""
    needles = [needle for one in formats().values() if isinstance(one, Printed) for needle in one.needles]
    lines: list[str] = []
    size = 0
    with open_lines(path, Notes(), limits=limits, within=within) as opened:
        for _, line in opened.holding(needles):
            lines.append(line)
            size += len(line) + 1
            if size > HEAD:
                break
    return "\n".join(lines)
