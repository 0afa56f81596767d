"""What each leg of a run directory left, as the report and the checks are given it."""

import contextlib
import re
from dataclasses import dataclass, replace
from typing import Literal

from parity.checks.comparison import Leg as JudgedLeg
from parity.checks.comparison import LogEvidence
from parity.curves import Limits, read
from parity.curves.curve import LegCurves
from parity.errors import UsageError
from parity.plain import plain
from parity.records import LINE_LIMIT, SIZE_LIMIT, read_records
from parity.result import LegResult, LegStatus
from parity.rundir import RunDirectory, Snapshot, log_lines
from parity.suite import Leg, Source, Suite, digest
from parity.suite.values import PERTURB

__all__ = ["FoundLeg", "curves_of", "found_legs", "is_whole", "read_legs"]

# Causes that a leg's status does not tell already.
_TOLD = ("out of memory", "device busy", "hung in a collective", "hung at teardown")


@dataclass(frozen=True)
class FoundLeg:
    """A leg as it was found.

    Attributes:
        result: what the report says of it.
        judged: what checks are given; None if it left no curve of this suite.
        state: `whole` if it computed its curve to the end, however its processes ended then; `broken` if it did not;
            `absent` if it was not run, or under another suite than today's.
    """

    result: LegResult
    judged: JudgedLeg | None
    state: Literal["whole", "broken", "absent"]

    @property
    def told(self) -> str:
        """Name, status and error in one line."""
        result = self.result
        if result.status == "finished" and result.error:
            return f"{result.name} {result.error}"
        more = f" ({result.cause})" if result.cause in _TOLD and result.cause not in (result.error or "") else ""
        return f"{result.name} {result.status}{more}{f': {result.error}' if result.error else ''}"


def found_legs(directory: RunDirectory, snapshot: Snapshot) -> dict[str, FoundLeg]:
    """Every leg of the suite as it was found, held to what a perturbed leg has to be."""
    perturbed = {name for item in snapshot.suite.compare for name in item.perturbed}
    return {name: _held_to_role(_find(directory, snapshot, name), name in perturbed) for name in snapshot.suite.legs}


def read_legs(directory: RunDirectory) -> dict[str, JudgedLeg]:
    """The legs of a run directory that ran to their end, as checks are given them.

    Raises:
        UsageError: this is no run directory.
    """
    found = found_legs(directory, directory.read_snapshot())
    return {name: leg.judged for name, leg in found.items() if leg.judged is not None and leg.state == "whole"}


def _find(directory: RunDirectory, snapshot: Snapshot, name: str) -> FoundLeg:
    try:
        leg = directory.read_leg(name)
    except UsageError as unreadable:  # a leg may do what it likes to its own folder, and harms itself alone
        return FoundLeg(LegResult(name=name, status="not run", error=str(unreadable)), None, "broken")
    if leg is None:
        return FoundLeg(LegResult(name=name, status="not run"), None, "absent")
    if leg.digest != digest(snapshot.suite, name, snapshot.device):
        error = (
            "its layout, command, steps, seed, device, environment or source were others when it ran; run it again"
        )
        return FoundLeg(leg.model_copy(update={"status": "not run", "error": error}), None, "absent")
    curves, problem = curves_of(directory, snapshot, leg)
    if curves is None:
        status: LegStatus = "no curve" if leg.status == "finished" else leg.status
        return FoundLeg(leg.model_copy(update={"status": status, "error": leg.error or problem}), None, "broken")
    records, odd = read_records(directory.leg(name), directory.path)
    foreign = [r for r in (records.ranks if records else ()) if r.run_id and (r.run_id, r.leg) != (leg.run_id, name)]
    if foreign:
        error = f"the record of rank {foreign[0].rank} is of leg {foreign[0].leg} of run {foreign[0].run_id}"
        return FoundLeg(leg.model_copy(update={"status": "no curve", "error": error}), None, "broken")
    if records and not curves.environment:
        # The framework's own log, beside the recorder's files.
        curves = replace(curves, environment=records.environment)
    unseen = sorted({f"not seen: {one}" for rank in (records.ranks if records else ()) for one in rank.unseen})
    leg = leg.model_copy(
        update={
            "format": curves.format,
            "environment": {**leg.environment, **curves.environment},
            "peak_memory": records.peak_memory if records else None,
            "notes": [note.text for note in curves.notes] + odd + unseen,
        }
    )
    config = snapshot.suite.legs[name]
    judged = JudgedLeg(name, curves, config.sizes(), records, _evidence(directory, config, leg))
    # A leg that was interrupted, or never started, ran no curve to its end, whatever a file says.
    # One that was stopped did what it was to do; that steps are missing, checks see, so it cannot pass.
    ended = leg.status in ("finished", "stopped") or (
        leg.status in ("failed", "timed out") and is_whole(snapshot.suite, curves)
    )
    if ended and leg.status == "timed out":
        leg = leg.model_copy(update={"cause": "hung at teardown"})
    return FoundLeg(leg, judged, "whole" if ended else "broken")


