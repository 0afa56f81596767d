"""One result of what the legs left and of how they were run. Nothing that is odd is green."""

import math
from pathlib import Path
from typing import Final

from entrypoint.launched import Launched, read
from entrypoint.rejudge import NoResultError, rejudge
from parity.checks.outcome import Verdict
from parity.checks.verdict import merge
from parity.result import ComparisonResult, Result

__all__ = ["conclude", "divergent_step", "telling", "worst_step"]

# Exit codes of `parity run`; any other is that of something which failed before or after it.
_SAID: Final = {0: Verdict.PASS, 1: Verdict.FAIL, 3: Verdict.INCONCLUSIVE}


def conclude(out: Path, suite: str, sha: str, run: tuple[int, int], notes: list[str]) -> Result:
    """The result of what `launch` left in a folder.

    Args:
        out: the folder. Untrusted.
        suite: as the workflow names it, for a result without one of its own.
        sha: the commit that the workflow says was tested; empty if it does not say.
        run: id and attempt of this workflow run.
        notes: what the report is to say besides.
    """
    problems: list[str] = []
    try:
        launched = read(out)
    except NoResultError as error:
        launched = Launched()
        problems.append(str(error))
    if launched.sha and sha and launched.sha != sha:
        problems.append(f"The legs ran on commit {launched.sha}, not on {sha}.")
    if launched.run_id is not None and (launched.run_id, launched.run_attempt or run[1]) != run:
        problems.append(f"The legs are those of workflow run {launched.run_id}, not of this one.")
    problems += [f"{found.name}: {found.text}" for found in launched.findings if found.level == "error"]
    try:
        result = rejudge(out / "run")
    except NoResultError as error:
        # Where the legs never began, that their folder is empty is no news.
        result = _none(suite, problems or [str(error)])
        problems = []
    verdicts, said = [Verdict(result.verdict)], ""
    if not problems and launched.exit_code is not None:
        verdicts.append(_SAID.get(launched.exit_code, Verdict.ERROR))
    if problems or launched.exit_code is None:
        verdicts.append(Verdict.ERROR)
    verdict = merge(verdicts)
    if problems:
        said = " ".join(problems)
    elif verdict.value != result.verdict:
        ended = f"with exit code {launched.exit_code}" if launched.exit_code is not None else "before its end"
        said = f"The run itself ended {ended}."
    summary = f"{said} What it left says {result.verdict}: {result.summary}" if said else result.summary
    return result.model_copy(
        update={"verdict": verdict.value, "summary": summary, "notes": [*notes, *launched.notes(), *result.notes]}
    )


def _none(suite: str, problems: list[str]) -> Result:
    return Result(suite=suite, verdict="error", summary=" ".join(problems), reproduce=f"parity run {suite}")


def telling(result: Result) -> ComparisonResult | None:
    """The comparison that makes the verdict what it is, or the first."""
    same = (one for one in result.comparisons if one.verdict == result.verdict)
    return next(same, next(iter(result.comparisons), None))


def worst_step(result: Result) -> int | None:
    """The step of the largest deviation in units of what was allowed there, in the telling comparison."""
    comparison = telling(result)
    gaps = [gap for one in comparison.outcomes for gap in one.gaps] if comparison else []
    placed = [(gap.times_allowed, gap.worst_step) for gap in gaps if gap.worst_step is not None]
    known = [(times, step) for times, step in placed if times is not None and not math.isnan(times)]
    return max(known or placed, key=lambda pair: pair[0] or 0.0, default=(None, None))[1]


def divergent_step(result: Result) -> int | None:
    """The first step of any metric beyond what was allowed, in the telling comparison."""
    comparison = telling(result)
    steps = [one.first_divergent_step for one in comparison.metrics] if comparison else []
    return min((step for step in steps if step is not None), default=None)
