"""`python -m parity.record -- script.py ARGS...`: run a training script unchanged, and record what it computes."""

import os
import sys
from collections.abc import Sequence

from parity.errors import UsageError
from parity.record.recorder import Recorder
from parity.record.running import run_module, run_script, without_us

_USAGE = """\
usage: python -m parity.record [--names FILE] [--mesh SIZES] -- script.py ARGS...
       python -m parity.record [--names FILE] [--mesh SIZES] -- -m module ARGS...
       torchrun --nproc-per-node 2 -m parity.record -- script.py ARGS...

Runs a training script as python would. Inside a leg of a suite, where PARITY_RECORD_DIR is set, it records weights,
gradients, updates and data of the model that the script's optimizers train.

  --names FILE   model-wide names where a stage has its own: a JSON object of replacements by pattern, which a whole
                 name has to match; {rank} in the file's path stands for the rank. Or set PARITY_NAMES.
  --mesh SIZES   sizes of the axes such as dp=2,tp=3, the outermost first, where torch's device meshes do not tell
                 each rank's place. Or set PARITY_MESH.
"""


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments name. Returns the exit code; an exit that the script asks for passes through."""
    try:
        options, command = _parsed(list(arguments))
        if command is None:
            print(_USAGE, end="")
            return 0
        automatic = None
        recorder = Recorder.from_env()
        if recorder.active:
            from parity.record.automatic import Automatic

            automatic = Automatic(recorder, **options)
            automatic.await_torch()
    except UsageError as error:
        return _refused(error)
    try:
        _run(command)
    except SystemExit as error:
        if automatic is not None:
            automatic.finish(None if error.code in (None, 0) else error)
        raise
    except Exception as error:
        if automatic is not None:
            automatic.finish(error)
        if isinstance(error, UsageError):
            return _refused(error)
        # As the interpreter would, and where only the script's own frames are.
        sys.excepthook(type(error), error.with_traceback(without_us(error.__traceback__)), error.__traceback__)
        return 1
    except BaseException as error:
        if automatic is not None:
            automatic.finish(error)
        raise
    if automatic is not None:
        automatic.finish()
    return 0


def _run(command: list[str]) -> None:
    if command[0] == "-m":
        run_module(command[1], command[2:])
    else:
        run_script(command[0], command[1:])


def _parsed(arguments: list[str]) -> tuple[dict[str, str | None], list[str] | None]:
    """The options, and the command; None for help."""
    options = {name: os.environ.get(f"PARITY_{name.upper()}") for name in ("names", "mesh")}
    while arguments:
        first = arguments.pop(0)
        option, equals, value = first.removeprefix("--").partition("=")
        if first in ("-h", "--help"):
            return options, None
        if first == "--":
            break
        if first.startswith("--") and option in options and (equals or arguments):
            options[option] = value if equals else arguments.pop(0)
        elif first.startswith("-") and first != "-m":
            raise UsageError(f"{first}: no option of python -m parity.record; see --help")
        else:
            arguments.insert(0, first)
            break
    if not arguments or (arguments[0] == "-m" and len(arguments) < 2):
        raise UsageError("give the script to run: python -m parity.record -- script.py ARGS...; see --help")
    return options, arguments


def _refused(error: UsageError) -> int:
    print(f"parity.record: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
