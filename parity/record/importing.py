"""Do something as soon as a module has been imported, without importing it."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from importlib.util import find_spec

__all__ = ["when_imported"]


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call `then` once the module is there: now if it is, or right after its import.

    The recorder must not import torch itself: what it would do by then, a script may still want to set by the
    environment.

    Args:
        name: of a top-level module.
        then: what to do.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: has the others look, and hears of the module's being ready."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # a failed import may be tried again once the path is right
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            vars(loader).pop("exec_module", None)  # another's of this kind, within this one, has done so too
            execute(module)
            self._then()

        # On this one loader, which stays what it is for everybody who asks.
        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
