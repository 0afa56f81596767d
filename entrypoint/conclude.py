"""One result of what the legs left and of how they were run. Nothing that is odd is green."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from entrypoint.launched import Launched, read
from entrypoint.rejudge import NoResultError, rejudge
from parity.checks.outcome import Verdict
from parity.checks.verdict import merge
from parity.result import ComparisonResult, Result

__all__ = ["conclude", "divergent_step", "telling", "worst_step"]

# Exit codes of `parity run`; any other is that of something which failed before or after it.
_SAID: Final[Mapping[int | None, Verdict]] = {0: Verdict.PASS, 1: Verdict.FAIL, 3: Verdict.INCONCLUSIVE}


def conclude(out: Path, suite: str, shas: Sequence[str], notes: list[str]) -> Result:
    """The result of what `launch` left in a folder.

    Args:
        out: the folder. Untrusted.
        suite: as the workflow names it, for a result without one of its own.
        shas: the commits that this workflow run may have tested, the one that it is about first; none if it does
            not know.
        notes: what the report is to say besides.
    """
    try:
        launched = read(out)
        problems = launched.problems()
    except NoResultError as error:
        launched, problems = Launched(), [str(error)]
    if launched.tested_sha and shas and launched.tested_sha not in shas:
        other = f"The legs ran on commit {launched.tested_sha}, and this workflow run is about {', '.join(shas)}"
        problems.append(f"{other}: check that one out, or give the input sha.")
    try:
        result = rejudge(out / "run")
    except NoResultError as error:
        # Where the legs never began, that they left nothing is no news.
        result, problems = _none(suite, problems or [str(error)]), []
    said = " ".join(problems) or _ended(launched)
    worst = Verdict.ERROR if problems else _SAID.get(launched.exit_code, Verdict.ERROR)
    verdict = merge([Verdict(result.verdict), worst])
    if launched.tested_sha in shas[1:]:
        notes = [*notes, f"What was checked out is {launched.tested_sha}, its merge into the base branch."]
    changed: dict[str, object] = {"notes": [*notes, *launched.notes(), *result.notes]}
    if verdict.value != result.verdict:
        summary = f"{said} What is there says {result.verdict}: {result.summary}"
        changed |= {"verdict": verdict.value, "summary": summary}
    elif problems:
        changed["summary"] = f"{said} {result.summary}"
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", launched.ended):
        changed["created"] = launched.ended  # judged again, it is the same result
    return result.model_copy(update=changed)


def _ended(launched: Launched) -> str:
    code = "" if launched.exit_code is None else f" with exit code {launched.exit_code}"
    return f"The run as a whole {launched.how}{code}."


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
