"""The modules that are trained, as they are found one by one, with their parameters under model-wide names."""

import weakref
from collections.abc import Sequence
from typing import Any

from torch import nn

from parity.errors import UsageError
from parity.record.description import described
from parity.record.frameworks import Framework, frameworks_of
from parity.record.lines import Line
from parity.record.parts import Part, bare_name, find_parts
from parity.record.perturb import perturb
from parity.record.renaming import Renaming
from parity.record.roots import own_ids, root_of, roots_holding

__all__ = ["Modules", "trained_ids"]


def trained_ids(optimizers: Sequence[Any]) -> set[int]:
    """The identities of the parameters that optimizers have."""
    return {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]}


class Modules:
    """The trained modules of this rank.

    Attributes:
        roots: the modules, in the order in which they were found.
        parameters, buffers: of all of them, hashed when they were found.
        ids: identities of the parameters.
        framework: that trains them; the base class where it is none that needs to be known.
        unseen: what of them could not be seen, a sentence each.

    Args:
        renaming: model-wide names.
        perturbed: which way to move the weights as soon as they are found; None leaves them as they are.
    """

    def __init__(self, renaming: Renaming, perturbed: int | None) -> None:
        self._renaming = renaming
        self._perturbed = perturbed
        self._inside: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._lines: list[Line] = []
        self.roots: list[nn.Module] = []
        self.parameters: list[Part] = []
        self.buffers: list[Part] = []
        self.ids: set[int] = set()
        self.framework = Framework(nn.Module())
        self.unseen: list[str] = []

    def __contains__(self, module: nn.Module) -> bool:
        """Whether a module is one of these or inside of one."""
        return module in self._inside

    def called(self, module: nn.Module, optimizers: Sequence[Any]) -> bool:
        """A module that is not known is called to train. Returns whether it is trained, and known from now on.

        Raises:
            UsageError: its weights are to be moved and can't be.
        """
        # Not of modules that are known, which a loss function may hold: FSDP has other parameters in place by then.
        strange = (part for part in module.modules() if part not in self)
        own = {id(one) for part in strange for one in part.parameters(recurse=False)}
        kinds = list(frameworks_of(module))
        mine = [optimizer for optimizer in optimizers if own & trained_ids([optimizer])]
        if not (kinds or mine) or own <= self.ids:
            return False
        self._add(module if kinds else root_of(module, trained_ids(mine)))
        return True

    def stepped(self, optimizer: Any) -> bool:
        """An optimizer is about to step for the first time. Returns whether modules were found that it trains.

        Raises:
            UsageError: its weights were to be moved before.
        """
        missing = trained_ids([optimizer]) - self.ids
        if not missing:
            return False
        roots = [root for root in roots_holding(missing) if root not in self]
        strange = missing - set().union(*map(own_ids, roots))
        name = type(optimizer).__name__
        if self._perturbed is not None:
            what = f"parameters that no module has, {name}'s," if strange else f"{name}'s model, never called before,"
            raise UsageError(
                f"PARITY_PERTURB: {what} cannot be moved before they compute; record this leg with recorder.start"
            )
        if strange:
            self.unseen.append(f"{len(strange)} parameters of {name} that no module has")
        for root in roots:
            self._add(root)
        return bool(roots)

    def line(self) -> Line | None:
        """The line of kind model, of everything found; None if nothing of it could be described."""
        if not self._lines:
            return None
        first = self._lines[0]
        together = {kind: [one for line in self._lines for one in line[kind]] for kind in ("parameters", "buffers")}  # type: ignore[attr-defined]
        return {**first, **together}

    def _add(self, root: nn.Module) -> None:
        self.roots.append(root)
        self._inside.update(root.modules())
        for kind in frameworks_of(root):
            self.framework = kind(root)
            self.unseen += self.framework.unseen
            break
        try:
            parameters, buffers = self._described(root)
        except UsageError as error:
            if self._perturbed is not None:
                raise
            self.unseen.append(f"{type(root).__name__}: {error}")
            return
        if self._perturbed is not None:
            perturb(parameters, self._perturbed)
            self.framework.moved()
        self.ids |= {id(part.tensor) for part in parameters}
        self.parameters += parameters
        self.buffers += buffers
        # Hashed now: what is called until the others are found may change buffers.
        self._lines.append(described(parameters, buffers, (), layers=None, experts=None))

    def _described(self, root: nn.Module) -> tuple[list[Part], list[Part]]:
        if any(type(one).__name__ == "FullyShardedDataParallel" for one in root.modules()):
            raise UsageError("FullyShardedDataParallel flattens its parameters; fully_shard leaves them their names")
        shards = self.framework.shards()
        names = {name: self._renaming(bare_name(name)) for name in _names(root)}
        parameters, buffers = find_parts([root], shards, [names])
        taken = {part.name for part in (*self.parameters, *self.buffers)}
        twice = sorted(taken & {part.name for part in (*parameters, *buffers)})
        if not twice:
            return parameters, buffers
        # Other models, or stages with names of their own: told apart here, and named right by whoever knows.
        prefix = _prefix(root, self.roots)
        self.unseen.append(
            f"{prefix}: model-wide names; {twice[0]} is a name in another module here too, give them with --names"
        )
        return find_parts([root], shards, [{own: f"{prefix}.{name}" for own, name in names.items()}])


def _names(root: nn.Module) -> list[str]:
    return [name for tensors in (root.named_parameters(), root.named_buffers()) for name, _ in tensors]


def _prefix(root: nn.Module, roots: Sequence[nn.Module]) -> str:
    name = type(root).__name__
    count = sum(type(one) is type(root) for one in roots)
    return f"{name}{count}" if count > 1 else name
