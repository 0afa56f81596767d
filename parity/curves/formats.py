"""What a log format is, and finding the ones there are."""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from parity.curves.curve import LegCurves
from parity.curves.files import Files
from parity.curves.keys import Keys
from parity.curves.opening import Opened

__all__ = ["Format", "Stored", "formats"]


class Format(Protocol):
    """A log format: one module in this folder, with an object of this shape named `FORMAT`.

    One that always gives its first step the same number has it as `first_step: int` besides, which proves which step
    is the first; where loops differ there is no such attribute, or None.
    """

    @property
    def name(self) -> str:
        """As users write it in `format:`."""

    @property
    def generic(self) -> bool:
        """Whether other formats are special cases of this one; it is then asked only if none of them matches."""

    def matches(self, head: str) -> str | None:
        """What in the first characters of a source shows this format ("40 lines matched"), or None."""

    def read(self, opened: Opened, source: str, keys: Keys | None) -> LegCurves:
        """The curves in an open source.

        Args:
            source: the path, for messages.
            keys: which key holds which metric; None or absent metrics: the format's own names.

        Raises:
            UsageError: nothing in the source can be taken as a leg's curves, or a key is nowhere.
        """


@runtime_checkable
class Stored(Protocol):
    """A format that is no lines of text: a binary file, or a folder of files. Found as `Format` is."""

    @property
    def name(self) -> str:
        """As users write it in `format:`."""

    def finds(self, files: Files) -> str | None:
        """What in a source shows this format ("2 event files"), or None."""

    def read(self, files: Files, keys: Keys | None) -> LegCurves:
        """The curves in a source.

        Raises:
            UsageError: as `Format.read`, or one of the files can't be read.
        """


@functools.cache
def formats() -> Mapping[str, Format | Stored]:
    """Every format by name, found by looking through this folder."""
    package = importlib.import_module("parity.curves")
    modules = [importlib.import_module(f"parity.curves.{m.name}") for m in pkgutil.iter_modules(package.__path__)]
    found: list[Format | Stored] = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}
