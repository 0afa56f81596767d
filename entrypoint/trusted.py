"""Start one of the action's programs that hold a token, in an environment of the action's own.

    python3 -I trusted.py gate|plan|publish [ARGUMENT ...]

The code under test lies in the workspace, and may hold a `requests.py`. So Python runs isolated (`-I`: it looks
neither at the working directory nor at PYTHONPATH), in a virtual environment made from the lock file of the action,
without torch. It is made anew each time: one that is found could have been put there by legs that ran as processes.
Where that cannot be made, because there is no Python 3.11 or newer or no package index, the program runs in the
image of the action: with the token, and with the workspace read-only but for the results.

Standard library, Python 3.9 or newer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["FOR_TORCH", "environment", "in_container", "main", "requirements"]

ACTION = Path(__file__).resolve().parent.parent
PROGRAMS = ("gate", "plan", "publish")
FOR_TORCH = frozenset({"filelock", "fsspec", "mpmath", "networkx", "setuptools", "sympy", "torch"})
"""What the lock file holds for torch alone."""

_IMAGE_PYTHON = "/opt/parity/bin/python"
_NEWEST = 20
# Certificates of a company's own, by which requests reaches a server of its own.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")


class Unavailable(Exception):  # noqa: N818
    """This way of starting a program is not there: one line that says why."""


def main(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Become the program; return an exit code only if that fails."""
    if not arguments or arguments[0] not in PROGRAMS:
        print(f"usage: python3 -I trusted.py {'|'.join(PROGRAMS)} [ARGUMENT ...]", file=sys.stderr)
        return 2
    try:
        python = environment(env)
        os.execve(python, [str(python), *_isolated(arguments)], dict(env))  # noqa: S606
    except Unavailable as error:
        no_python = error
    print(f"{no_python}; using the image", flush=True)
    try:
        argv = in_container(env, arguments)
        os.execvpe(argv[0], argv, dict(env))  # noqa: S606
    except Unavailable as error:
        print(f"::error::{no_python}, and {error}", flush=True)
    return 4


def environment(env: Mapping[str, str]) -> Path:
    """Return the Python of a new virtual environment; the runner removes it with its temporary folder.

    Raises:
        Unavailable: it can't be made.
    """
    python = _python(env)
    lock = requirements((ACTION / "requirements.lock").read_text(encoding="utf-8"))
    base = Path(env.get("RUNNER_TEMP") or tempfile.gettempdir())
    made = Path(tempfile.mkdtemp(prefix="parity-trusted-", dir=base))
    try:
        _run(env, [python, "-I", "-m", "venv", "--without-pip", str(made)], "no virtual environment could be made")
        (site,) = made.glob("lib/python*/site-packages")
        if not _pip_works(env, python):  # the runner's own: to install one takes longer than all the rest
            python = str(made / "bin" / "python")
            _run(env, [python, "-I", "-m", "ensurepip"], "there is no pip (python3-pip or python3-venv is needed)")
        listed = made / "requirements.txt"
        listed.write_text(lock, encoding="utf-8")
        pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", str(site)]
        # A source distribution would run its own code to be built. What the cache holds may be the legs' own.
        pip += ["--no-input", "--no-cache-dir", "--no-deps", "--only-binary=:all:"]
        # The environment is used once: what is imported is compiled then, and the rest, which is most, never.
        pip += ["--no-compile", "-r", str(listed)]
        # A runner's own pip may be told to refuse what is in no virtual environment, or to install for its user.
        env = {**env, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"}
        _run(env, pip, "what the action needs could not be installed")
        (site / "parity-action.pth").write_text(f"{ACTION}\n", encoding="utf-8")
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made / "bin" / "python"


def requirements(lock: str) -> str:
    """Return the lock file without what it holds for torch.

    The lock file pins versions. It has no hashes; should it get them, they stay, and pip then asks for each of them.
    """
    kept = ""
    for entry in re.sub(r"\\\r?\n", " ", lock).splitlines():
        name = re.split(r"[\s=;\[<>~!@]", entry.strip(), maxsplit=1)[0]
        if re.sub(r"[-_.]+", "-", name).lower() not in FOR_TORCH:
            kept += f"{entry}\n"
    return kept


def in_container(env: Mapping[str, str], arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs a program of the image, with the token.

    Raises:
        Unavailable: there is no program to run containers with, or no image.
    """
    docker, image = env.get("INPUT_DOCKER") or "docker", env.get("INPUT_IMAGE", "")
    if not shutil.which(docker, path=env.get("PATH")):
        raise Unavailable(f"there is no {docker}")
    if not image or image.startswith("-"):
        raise Unavailable("the input `image` names none")
    workspace = Path(env.get("GITHUB_WORKSPACE") or os.getcwd())
    words = [docker, "run", "--rm", "--init", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    words += ["--user", f"{os.getuid()}:{os.getgid()}", "--workdir", str(workspace)]
    mounts = {workspace: "ro"}
    if arguments[0] == "publish":
        out = Path(env.get("INPUT_OUT") or "parity-out")
        # A checkout may hold a link of that name; publish refuses it.
        if out.is_absolute() or (workspace / out).resolve() == workspace.resolve() / out:
            (workspace / out).mkdir(parents=True, exist_ok=True)
            mounts[workspace / out] = "rw"
    for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        if env.get(name):
            mounts[Path(env[name])] = "rw"
    for name in ("GITHUB_EVENT_PATH", *_BUNDLES):
        if env.get(name) and Path(env[name]).exists():
            mounts[Path(env[name])] = "ro"
    for path, how in mounts.items():
        words += ["--mount", f"type=bind,source={path},target={path}{',readonly' if how == 'ro' else ''}"]
    for name in sorted(env):
        # Values are not on the command line, which every user of the machine can read.
        if re.match(r"(GITHUB|INPUT|RUNNER)_\w+$|(https?|no)_proxy$", name, re.IGNORECASE) or name in _BUNDLES:
            words += ["--env", name]
    return [*words, "--entrypoint", _IMAGE_PYTHON, image, *_isolated(arguments)]


def _isolated(arguments: Sequence[str]) -> list[str]:
    return ["-I", "-m", f"entrypoint.{arguments[0]}", *arguments[1:]]


def _python(env: Mapping[str, str]) -> str:
    """Return a Python that is new enough."""
    if sys.version_info >= (3, 11):  # noqa: UP036  the runner's own may be older
        return sys.executable
    for minor in range(_NEWEST, 10, -1):
        if found := shutil.which(f"python3.{minor}", path=env.get("PATH")):
            return found
    raise Unavailable("there is no Python 3.11 or newer on this runner")


def _pip_works(env: Mapping[str, str], python: str) -> bool:
    """A distribution's pip may be older than this Python, and then fails where it is to install."""
    return _tokenless(env, [python, "-I", "-m", "pip", "install", "--help"]).returncode == 0


def _tokenless(env: Mapping[str, str], command: list[str]) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in env.items() if name != "INPUT_TOKEN"}
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def _run(env: Mapping[str, str], command: list[str], otherwise: str) -> None:
    done = _tokenless(env, command)
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        print("\n".join(lines[-20:]), flush=True)
        raise Unavailable(otherwise)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
