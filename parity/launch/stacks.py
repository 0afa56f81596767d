"""Where ranks hang, from the stacks that faulthandler had them write into their logs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

__all__ = ["Place", "describe", "last_place"]

HEADER = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+[^\n]*\(most recent call first\):[^\n]*\n", re.MULTILINE)
FRAME = re.compile(r'^  File "([^"\n]+)", line (\d{1,9}) in ([^\n]+)$', re.MULTILINE)
COLLECTIVES = "/torch/distributed/"  # nearly everything in there that a stack ends in waits for other ranks
# Around every collective; the collective is what it calls, or what calls it.
WRAPPERS = ("wrapper", "func_wrapper", "<lambda>")


@dataclass(frozen=True)
class Place:
    """Where a rank was.

    Attributes:
        what: the collective that it waited in, else function, file and line.
        collective: whether it is the former.
    """

    what: str
    collective: bool


def last_place(log: str) -> Place | None:
    """The place that the last stacks in a log show; None where there are none.

    A process writes one stack for each of its threads; that of the thread which got the signal, the main one, comes
    last.
    """
    _, *parts = HEADER.split(log)
    current = [index for index, kind in enumerate(parts[::2]) if kind.startswith("Current")]
    first = current[-2] + 1 if len(current) > 1 else 0
    threads = [frames for part in parts[1::2][first:] if (frames := FRAME.findall(part.partition("\n\n")[0]))]
    if not threads:
        return None
    for frames in reversed(threads):
        for file, _, function in frames:
            if COLLECTIVES in file and function not in WRAPPERS:
                return Place(function, collective=True)
    file, line, function = threads[-1][0]
    return Place(f"{function} ({file.rpartition('/')[2]}:{line})", collective=False)


def describe(places: Mapping[int, Place], steps: Mapping[int, int]) -> str:
    """Which ranks were where, and after which step: those in a collective first.

    Args:
        places: by rank.
        steps: by rank, the last step that it recorded.
    """

    def key(rank: int) -> tuple[bool, str, int]:
        return not places[rank].collective, places[rank].what, steps.get(rank, -1)

    groups = []
    for (_, what, step), ranks in groupby(sorted(places, key=lambda rank: (key(rank), rank)), key):
        named = list(ranks)
        word = "ranks" if len(named) > 1 else "rank"
        groups.append(f"{word} {_spans(named)} in {what}" + (f" after step {step}" if step >= 0 else ""))
    return ", ".join(groups)


def _spans(ranks: list[int]) -> str:
    """Ascending numbers as `0, 2-5`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return ", ".join("-".join(map(str, span)) for span in spans)
