"""Runs the matrix, and reads from each comparison's result what was found and by how much."""

import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from parity.checks.comparison import Comparison
from parity.errors import UsageError
from parity.judge import judge_run
from parity.launch import Event, LegFinished
from parity.prepare import prepare
from parity.result import ComparisonResult, OutcomeResult, Result
from parity.run import check_whole
from parity.run import run as run_legs
from parity.rundir import RunDirectory
from parity.schedule import Slots
from parity.selftest.cases import Case, clean_suite, fault_suite
from parity.selftest.result import CleanRun, FaultRun, Finding, Selftest
from parity.suite import load

__all__ = ["make_room", "selftest"]

# What a self-test writes; an earlier run of a suite is moved aside to a name with a number.
_OURS = re.compile(r"(faults|seed-\d+)(\.yml|\.\d+)?|selftest\.(json|md)")


def selftest(
    out: Path,
    *,
    cases: Sequence[Case],
    seeds: Sequence[int],
    dtype: Literal["fp32", "bf16"],
    steps: int,
    slots: Slots,
    on_leg: Callable[[str, int, int], None] = lambda *_: None,
) -> Selftest:
    """Run every case, and correct layouts with every seed.

    Args:
        out: gets a suite and a run directory for the faults and for each seed, to look into afterwards.
        cases: the faults.
        seeds: of the correct layouts; the faults run with the first, or 1.
        dtype: of the computation.
        steps: of each leg.
        slots: devices.
        on_leg: called as a leg ends, with the suite's name, the number of legs that ended and of those there are.
    """
    begun = time.monotonic()
    faults: list[FaultRun] = []
    environment: dict[str, str] = {}
    if cases:
        content = fault_suite(cases, steps=steps, seed=seeds[0] if seeds else 1, dtype=dtype)
        directory = _run(out / "faults", content, slots, on_leg)
        result, hidden = judge_run(directory), judge_run(directory, _with_the_fault_in_the_control)
        environment = _environment(result)
        faults = [_fault_run(*each) for each in zip(cases, result.comparisons, hidden.comparisons, strict=True)]
    clean: list[CleanRun] = []
    for seed in seeds:
        result = judge_run(
            _run(out / f"seed-{seed}", clean_suite(steps=steps, seed=seed, dtype=dtype), slots, on_leg)
        )
        environment = environment or _environment(result)
        clean += [_clean_run(seed, comparison) for comparison in result.comparisons]
    return Selftest(
        dtype=dtype,
        steps=steps,
        seeds=list(seeds),
        seconds=round(time.monotonic() - begun, 1),
        environment=environment,
        faults=faults,
        clean=clean,
    )


def make_room(out: Path) -> None:
    """Make the output folder, or take that of an earlier self-test.

    Raises:
        UsageError: it cannot be made, or holds something else.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        odd = [path.name for path in sorted(out.iterdir()) if not _OURS.fullmatch(path.name)]
    except OSError as error:
        raise UsageError(f"{out}: cannot be made or read: {error.strerror}; give another --out") from None
    if odd:
        raise UsageError(f"{out}: holds {odd[0]}, which is not from a self-test; give another --out")


def _run(out: Path, content: dict[str, Any], slots: Slots, on_leg: Callable[[str, int, int], None]) -> RunDirectory:
    path = out.with_suffix(".yml")
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")  # JSON is YAML
    suite = load(path)
    plan, _ = prepare(suite, folder=path.parent, out=out, slots=slots, reproduce=f"parity run {path}")
    ended = 0

    def take(event: Event) -> None:
        nonlocal ended
        if isinstance(event, LegFinished):
            ended += 1
            on_leg(out.name, ended, len(plan.only))

    check_whole(run_legs(plan, take))
    return plan.directory


def _with_the_fault_in_the_control(comparison: Comparison) -> Comparison:
    """The candidate once more, as a control: what a layout trusted to be right would show, had it the same fault."""
    return replace(comparison, controls=(replace(comparison.candidate, name=f"{comparison.candidate.name}.again"),))


def _fault_run(case: Case, result: ComparisonResult, hidden: ComparisonResult) -> FaultRun:
    fault = case.fault
    first = next((one for one in result.outcomes if one.check == next(iter(result.deciding), None)), None)
    return FaultRun(
        fault=fault.name,
        mutation=fault.mutation,
        bug=fault.bug,
        what=fault.what,
        layout=case.name.removeprefix(f"{fault.name}."),
        both=fault.both,
        expected=fault.expected,
        verdict=result.verdict,
        finding=None if first is None else _finding(first),
        also=result.deciding[1:],
        with_control=None if fault.both else hidden.verdict,
        hints=result.hints,
        summary=result.summary,
    )


def _clean_run(seed: int, result: ComparisonResult) -> CleanRun:
    model, _, layout = result.candidate.partition(".")
    nearest = max(
        (one for one in result.outcomes if one.gaps),
        key=lambda one: max(gap.times_allowed or 0.0 for gap in one.gaps),
        default=None,
    )
    return CleanRun(
        model=model,
        layout=layout,
        seed=seed,
        verdict=result.verdict,
        worst=None if nearest is None else _finding(nearest),
        summary=result.summary,
    )


def _finding(outcome: OutcomeResult) -> Finding:
    gap = max(outcome.gaps, key=lambda gap: gap.times_allowed or 0.0, default=None)
    if gap is None:
        return Finding(check=outcome.check)
    step = gap.worst_step if gap.first_over is None else gap.first_over
    worst = next((one for one in outcome.parameters if gap.metric in ("gradients", "updates")), None)
    what = gap.metric if worst is None else worst.name
    return Finding(check=outcome.check, what=what, step=step, times_allowed=gap.times_allowed)


def _environment(result: Result) -> dict[str, str]:
    """What of the machine the numbers may depend on."""
    first: Iterable[tuple[str, Any]] = result.legs[0].environment.items() if result.legs else ()
    return {key: str(value) for key, value in first if key in ("torch", "python", "device", "cpu", "platform")}
