"""What several jobs left, each of which ran some of the legs, put together as if one job had run all."""

import os
from pathlib import Path

from entrypoint.launched import Launched, read
from entrypoint.rejudge import NoResultError, merge_runs
from parity.plain import plain
from parity.untrusted import write_whole

__all__ = ["put_together"]

_JUDGED = (0, 1, 3)  # exit codes of a run that came to a verdict, here of some legs alone


def put_together(out: Path) -> None:
    """Make `launch.json` and `run` of those in the folders below, if `out` has no `launch.json` of its own.

    Where something is odd, `launch.json` says so, and nothing is green then.

    Args:
        out: the folder. Untrusted.
    """
    if os.path.lexists(out / "launch.json") or not out.is_dir():
        return
    parts = [path for path in sorted(out.iterdir()) if path.is_dir() and not path.is_symlink()]
    parts = [path for path in parts if os.path.lexists(path / "launch.json")]
    if not parts:
        return
    problems: list[str] = []
    launched: list[Launched] = []
    for part in parts:
        try:
            launched.append(read(part))
        except NoResultError as error:
            problems.append(str(error))
    if not problems:
        try:
            merge_runs([part / "run" for part in parts], out / "run")
        except NoResultError as error:
            problems = [f"the jobs' runs cannot be put together: {error}"]
    write_whole(out / "launch.json", _one(launched, problems).model_dump_json(indent=1) + "\n", within=out)


def _one(launched: list[Launched], problems: list[str]) -> Launched:
    """How the legs were run, as a whole: what is worst of any job is so of all."""
    for name, what in (("tested_sha", "commits"), ("run_id", "workflow runs")):
        if len(found := {getattr(one, name) for one in launched}) > 1:
            problems = [*problems, f"the jobs are of several {what}: {plain(', '.join(sorted(map(str, found))))}"]
    problems += [one.error for one in launched if one.error]
    first = launched[0] if launched else Launched()
    odd = next((one for one in launched if one.how != "finished" or one.exit_code not in _JUDGED), None)
    return first.model_copy(
        update={
            "isolation": _least([one.isolation for one in launched]),
            "ended": max((one.ended for one in launched), default=""),
            "how": "not started" if not launched else "finished" if odd is None else odd.how,
            # Each run lacks the other jobs' legs; the verdict is that of all together.
            "exit_code": 0 if odd is None else odd.exit_code,
            "error": " ".join(dict.fromkeys(problems)) or None,
            "preflight": list({(one.level, one.text): one for part in launched for one in part.preflight}.values()),
        }
    )


def _least(isolations: list[str | None]) -> str | None:
    """Of several, how little was isolated; None where of one it is not known."""
    if None in isolations or not isolations:
        return None
    return "process" if "process" in isolations else "docker"
