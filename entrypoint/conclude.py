"""One result of what the legs left and of how they were run. Nothing that is odd is green."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from entrypoint.launched import Launched, read
from entrypoint.rejudge import NoResultError, rejudge
from parity.checks.outcome import Verdict
from parity.checks.verdict import merge
from parity.result import Result

__all__ = ["conclude", "nothing"]


def conclude(
    out: Path, suite: str, shas: Sequence[str], about: str, *, doubts: Sequence[str] = (), run_id: int = 0
) -> Result:
    """The result of what `launch` left in a folder.

    Args:
        out: the folder. Untrusted.
        suite: as the workflow names it, for a result without one of its own, and for the command that repeats it.
        shas: the commits that this workflow run may have tested, the one that it is about first; none if it does
            not know.
        about: what is said of that commit if it was tested; to follow on `Tested commit` and its sha.
        doubts: why the folder may not be what the legs left.
        run_id: of this workflow run; 0 if it has none.
    """
    problems = list(doubts)
    try:
        launched = read(out)
        problems += launched.problems()
    except NoResultError as error:
        launched = Launched()
        problems.append(str(error))
    problems += _foreign(launched, shas, run_id, known=not problems)
    tested = bool(shas) and launched.tested_sha in shas and not doubts
    try:
        result = rejudge(out / "run")
    except NoResultError as error:
        # Where the legs never began, that they left nothing is no news.
        result, problems = nothing(suite, " ".join(problems or [str(error)])), []
    said = " ".join(problems) or launched.said()
    worst = Verdict.ERROR if problems else launched.worst()
    verdict = merge([Verdict(result.verdict), worst])
    commit = f"Tested commit {shas[0]}{about}" if tested else None
    if shas and not tested:
        commit = f"This workflow run is about commit {shas[0]}, and that one is not known to have been tested."
    if tested and launched.tested_sha in shas[1:]:
        commit = f"{commit} What was checked out is {launched.tested_sha}, its merge into the base branch."
    changed: dict[str, object] = {
        "tested": commit,
        "notes": [*launched.notes(), *result.notes],
        # What the run directory says is the code under test's to choose, and people paste this into a shell.
        "reproduce": _command(suite),
    }
    if verdict.value != result.verdict:
        summary = f"{said} What is there says {result.verdict}: {result.summary}"
        changed |= {"verdict": verdict.value, "summary": summary}
    elif problems:
        changed["summary"] = f"{said} {result.summary}"
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", launched.ended):
        changed["created"] = launched.ended  # judged again, it is the same result
    return result.model_copy(update=changed)


def _foreign(launched: Launched, shas: Sequence[str], run_id: int, *, known: bool) -> list[str]:
    """Why it may be what another run left, or a commit."""
    found = []
    if launched.tested_sha and shas and launched.tested_sha not in shas:
        other = f"The legs ran on commit {launched.tested_sha}, and this workflow run is about {', '.join(shas)}"
        found.append(f"{other}: check that one out, or give the input sha.")
    if known and shas and not launched.tested_sha:
        found.append("Nothing says which commit was run: let actions/checkout check it out, with git on the runner.")
    if launched.run_id and run_id and str(launched.run_id) != str(run_id):
        found.append(f"What is there was left by workflow run {launched.run_id}, and this is {run_id}.")
    return found


def nothing(suite: str, why: str) -> Result:
    """The result of a run of which there is nothing to judge."""
    return Result(suite=suite, verdict="error", summary=why, reproduce=_command(suite))


def _command(suite: str) -> str:
    return f"parity run {shlex.quote(suite)}"
