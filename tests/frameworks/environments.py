"""The virtual environment of each framework, and what is run in it."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from parity.result import ComparisonResult, OutcomeResult, Result, read_result

__all__ = ["FRAMEWORKS", "RECIPES", "ROOT", "Framework", "Ran", "venv_of"]

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "parity" / "recipes"
FRAMEWORKS = sorted(path.parent.name for path in RECIPES.glob("*/requirements.txt"))
"""Frameworks that have recipes, by folder."""

# A whole recipe takes three minutes on two cores that nobody else uses.
_LIMIT = 1200


def venv_of(name: str) -> Path:
    """Where a framework is installed; `# venv: other` as the first line of its requirements shares other's."""
    first = (RECIPES / name / "requirements.txt").read_text().split("\n", 1)[0]
    shared = re.fullmatch(r"# venv: ([a-z0-9_-]+)", first)
    return ROOT / ".venv-frameworks" / (shared[1] if shared else name)


@dataclass(frozen=True)
class Ran:
    """What a run left.

    Attributes:
        exit_code: that of the command.
        text: what it printed.
        out: the run directory.
        result: what `result.json` says.
    """

    exit_code: int
    text: str
    out: Path
    result: Result

    def comparison(self, candidate: str | None = None) -> ComparisonResult:
        """The comparison of this candidate; without one, the first."""
        return next(one for one in self.result.comparisons if candidate in (None, one.candidate))

    def outcome(self, check: str, candidate: str | None = None) -> OutcomeResult:
        """What a check says in that comparison."""
        return next(one for one in self.comparison(candidate).outcomes if one.check == check)

    def statuses(self, candidate: str | None = None) -> dict[str, str]:
        """Every check's status in that comparison."""
        return {one.check: one.status for one in self.comparison(candidate).outcomes}


@dataclass(frozen=True)
class Framework:
    """A framework as it is installed.

    Attributes:
        name: its folder of recipes.
        venv: its virtual environment.
    """

    name: str
    venv: Path

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        return self.venv / "bin" / "python"

    def command(self, *words: object, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run a program with the framework's environment first on PATH, as after `activate`."""
        path = f"{self.venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [*map(str, words)],
            cwd=cwd,
            env={**os.environ, "PATH": path, "VIRTUAL_ENV": str(self.venv), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_LIMIT,
            check=False,
        )

    def parity(self, *words: object, cwd: Path, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run `parity`."""
        return self.command(self.python, "-m", "parity", *words, cwd=cwd, **env)

    def run(self, suite: object, *words: object, out: Path, **env: str) -> Ran:
        """`parity run` of a recipe's name or an absolute path, in the folder that the run directory is made in."""
        out.parent.mkdir(parents=True, exist_ok=True)
        done = self.parity("run", suite, "--out", out, *words, cwd=out.parent, **env)
        assert (out / "result.json").exists(), done.stdout
        return Ran(done.returncode, done.stdout, out, read_result(out / "result.json"))
