"""The right half of the data's way: legs on disk to a result. Runs anywhere, without torch."""

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parity.allowed import choose_profile
from parity.checks.comparison import Comparison, LogEvidence
from parity.checks.comparison import Leg as JudgedLeg
from parity.checks.cut import up_to_where_it_came
from parity.checks.outcome import Verdict
from parity.checks.verdict import merge
from parity.checks.words import age
from parity.compare import compare
from parity.curves import Limits, read
from parity.curves.curve import LegCurves
from parity.display.curves import curves as drawn
from parity.display.curves import points_for
from parity.display.legs import with_display
from parity.errors import UsageError
from parity.judged import Judged
from parity.plain import plain
from parity.records import LINE_LIMIT, SIZE_LIMIT, read_records
from parity.result import ComparisonResult, LegResult, LegStatus, Result
from parity.rundir import RunDirectory, Snapshot, log_lines
from parity.suite import Compare, Leg, Source, Suite, digest
from parity.suite.values import PERTURB

__all__ = ["curves_of", "is_whole", "judge", "judge_run", "read_legs"]

_STOPPED = "The candidate was ended early, and what there is of it is not wrong. "


# Causes that a leg's status does not tell already.
_TOLD = ("out of memory", "device busy", "hung in a collective", "hung at teardown")


@dataclass(frozen=True)
class _Found:
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


def judge_run(directory: RunDirectory, change: Callable[[Comparison], Comparison] = lambda one: one) -> Result:
    """The result of `judge`."""
    return judge(directory, change).result


def judge(directory: RunDirectory, change: Callable[[Comparison], Comparison] = lambda one: one) -> Judged:
    """Judge every comparison of a run directory from what its legs left.

    Args:
        directory: the run.
        change: applied to each comparison before it is judged.

    Raises:
        UsageError: this is no run directory.
    """
    snapshot = directory.read_snapshot()
    suite = snapshot.suite
    legs = _with_savings(_all_legs(directory, snapshot), suite)
    curves = {name: leg.judged for name, leg in legs.items() if leg.judged is not None}
    judged: list[Comparison] = []

    def listed(comparison: Comparison) -> Comparison:
        judged.append(change(comparison))
        return judged[-1]

    comparisons = [_judge(suite, snapshot.device, item, legs, listed) for item in suite.compare]
    involved = {name for item in suite.compare for name in item.legs()}
    # A leg that no comparison names still must not fail unseen.
    unseen = [Verdict.ERROR for name, leg in legs.items() if name not in involved and leg.state == "broken"]
    verdict = merge([*(Verdict(comparison.verdict) for comparison in comparisons), *unseen])
    result = Result(
        suite=suite.name,
        run_id=snapshot.run_id,
        steps=suite.steps,
        verdict=verdict.value,
        summary=_summary(verdict, comparisons, legs),
        reproduce=snapshot.reproduce,
        notes=[note for leg in legs.values() for note in _notes(leg, snapshot)],
        legs=[with_display(directory, leg.result, leg.judged) for leg in legs.values()],
        comparisons=comparisons,
        curves=drawn(curves.values()),
    )
    return Judged(result, curves, tuple(judged))


def read_legs(directory: RunDirectory) -> dict[str, JudgedLeg]:
    """The legs of a run directory that ran to their end, as checks are given them.

    Raises:
        UsageError: this is no run directory.
    """
    found = _all_legs(directory, directory.read_snapshot())
    return {name: leg.judged for name, leg in found.items() if leg.judged is not None and leg.state == "whole"}


def _all_legs(directory: RunDirectory, snapshot: Snapshot) -> dict[str, _Found]:
    """Every leg of the suite as it was found, held to what a perturbed leg has to be."""
    perturbed = {name for item in snapshot.suite.compare for name in item.perturbed}
    return {name: _held_to_role(_find(directory, snapshot, name), name in perturbed) for name in snapshot.suite.legs}


def _find(directory: RunDirectory, snapshot: Snapshot, name: str) -> _Found:
    leg = directory.read_leg(name)
    if leg is None:
        return _Found(LegResult(name=name, status="not run"), None, "absent")
    if leg.digest != digest(snapshot.suite, name, snapshot.device):
        error = (
            "its layout, command, steps, seed, device, environment or source were others when it ran; run it again"
        )
        return _Found(leg.model_copy(update={"status": "not run", "error": error}), None, "absent")
    curves, problem = curves_of(directory, snapshot, leg)
    if curves is None:
        status: LegStatus = "no curve" if leg.status == "finished" else leg.status
        return _Found(leg.model_copy(update={"status": status, "error": leg.error or problem}), None, "broken")
    records, odd = read_records(directory.leg(name), directory.path)
    foreign = [r for r in (records.ranks if records else ()) if r.run_id and (r.run_id, r.leg) != (leg.run_id, name)]
    if foreign:
        error = f"the record of rank {foreign[0].rank} is of leg {foreign[0].leg} of run {foreign[0].run_id}"
        return _Found(leg.model_copy(update={"status": "no curve", "error": error}), None, "broken")
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
    return _Found(leg, judged, "whole" if ended else "broken")


