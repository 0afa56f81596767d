"""`python -I -m entrypoint.plan`: the suite's legs as a matrix, for jobs that each run one of them.

The suite is a file of the code under test, and read as data, in a process that is given no token.
"""

import os
import subprocess
import sys
from collections.abc import Mapping

from entrypoint import commands, outputs
from entrypoint.inputs import InputError, Inputs
from parity.plain import plain

__all__ = ["main"]

_WRONG_USAGE = 2
_SECONDS = 120
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")


def main(env: Mapping[str, str] | None = None) -> int:
    """Write the output `matrix`, and return the exit code."""
    env = os.environ if env is None else env
    try:
        suite = Inputs.from_env(env).suite
    except InputError as error:
        return _refused(str(error), _WRONG_USAGE)
    command = [sys.executable, "-I", "-m", "parity", "plan", "--matrix", "--", suite]
    try:
        done = subprocess.run(
            command,
            cwd=env.get("GITHUB_WORKSPACE") or ".",
            env={name: env[name] for name in _KEPT if name in env},
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _refused(f"suite: reading {suite} took longer than {_SECONDS} s", _WRONG_USAGE)
    if done.returncode:
        return _refused(" ".join(done.stderr.decode(errors="replace").splitlines()[-5:]), done.returncode)
    matrix = done.stdout.decode().strip()
    outputs.write(env, {"matrix": matrix})
    print(commands.defuse(f"matrix: {matrix}"), flush=True)
    return 0


def _refused(why: str, code: int) -> int:
    print(commands.command("error", commands.defuse(plain(why, 1000))), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
