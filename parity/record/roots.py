"""Find the module that a loop trains, by one of its parts that is called and the parameters that are trained."""

from collections.abc import Iterable, Set

from torch import nn

from parity.record.places import instances

__all__ = ["own_ids", "root_of", "roots_holding"]


def own_ids(module: nn.Module) -> set[int]:
    """The identities of a module's parameters."""
    return {id(parameter) for parameter in module.parameters()}


def root_of(module: nn.Module, trained: Set[int]) -> nn.Module:
    """The smallest module around this one, or itself, that holds all of some parameters; itself if there is none.

    A loop may call parts of its model one by one, `head(backbone(x))`: their names alone would not be the model's.

    Args:
        module: that is called.
        trained: identities of parameters that are trained together with its own.
    """
    if trained <= own_ids(module):
        return module
    return min(_holding(trained | own_ids(module)), key=_size, default=module)


def roots_holding(trained: Set[int]) -> list[nn.Module]:
    """The modules, none of them inside another, that hold these parameters: one if one has them all."""
    whole = _holding(trained)
    if whole:
        return [min(whole, key=_size)]
    some = [module for module in instances(nn.Module) if own_ids(module) & trained]
    inside = {id(child) for module in some for child in module.modules() if child is not module}
    return [module for module in some if id(module) not in inside]


def _holding(trained: Iterable[int]) -> list[nn.Module]:
    wanted = set(trained)
    return [module for module in instances(nn.Module) if wanted <= own_ids(module)]


def _size(module: nn.Module) -> int:
    return sum(1 for _ in module.modules())