def _held_to_role(leg: _Found, perturbed: bool) -> _Found:
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
        return _Found(leg.result, None, "broken")
    return _Found(leg.result.model_copy(update={"error": error}), None, "broken")


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


def _with_savings(legs: dict[str, _Found], suite: Suite) -> dict[str, _Found]:
    """The legs, with what ending some of them early has saved, if they had taken as long as their baseline."""
    saved = dict(legs)
    for item in suite.compare:
        found, whole = legs[item.candidate].result, legs[item.baseline].result.seconds
        if found.status == "stopped" and whole is not None and found.seconds is not None:
            seconds = max(0.0, whole - found.seconds) * (found.ranks or 1)
            result = found.model_copy(update={"saved_device_seconds": round(seconds, 3)})
            saved[item.candidate] = replace(legs[item.candidate], result=result)
    return saved


def _notes(leg: _Found, snapshot: Snapshot) -> list[str]:
    notes = []
    if leg.result.reused is not None:
        notes.append(f"{leg.result.name} did not run: it is from the cache, {age(leg.result.reused.age)} old")
    elif leg.result.run_id not in (None, snapshot.run_id, *snapshot.merged):
        notes.append(f"{leg.result.name} is from the earlier run {leg.result.run_id}")
    if leg.result.status == "stopped":
        saved = leg.result.saved_device_seconds
        how_much = "" if saved is None else f": about {saved:.0f} device-seconds saved, by its baseline's time"
        notes.append(f"{leg.result.name} was ended early, as it was wrong at its first step{how_much}")
    elif leg.state == "whole" and leg.result.status != "finished":
        how = leg.result.error or f"exit code {leg.result.exit_code}"
        notes.append(
            f"{leg.result.name} wrote its whole curve and then {leg.result.status}: {how}; it is judged by its curve"
        )
    return notes


def _judge(
    suite: Suite, device: str, item: Compare, legs: Mapping[str, _Found], change: Callable[[Comparison], Comparison]
) -> ComparisonResult:
    named = [legs[name] for name in item.legs()]
    judged = [leg.judged for leg in named if leg.judged is not None]
    asked = item.profile if item.profile not in (None, "auto") else suite.profile
    environments = [leg.curves.environment for leg in judged]
    profile, reason = choose_profile(asked, environments, device, (suite.bounds, item.bounds))
    k = item.k if item.k is not None else suite.k

    def there(names: Iterable[str]) -> tuple[JudgedLeg, ...]:
        return tuple(leg for name in names if (leg := legs[name].judged) is not None)

    baseline, candidate = legs[item.baseline].judged, legs[item.candidate].judged
    result = ComparisonResult(
        baseline=item.baseline,
        candidate=item.candidate,
        controls=list(item.control),
        repeats=list(item.repeat),
        perturbed=list(item.perturbed),
        reference=item.reference,
        profile=profile.name,
        profile_reason=reason,
        k=k,
        verdict="pass",
        summary="",
    )
    if baseline is not None and candidate is not None:
        comparison = Comparison(
            baseline=baseline,
            candidate=candidate,
            controls=there(item.control),
            repeats=there(item.repeat),
            perturbed=there(item.perturbed),
            reference=next(iter(there([item.reference] if item.reference else [])), None),
            profile=profile,
            expected_steps=_expected(suite, judged),
            required=frozenset(item.require if item.require is not None else suite.require),
            k=k,
            layout_unproven=(item.layout or suite.layout) == "unproven",
        )
        stopped = legs[item.candidate].result.status == "stopped"
        if stopped:
            comparison = up_to_where_it_came(comparison)
        result = compare(change(comparison), reason, points_for(2 * len(suite.compare)))
        if stopped and result.verdict == "pass":  # whoever stopped it: so few steps prove nothing
            result = result.model_copy(update={"verdict": "inconclusive", "summary": _STOPPED + result.summary})
    broken = [leg.told for leg in named if leg.state == "broken"]
    absent = [leg.told for leg in named if leg.state == "absent"]
    if not broken and not absent:
        return result
    verdict = merge([Verdict.ERROR if broken else Verdict.INCONCLUSIVE, Verdict(result.verdict)])
    rest = f" Of what there is: {result.summary}" if result.summary else ""
    return result.model_copy(
        update={"verdict": verdict.value, "summary": f"{'; '.join(broken + absent).rstrip('.')}.{rest}"}
    )


def _expected(suite: Suite, judged: list[JudgedLeg]) -> NDArray[np.int64]:
    """The steps that every leg must have, counted from where the baseline counts: 0, or 1."""
    loss = next((curve for leg in judged if (curve := leg.curve("loss"))), None)
    first = 1 if loss is not None and loss.steps.size and loss.steps[0] == 1 else 0
    return np.arange(first, first + suite.steps, dtype=np.int64)


def _summary(verdict: Verdict, comparisons: list[ComparisonResult], legs: Mapping[str, _Found]) -> str:
    deciding = [comparison for comparison in comparisons if comparison.verdict == verdict.value]
    if not deciding:
        return "; ".join(leg.told for leg in legs.values() if leg.state == "broken")
    more = f" And {len(deciding) - 1} more." if len(deciding) > 1 else ""
    return deciding[0].summary + more
