"""The verdict, anew, and its report, from run directories that the code under test could write to.

Merging, judging and rendering run in processes of their own: each is given no token, so much memory and so much time.
Whatever a hostile run directory does to it, there comes a result, or one line that says why not.
"""

import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from parity.errors import UsageError
from parity.judge import judge_run
from parity.merging import merge
from parity.plain import plain
from parity.report.markdown import render_markdown
from parity.report.own import TemplateError, render_own_template
from parity.result import Result
from parity.rundir import RunDirectory

__all__ = ["NoResultError", "merge_runs", "rejudge", "render", "render_own"]

# Three curves of 100,000 steps take two seconds and 100 MiB (`make bench`); a pattern of a suite's `evidence` can
# take for ever.
_SECONDS = 600
_MEMORY = 8 << 30
# A run leaves some ten files a leg, and as many as the tested framework leaves beside them.
_MOST_FILES = 200_000
_MOST_OUTPUT = 64 << 20
# The longest report of what a suite can ask for in earnest takes a second, and has some MiB.
_RENDERING = 120
_MOST_REPORT = 32 << 20
_MERGE = "--merge"
# For copies of some GiB from one slow disk to itself.
_MERGING = 900
_OWN = "--own-template"
_OWN_SECONDS = 20
_REFUSED = 2


class NoResultError(Exception):
    """There is nothing to judge, or it can't be judged: one line."""


def merge_runs(runs: Sequence[Path], target: Path, seconds: float = _MERGING) -> None:
    """Put run directories, each with some legs of one suite, together into a new one.

    Args:
        runs: the directories.
        target: the new one.
        seconds: that it may take.

    Raises:
        NoResultError: with the reason.
    """
    _apart("putting runs together", [_MERGE, *map(os.path.abspath, (*runs, target))], b"", seconds)


def rejudge(run: Path, seconds: float = _SECONDS) -> Result:
    """Judge a run directory.

    Args:
        run: the directory.
        seconds: that it may take.

    Raises:
        NoResultError: with the reason.
    """
    printed = _apart("judging the run", [os.path.abspath(run)], b"", seconds)
    try:
        return Result.model_validate_json(printed)
    except ValidationError:
        raise NoResultError("judging the run: what it printed is no result") from None


def render(result: Result, seconds: float = _RENDERING) -> str:
    """The Markdown report; one without legs and comparisons, which says why, where the whole can't be made."""
    try:
        return _apart("rendering the report", [], result.dumps().encode(), seconds).decode()
    except (NoResultError, UnicodeError) as error:
        notes = [*result.notes[:20], f"This is not the whole report: {error}"]
        return render_markdown(result.model_copy(update={"notes": notes, "legs": [], "comparisons": []}))


def render_own(template: str, result: Result, report: str, seconds: float = _OWN_SECONDS) -> str:
    """The text of the workflow's own template.

    Args:
        template: Jinja2.
        result: that it shows.
        report: the Markdown report of that result.
        seconds: that it may take.

    Raises:
        NoResultError: it is broken, or takes too long, or too much memory.
    """
    given = json.dumps({"template": template, "result": result.dumps(), "report": report})
    try:
        return _apart("rendering comment-template", [_OWN], given.encode(), seconds).decode()
    except UnicodeError:
        raise NoResultError("rendering comment-template: what it printed is no text") from None


def _apart(what: str, arguments: list[str], given: bytes, seconds: float) -> bytes:
    """What this module's program prints, in a process of its own.

    Raises:
        NoResultError: with the reason.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "entrypoint.rejudge", *arguments],
            check=False,
            env=_environment(),
            cwd="/",
            input=given,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise NoResultError(f"{what} took longer than {seconds:g} s") from None
    said = plain(" ".join(done.stderr.decode(errors="replace").splitlines()[-5:]), 500)
    if done.returncode == 0:
        return done.stdout
    if done.returncode == _REFUSED:
        raise NoResultError(said or f"{what} failed")
    raise NoResultError(f"{what} ended with exit code {done.returncode}{f': {said}' if said else ''}")


def _environment() -> dict[str, str]:
    """Nothing of this job's; where the packages are."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
    packages = str(Path(__file__).resolve().parents[1])
    return {**kept, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}


def _survey(run: str) -> None:
    """Refuse what is no folder, or holds more files than any run.

    Raises:
        UsageError: with the reason.
    """
    try:
        if not stat.S_ISDIR(os.lstat(run).st_mode):
            raise UsageError(f"{run}: is no folder; links are not followed")
    except FileNotFoundError:
        raise UsageError(f"{run}: there is none: the legs left nothing") from None
    left = _MOST_FILES
    for _, folders, files in os.walk(run, onerror=None, followlinks=False):
        left -= len(folders) + len(files)
        if left < 0:
            raise UsageError(f"{run}: holds more than {_MOST_FILES} files")


def _merge(runs: list[str], target: str) -> str:
    for run in runs:
        _survey(run)
    merge([Path(run) for run in runs], Path(target))
    return ""


def _judge(run: str) -> str:
    _survey(run)
    text = judge_run(RunDirectory(Path(run))).dumps()
    if len(text) > _MOST_OUTPUT:
        raise UsageError(f"{run}: the result is larger than {_MOST_OUTPUT} bytes")
    return text


def _render() -> str:
    text = render_markdown(Result.model_validate_json(sys.stdin.buffer.read()))
    if len(text) > _MOST_REPORT:
        raise UsageError(f"the report is larger than {_MOST_REPORT} bytes")
    return text


def _render_own() -> str:
    given = json.loads(sys.stdin.buffer.read())
    try:
        return render_own_template(given["template"], Result.model_validate_json(given["result"]), given["report"])
    except TemplateError as error:
        raise UsageError(str(error)) from None


def _main(arguments: list[str]) -> int:
    """Judge or merge the run directories that are named, or render what is on the standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    what = arguments[0] if arguments else "the report"
    try:
        match arguments:
            case []:
                text = _render()
            case [first] if first == _OWN:
                text = _render_own()
            case [first, *runs, target] if first == _MERGE:
                text = _merge(runs, target)
            case [run, *_]:
                text = _judge(run)
        sys.stdout.buffer.write(text.encode(errors="replace"))
        sys.stdout.flush()
        return 0
    except UsageError as error:
        told = "; ".join(error.lines)
    except MemoryError:
        told = f"{what}: it takes more than {_MEMORY >> 30} GiB of memory"
    except Exception as error:
        told = f"{what}: parity itself failed: {type(error).__name__}: {error}"
    sys.stderr.write(plain(told, 500) + "\n")
    return _REFUSED


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
