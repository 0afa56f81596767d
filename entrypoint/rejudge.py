"""The verdict, anew, from a run directory that the code under test could write to.

Judging runs in a process of its own: it is given no token, so much memory and so much time. Whatever a hostile run
directory does to it, there comes a result, or one line that says why not.
"""

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from parity.errors import UsageError
from parity.judge import judge_run
from parity.plain import plain
from parity.result import Result
from parity.rundir import RunDirectory

__all__ = ["NoResultError", "rejudge"]

# Three curves of 100,000 steps take two seconds and 100 MiB (`make bench`); a pattern of a suite's `evidence` can
# take for ever.
_SECONDS = 600
_MEMORY = 8 << 30
# A run leaves some ten files a leg, and as many as the tested framework leaves beside them.
_MOST_FILES = 200_000
_MOST_OUTPUT = 64 << 20
_REFUSED = 2


class NoResultError(Exception):
    """There is nothing to judge, or it can't be judged: one line."""


def rejudge(run: Path, seconds: float = _SECONDS) -> Result:
    """Judge a run directory.

    Args:
        run: the directory.
        seconds: that it may take.

    Raises:
        NoResultError: with the reason.
    """
    command = [sys.executable, "-P", "-m", "entrypoint.rejudge", os.path.abspath(run)]
    try:
        done = subprocess.run(
            command,
            check=False,
            env=_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise NoResultError(f"judging the run took longer than {seconds:g} s") from None
    said = plain(" ".join(done.stderr.decode(errors="replace").splitlines()[-5:]), 500)
    if done.returncode == _REFUSED:
        raise NoResultError(said or "the run can't be judged")
    try:
        if done.returncode == 0:
            return Result.model_validate_json(done.stdout)
    except ValidationError:
        said = "what it printed is no result"
    raise NoResultError(f"judging the run ended with exit code {done.returncode}{f': {said}' if said else ''}")


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


def _main(run: str) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        _survey(run)
        text = judge_run(RunDirectory(Path(run))).dumps()
        if len(text) > _MOST_OUTPUT:
            raise UsageError(f"{run}: the result is larger than {_MOST_OUTPUT} bytes")
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    except UsageError as error:
        told = "; ".join(error.lines)
    except MemoryError:
        told = f"{run}: to judge it takes more than {_MEMORY >> 30} GiB of memory"
    except Exception as error:
        told = f"{run}: parity itself failed to judge it: {type(error).__name__}: {error}"
    sys.stderr.write(plain(told, 500) + "\n")
    return _REFUSED


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
