"""Read what a training leg left: any supported log, as curves.

Everything read here is data from code that is not trusted: JSON only, bounded in size, never executed.
"""

import dataclasses
import difflib
import os

from parity.curves.curve import Conflict, Curve, LegCurves, Note, Resolution
from parity.curves.formats import Format, formats
from parity.curves.keys import Keys
from parity.curves.notes import Notes, refusal
from parity.curves.opening import HEAD, Limits, open_lines
from parity.curves.printed import Printed
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
    "formats",
    "read",
]


def read(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002  the word that users write in a suite
    keys: Keys | None = None,
    within: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
) -> LegCurves:
    """Read the curves that one leg left in one file.

    Args:
        format: the format's name; None: told from the content, with the evidence as the first note.
        keys: which key of a record holds which metric, `{"grad_norm": "grad_norm_own"}`; dots reach into
            nested objects; of several names the first that the file has is taken. `step` is one too.
        within: the folder that the file must lie in without any link on the way, where untrusted code wrote
            that folder. Without it links are followed.
        limits: how large a file may be.

    Raises:
        UsageError: the file can't be read, is empty, isn't text, is too large, is in no known format, or has
            not the keys asked for. One line that names the path.
    """
    source = os.fspath(path)
    asked = None if format is None else _named(format)
    notes = Notes()
    with open_lines(path, notes, limits=limits, within=within) as opened:
        if asked is not None:
            found, shown = asked, tuple[Note, ...]()
        else:
            detected = _detected(opened.head, source)
            if detected is None:
                detected = _detected(_printed_further_on(path, limits, within), source)
            if detected is None:
                first = plain(opened.head.lstrip().split("\n", 1)[0], 60)
                raise refusal(source, f"no known format ({', '.join(formats())}); it begins {first!r}")
            found, evidence = detected
            shown = (Note(plain(f"{found.name}: {evidence}")),)
        curves = found.read(opened, source, keys)
    return dataclasses.replace(curves, notes=(*shown, *notes.all(), *curves.notes))


def _named(name: str) -> Format:
    known = formats()
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f", did you mean {close[0]}?" if close else ""
    raise UsageError(f"format {plain(name, 40)!r} is unknown{hint}; the formats are: {', '.join(known)}")


def _detected(head: str, source: str) -> tuple[Format, str] | None:
    for generic in (False, True):
        asked = [(one, one.matches(head)) for one in formats().values() if one.generic == generic]
        matching = [(one, evidence) for one, evidence in asked if evidence is not None]
        if len(matching) > 1:
            several = "; ".join(f"{one.name} ({evidence})" for one, evidence in matching)
            raise refusal(source, f"could be {several}: say which with format")
        if matching:
            return matching[0]
    return None


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
