"""What a leg's numbers depend on, beyond what the suite says of it."""

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.cache import python
from parity.cache.code import Code, package
from parity.cache.machine import machine
from parity.cache.reasons import NotCacheableError
from parity.needs import interpreter
from parity.placeholders import fill
from parity.rundir import placeholders
from parity.schedule import Slots
from parity.suite import Suite, run_of

__all__ = ["Inputs", "cacheable", "inherited", "key_of"]

FORMAT = "parity.cache/1"

# What a shell, a session or a runner tells of itself; every other variable may be one that a trainer reads.
_SESSION = {
    "_", "PWD", "OLDPWD", "SHLVL", "HOME", "USER", "LOGNAME", "USERNAME", "HOSTNAME", "MAIL", "SHELL", "COLORTERM",
    "COLUMNS", "LINES", "DISPLAY", "LS_COLORS", "PS1", "EDITOR", "VISUAL", "PAGER", "TMPDIR", "TMP", "TEMP", "PATH",
    "NO_COLOR", "FORCE_COLOR", "CI", "STY", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "WINDOWID",
    "PARITY_CACHE",
}  # fmt: skip
_SESSION_PREFIXES = (
    "TERM", "SSH_", "XDG_", "DBUS_", "GPG_", "TMUX", "VSCODE_", "GITHUB_", "RUNNER_", "ACTIONS_", "INPUT_", "MAKE",
    "SLURM_", "PYTEST_", "GIT_",
)  # fmt: skip


def cacheable(suite: Suite) -> list[str]:
    """The legs that serve some comparison and are a candidate in none."""
    candidates = {item.candidate for item in suite.compare}
    return [name for name in suite.compared() if name not in candidates]


def key_of(inputs: Mapping[str, Any]) -> str:
    """The inputs as a hash: other ones have another."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def inherited(environ: Mapping[str, str], devices: Sequence[str] = ()) -> dict[str, str]:
    """What legs inherit of an environment, but for what a session tells of itself.

    Args:
        environ: the environment.
        devices: variables that name devices, which are known by their model.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _SESSION and not name.startswith(_SESSION_PREFIXES) and name not in devices
    }


class Inputs:
    """The inputs of a suite's legs. What legs have in common is looked at once.

    Args:
        suite: the suite.
        device: that all legs run on.
        slots: devices.
        folder: what relative working folders are relative to.
        suite_dir: the folder that the suite file lies in.
        path: PATH of the legs.
        without: files and folders that are no code.
    """

    def __init__(
        self,
        suite: Suite,
        *,
        device: str,
        slots: Slots,
        folder: Path,
        suite_dir: Path,
        path: str,
        without: Sequence[Path] = (),
    ) -> None:
        self._suite, self._device, self._slots = suite, device, slots
        self._folder, self._suite_dir, self._path = folder, suite_dir, path
        self._code = Code(without)
        self._pythons: dict[tuple[str, Path, tuple[tuple[str, str], ...]], python.Python] = {}

    def of(self, name: str) -> dict[str, Any]:
        """Everything that a leg's numbers depend on, as far as anyone can tell.

        Raises:
            NotCacheableError: nobody can.
        """
        suite, leg = self._suite, self._suite.legs[name]
        launcher = suite.launcher_of(leg)
        if launcher.slurm or launcher.torchrun:
            raise NotCacheableError("other machines run it")
        values = placeholders(suite, name, leg, Path("{out}"), "{run_id}", self._suite_dir.absolute())
        cwd = self._folder / fill(leg.cwd or suite.cwd or ".", values)
        env = {**os.environ, "PATH": self._path, **suite.env, **leg.env}
        command = suite.command_of(leg)
        words = [] if command is None else [fill(word, values) for word in _words(command)]
        runs = sys.executable if command is None else interpreter(command, env)
        if runs is None:
            raise NotCacheableError("its command does not tell which Python runs it")
        if not cwd.is_dir():
            raise NotCacheableError(f"there is no folder {cwd}")
        told = self._python(runs, env, cwd)
        source = leg.source or suite.source
        return {
            "format": FORMAT,
            "leg": name,
            "run": run_of(suite, name, self._device),
            "source": None if source is None else source.file,
            "environment": inherited(os.environ, self._slots.accelerator.variables),
            "python": told.told,
            "recorder": [package(one) for one in {Path(__file__).parent.parent, told.parity} if one is not None],
            # The embedded trainer reads nothing from where it runs.
            "code": [*self._folders(told.folders if command is None else (cwd, *told.folders))],
            "files": [*self._files(words, cwd)],
            "image": os.environ.get("PARITY_IMAGE"),
            "machine": machine(self._device, self._slots),
        }

    def _python(self, name: str, env: Mapping[str, str], cwd: Path) -> python.Python:
        asked = (
            name,
            cwd,
            tuple((key, env[key]) for key in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV") if key in env),
        )
        if asked not in self._pythons:
            self._pythons[asked] = python.ask(name, env, cwd)
        return self._pythons[asked]

    def _folders(self, folders: Sequence[Path]) -> Iterator[str]:
        yield from sorted({self._code.of(folder) for folder in folders})

    def _files(self, words: Sequence[str], cwd: Path) -> Iterator[str]:
        """Of the files and folders that a command names elsewhere than where it runs."""
        root = self._code.root(cwd)
        named = dict.fromkeys(part for word in words for part in (word, word.partition("=")[2]) if part)
        for name in named:
            try:
                path = (cwd / name).resolve()
                if path.is_relative_to(root):
                    continue
                if path.is_dir():
                    yield self._code.of(path)
                elif path.is_file():
                    # A script imports what lies beside it.
                    yield self._code.of(path.parent) if path.suffix == ".py" else self._code.file(path)
            except (OSError, ValueError):  # no path at all
                continue


def _words(command: str | Sequence[str]) -> list[str]:
    if not isinstance(command, str):
        return list(command)
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:  # a quotation mark is left open, which the shell will tell
        return command.split()
