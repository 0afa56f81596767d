"""Run a script or a module as `python` would, in this process."""

import builtins
import importlib.machinery
import os
import runpy
import sys
import types
from collections.abc import Sequence

from parity.errors import UsageError

__all__ = ["run_module", "run_script", "without_us"]

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def run_script(path: str, args: Sequence[str]) -> None:
    """Run a file, or a folder or archive with a `__main__.py`, as `python path args...`.

    Args:
        path: as given, which is also what the script finds in `sys.argv[0]`.
        args: the rest of `sys.argv`.

    Raises:
        UsageError: there is no such file.
    """
    sys.argv[:] = [path, *args]
    if not os.path.isfile(path) or path.endswith((".zip", ".pyz")):
        if not os.path.exists(path):
            raise UsageError(f"{path}: no such file; give the script to run, or -m and a module")
        _drop_own_path()
        runpy.run_path(path, run_name="__main__")
        return
    if not sys.flags.safe_path:
        # In the place of what `-m` put there.
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    file = os.path.abspath(path)  # as Python's own `__file__` is
    loader = importlib.machinery.SourceFileLoader("__main__", file)
    code = compile(loader.get_data(file), file, "exec", dont_inherit=True)
    # Not by runpy, which forgets the module when the script ends: what runs at exit may still look for it.
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=file, __builtins__=builtins, __loader__=loader, __cached__=None)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)  # noqa: S102 - it is what was asked for


def run_module(name: str, args: Sequence[str]) -> None:
    """Run a module or a package's `__main__` as `python -m name args...`.

    Args:
        name: of the module.
        args: the rest of `sys.argv`.
    """
    sys.argv[:] = [name, *args]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def without_us(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames of the recorder and of what it runs scripts with."""
    kept = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(_HERE) and file != "<frozen runpy>":
            kept.append(traceback)
        traceback = traceback.tb_next
    rest: types.TracebackType | None = None
    for one in reversed(kept):
        rest = types.TracebackType(rest, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return rest


def _drop_own_path() -> None:
    if not sys.flags.safe_path:
        del sys.path[0]  # runpy puts the folder or archive there
