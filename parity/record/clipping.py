"""Know when a loop clips its gradients, and what norm it clips by."""

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["ClipWatch"]


class ClipWatch:
    """Wraps `torch.nn.utils.clip_grad_norm_` until `remove`.

    The function that torch's own one calls first is wrapped too, so that a loop which imported
    `clip_grad_norm_` by name, before there was a wrapper, is seen as well; and so is the half
    that clips alone, by a norm that the loop has reduced before, as torchtitan's does over pipeline stages.

    Args:
        before: gets the gradients that are about to be clipped.
        after: gets the same gradients and the L2 norm that was returned. Not called for another norm.
    """

    def __init__(
        self, before: Callable[[Sequence[Tensor]], None], after: Callable[[Sequence[Tensor], Tensor], None]
    ) -> None:
        self._before = before
        self._after = after
        self._inside = False
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        """Wrap."""
        module = torch.nn.utils.clip_grad
        for owner in (torch.nn.utils, module):
            self._replace(owner, "clip_grad_norm_", _given_parameters)
        # Private, so it may go; then a loop that imported by name is read at the optimizer's step.
        if hasattr(module, "_get_total_norm"):
            self._replace(module, "_get_total_norm", _given_gradients)
        if hasattr(torch.nn.utils, "clip_grads_with_norm_"):  # from torch 2.7 on
            self._replace(torch.nn.utils, "clip_grads_with_norm_", _given_parameters, norm=False)

    def remove(self) -> None:
        """Restore what was wrapped, unless somebody has wrapped it again since: then the wrapper only passes on."""
        for owner, name, original, wrapper in self._replaced:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)
        self._replaced.clear()

    def _replace(
        self, owner: Any, name: str, gradients: Callable[[Any], tuple[Any, list[Tensor]]], norm: bool = True
    ) -> None:
        """Wrap one function.

        Args:
            norm: whether it returns the norm.
        """
        original = getattr(owner, name)

        def wrapper(given: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside or not self._replaced:
                return original(given, *args, **kwargs)
            given, grads = gradients(given)
            self._inside = True
            try:
                self._before(grads)
                returned = original(given, *args, **kwargs)
            finally:
                self._inside = False
            if norm and _norm_type(name, args, kwargs) == 2:
                self._after(grads, returned)
            return returned

        wrapper.__name__, wrapper.__doc__ = name, original.__doc__
        setattr(owner, name, wrapper)
        self._replaced.append((owner, name, original, wrapper))


def _given_parameters(parameters: Any) -> tuple[Any, list[Tensor]]:
    if isinstance(parameters, Tensor):
        return parameters, [] if parameters.grad is None else [parameters.grad]
    listed = list(parameters)
    # torch warns of an empty generator, and of nothing else.
    passed = iter(()) if isinstance(parameters, types.GeneratorType) and not listed else listed
    return passed, [parameter.grad for parameter in listed if parameter.grad is not None]


def _given_gradients(grads: Any) -> tuple[Any, list[Tensor]]:
    listed = [grads] if isinstance(grads, Tensor) else list(grads)
    return listed, listed


def _norm_type(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    # Behind the first argument comes `max_norm` in the one that clips.
    at = 1 if name == "clip_grad_norm_" else 0
    return float(args[at] if len(args) > at else kwargs.get("norm_type", 2.0))
