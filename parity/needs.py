"""Whether the interpreter that will run the legs has what the suite says they import."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from parity.errors import PackageError
from parity.suite import Suite

__all__ = ["check_needs", "interpreter"]

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_BETWEEN = re.compile(r"[;&|()]+")
_PYTHON = re.compile(r"python[\d.]*")
# A module is looked for, not imported: that costs milliseconds, and runs nothing of it but a parent package.
_ASK = """
import importlib.util, sys
for name in sys.argv[1:]:
    try:
        found = importlib.util.find_spec(name)
    except Exception:
        found = None
    if found is None:
        print(name)
"""
# Starting Python takes a second on a busy machine; who does not answer in this time is not asked.
_PATIENCE = 60


def check_needs(suite: Suite, only: Sequence[str], cwd: Path, suite_dir: Path, path: str) -> None:
    """Go on only if the legs' interpreter has the modules of the suite's `needs`.

    Legs whose command runs neither `torchrun` nor `python` by its name are not asked: they tell it themselves.

    Args:
        suite: the suite.
        only: the legs to run.
        cwd: where the interpreter is asked.
        suite_dir: the folder that the suite file lies in; its `requirements.txt` is named if there is one.
        path: PATH of the legs.

    Raises:
        PackageError: a module is missing; one line says where and what to do.
    """
    asked: set[tuple[str, str | None]] = set()
    for name in only if suite.needs else ():
        leg = suite.legs[name]
        env = {**os.environ, "PATH": path, **suite.env, **leg.env}
        python = interpreter(suite.command_of(leg), env)
        if python is None or (python, env.get("PYTHONPATH")) in asked:
            continue
        asked.add((python, env.get("PYTHONPATH")))
        missing = _missing(python, suite.needs, env, cwd)
        if missing:
            requirements = suite_dir / "requirements.txt"
            install = f", or {python} -m pip install -r {requirements}" if requirements.exists() else ""
            raise PackageError(
                f"{suite.name} needs {', '.join(missing)}, which {python} does not have: activate an environment that"
                f" does{install}"
            )


def interpreter(command: str | Sequence[str] | None, env: Mapping[str, str]) -> str | None:
    """The Python that a leg's command runs, as far as its words tell; None where they do not."""
    return next(filter(None, (_of_program(program, env) for program in _programs(command))), None)


def _programs(command: str | Sequence[str] | None) -> Iterator[str]:
    """The first word of a list; of a shell line, that of each of its commands."""
    if not isinstance(command, str):
        yield from list(command or ())[:1]
        return
    words = shlex.shlex(command, posix=True, punctuation_chars=True)
    words.whitespace_split, words.commenters = True, ""
    begins = True
    try:
        for word in words:
            if begins and not _ASSIGNMENT.match(word) and not _BETWEEN.fullmatch(word):
                yield word
                begins = False
            begins = begins or bool(_BETWEEN.fullmatch(word))
    except ValueError:  # a quotation mark is left open, which the shell will tell
        return


def _of_program(first: str, env: Mapping[str, str]) -> str | None:
    # A path is the leg's affair: it may be relative to its working folder, or hold a placeholder.
    found = shutil.which(first, path=env.get("PATH")) if first and os.sep not in first else first
    if not found or not os.path.isabs(found):
        return None
    if _PYTHON.fullmatch(os.path.basename(found)):
        return found
    return _of_script(found) if os.path.basename(found) == "torchrun" else None


def _of_script(script: str) -> str | None:
    """The interpreter in a script's first line, if that is a Python."""
    try:
        with open(script, "rb") as file:
            first = file.readline(500).decode(errors="replace")
    except OSError:
        return None
    python = first.removeprefix("#!").strip()
    known = first.startswith("#!") and os.path.isabs(python) and _PYTHON.fullmatch(os.path.basename(python))
    if known and os.access(python, os.X_OK):
        return python
    beside = os.path.join(os.path.dirname(script), "python3")
    return beside if os.access(beside, os.X_OK) else None


def _missing(python: str, modules: Sequence[str], env: Mapping[str, str], cwd: Path) -> list[str]:
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *modules],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [name for name in modules if name in done.stdout.splitlines()] if done.returncode == 0 else []
