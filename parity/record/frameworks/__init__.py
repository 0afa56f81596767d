"""What is known of single frameworks, one module each, named like the framework's own package and looked at only
where that has been imported."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from parity.record.parts import Described, Part
    from parity.record.trained import Trained

__all__ = ["Framework", "frameworks_of"]


class Framework:
    """How a framework differs from plain torch, for one of its modules that is trained. This one does not differ.

    A framework's module defines a subclass of this name. Attributes:
        unseen: what cannot be seen, a sentence each.
        summed_over: ranks whose gradients add up to those of the parts, where each has other pieces and zeros for the
            rest; empty where each rank has its own whole.
    """

    def __init__(self, root: nn.Module) -> None:
        self.root = root
        self.unseen: list[str] = []
        self.summed_over: tuple[int, ...] = ()

    @classmethod
    def claims(cls, module: nn.Module) -> bool:
        """Whether this module is trained by the framework, possibly by copies of its parameters."""
        return False

    def shards(self) -> "Mapping[str, Described]":
        """Which part of the whole tensor a plain parameter is, by name."""
        return {}

    def coordinates(self) -> dict[str, tuple[int, int]]:
        """This rank's place on each axis, and how many places there are."""
        return {}

    def attach(self, trained: "Trained") -> None:
        """Have the framework's own steps told to `trained`, if torch's hooks see them at the wrong moment."""

    def steps(self, optimizer: Any) -> bool:
        """Whether the framework itself tells when this optimizer of torch's steps."""
        return False

    def moved(self) -> None:
        """The weights have been moved: copy them to wherever the framework keeps them besides.

        Raises:
            UsageError: it can't be done.
        """

    def gradient(self, part: "Part") -> Tensor | None:
        """The gradient of a part before the optimizer's step."""
        return part.tensor.grad


def frameworks_of(module: nn.Module) -> Iterator[type[Framework]]:
    """The imported frameworks that claim a module."""
    for found in pkgutil.iter_modules(__path__):
        if found.name in sys.modules:
            kind: type[Framework] = importlib.import_module(f"{__name__}.{found.name}").Framework
            if kind.claims(module):
                yield kind