def _held_to_role(leg: FoundLeg, perturbed: bool) -> FoundLeg:
    """The leg; broken if its weights were not moved in a perturbed leg, or were in another."""
    if leg.judged is None:
        return leg
    ranks = leg.judged.records.ranks if leg.judged.records else ()
    moved = [rank for rank in ranks if rank.perturbed]
    error = ""
    if perturbed and not moved:
        error = "was not perturbed: its recorder is too old or start() got no model"
    elif perturbed and len(moved) < max(len(ranks), ranks[0].world_size):
        error = f"was not perturbed on all ranks, but on {len(moved)} of {max(len(ranks), ranks[0].world_size)}"
    elif moved and not perturbed:
        error = f"was perturbed, which only a leg named `perturbed:` may be: something set {PERTURB}"
    if not error:
        return leg
    if leg.state == "broken":  # it has an error of its own, which is likely why
        return FoundLeg(leg.result, None, "broken")
    return FoundLeg(leg.result.model_copy(update={"error": error}), None, "broken")


def curves_of(directory: RunDirectory, snapshot: Snapshot, leg: LegResult) -> tuple[LegCurves | None, str]:
    """The leg's curves, or why there are none; also of a leg that still runs, as far as it has come."""
    if leg.source is None:
        return None, "left no metrics"
    source = snapshot.suite.legs[leg.name].source or snapshot.suite.source or Source(file="")
    path = directory.path / leg.source
    try:
        curves = read(
            path,
            format=source.format,
            keys=source.keys or None,
            pattern=source.pattern,
            within=directory.path,
            limits=Limits(size=SIZE_LIMIT, line=LINE_LIMIT),
        )
    except UsageError as error:
        return None, str(error)
    wrote = curves.start.get("run_id"), curves.start.get("leg")
    if wrote[0] is not None and wrote != (leg.run_id, leg.name):
        return None, f"{leg.source} was written by leg {wrote[1]} of run {wrote[0]}"
    if not curves.curves:
        return None, f"{leg.source} holds no step"
    first = curves.base if source.first_step is None else source.first_step
    return curves if first is None else curves.counted_from(first), ""


def _evidence(directory: RunDirectory, leg: Leg, result: LegResult) -> LogEvidence | None:
    """What the leg's logs say, by the patterns that the suite gives; None where it gives none."""
    if leg.evidence is None:
        return None
    wanted = {pattern: re.compile(pattern) for pattern in leg.evidence.must_match}
    forbidden = {pattern: re.compile(pattern) for pattern in leg.evidence.must_not_match}
    found: dict[str, str] = {}
    wrong: dict[str, str] = {}
    for name in result.logs:
        with contextlib.suppress(UsageError):  # a log that is gone or led astray shows nothing
            for line in log_lines(directory.path / name, directory.path):
                for patterns, hits in ((wanted, found), (forbidden, wrong)):
                    for pattern, compiled in patterns.items():
                        if pattern not in hits and compiled.search(line):
                            hits[pattern] = plain(line)
    return LogEvidence(
        tuple(found.items()), tuple(pattern for pattern in wanted if pattern not in found), tuple(wrong.items())
    )


def is_whole(suite: Suite, curves: LegCurves) -> bool:
    """Whether the leg's loss reaches the last step; with a recorder, also whether it said that it ended."""
    loss = curves.curves.get("loss")
    return loss is not None and loss.steps.size == suite.steps and curves.finished is not False
