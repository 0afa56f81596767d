"""What a leg's ranks left in its folder: how far each came, where it hangs, and whether it said that it ended."""

from pathlib import Path

from parity.curves.numbers import as_step
from parity.launch.cause import Cause, oom_kills
from parity.launch.failure import Symptom
from parity.launch.files import json_lines, tail
from parity.launch.stacks import Place, describe, last_place

__all__ = ["ended", "failed", "last_steps", "late", "places"]

LAST = 1 << 12  # bytes that hold a record's last line, if that says that the rank ended
STACKS = 1 << 16  # bytes of a log that hold the stacks of a rank with some hundred threads


def last_steps(directory: Path, ranks: int) -> dict[int, int]:
    """By rank, the last step that it recorded."""
    steps = {}
    for rank in range(ranks):
        found = [as_step(line.get("step")) for line in json_lines(tail(directory / f"rank-{rank}.jsonl"))]
        known = [step for step in found if step is not None]
        if known:
            steps[rank] = known[-1]
    return steps


def ended(directory: Path, ranks: int) -> bool:
    """Whether every rank recorded that it ended, which it does after its last step."""
    for rank in range(ranks):
        lines = list(json_lines(tail(directory / f"rank-{rank}.jsonl", LAST)))
        if not lines or lines[-1].get("kind") != "end":
            return False
    return True


def places(directory: Path, ranks: int) -> dict[int, Place]:
    """By rank, where its log says that it was when it was last asked."""
    found = ((rank, last_place(tail(directory / f"rank-{rank}.log", STACKS))) for rank in range(ranks))
    return {rank: place for rank, place in found if place is not None}


def late(directory: Path, ranks: int, why: str, recorded_end: bool) -> tuple[str, Cause]:
    """What is to be said of a leg that was ended for its time.

    Args:
        directory: the leg's.
        ranks: its world size.
        why: it was ended.
        recorded_end: every rank had recorded that it ended.

    Returns:
        One line, and the cause.
    """
    where, steps = places(directory, ranks), last_steps(directory, ranks)
    told = describe(where, steps) if where else _last(steps)
    cause: Cause = "timed out"
    if recorded_end:
        cause = "hung at teardown"
    elif any(place.collective for place in where.values()):
        cause = "hung in a collective"
    words = [why, told] if cause == "timed out" else [f"{cause}: {why}", told]
    return "; ".join(filter(None, words)), cause


def failed(directory: Path, ranks: int, first: Symptom, killed_before: int | None) -> tuple[str, Cause]:
    """What is to be said of a leg that failed.

    Args:
        directory: the leg's.
        ranks: its world size.
        first: what failed first.
        killed_before: `oom_kills` when the leg started.

    Returns:
        One line, and the cause.
    """
    if first.killed and not first.echo:
        now = oom_kills()
        if now is None or killed_before is None:
            return f"{first.error}; out of memory?", "crashed"
        if now > killed_before:
            return f"{first.error}: the kernel had no memory left", "out of memory"
    told = _last(last_steps(directory, ranks)) if first.cause == "hung in a collective" else ""
    return "; ".join(filter(None, (first.error, told))), first.cause


def _last(steps: dict[int, int]) -> str:
    return "last step of " + ", ".join(f"rank {rank}: {step}" for rank, step in steps.items()) if steps else ""
