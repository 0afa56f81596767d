"""Records a loop that does not know of it: by the calls of its model and the steps of its optimizers."""

import functools
import math
import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from parity.errors import UsageError
from parity.layout import AXES
from parity.record.importing import when_imported
from parity.record.recorder import Recorder
from parity.record.renaming import Renaming

if TYPE_CHECKING:
    # torch is imported by the script, if it is at all.
    from torch import nn

    from parity.record.trained import Trained

__all__ = ["Automatic", "placed"]


class Automatic:
    """Watches every optimizer and every outermost call of a module in this process, and drives a recorder.

    A module is looked at when it is first called to train, before it computes: if an optimizer has parameters of it.
    A step is over once all optimizers of these parameters have stepped, or some have and the model is called again.

    Nothing is left in the script's own objects: modules are seen through `nn.Module.__call__`, which is torch's own
    again for as long as an outermost call lasts, so that `torch.compile` sees what it knows.

    Args:
        recorder: an active one.
        names: a file of model-wide names, or None; see `Renaming.read`.
        mesh: sizes of the axes, the outermost first, where ranks have their places in that order; see `placed`.
    """

    def __init__(self, recorder: Recorder, names: str | None = None, mesh: str | None = None) -> None:
        self.recorder = recorder
        self._places = placed(mesh, recorder.rank, recorder.world_size) if mesh else {}
        self._renaming = Renaming.read(names, recorder.rank) if names else Renaming()
        self._process = os.getpid()
        self._optimizers: list[weakref.ref[Any]] = []
        self._rejected: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._trained: Trained | None = None
        self._stepping = False
        self._undo: list[Callable[[], None]] = []
        Recorder.automatic = recorder

    def await_torch(self) -> None:
        """Begin to watch as soon as the script has imported torch."""
        when_imported("torch", self.install)

    def install(self) -> None:
        """Begin to watch. Imports torch."""
        from torch import nn
        from torch.optim import optimizer as torch_optimizer

        from parity.record.trained import Trained

        self._trained = Trained(self.recorder, self._renaming, self._places)
        handles = [
            torch_optimizer.register_optimizer_step_pre_hook(self._before_step),
            torch_optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        self._undo += [handle.remove for handle in handles]
        self._watch_optimizers(torch_optimizer.Optimizer)
        self._watch_calls(nn.Module)

    def finish(self, error: BaseException | None = None) -> None:
        """The script has ended: write what is left to be written. Nothing is watched any more.

        Args:
            error: what it ended with, if not well.
        """
        if os.getpid() != self._process:
            return
        Recorder.automatic = None
        for undo in self._undo:
            undo()
        self._undo.clear()
        steps = 0
        if self._trained is not None:
            steps = self._trained.close(whole=error is None)
        else:
            self.recorder.note("watched", unseen=["the script did not import torch"])
        if error is not None:
            self.recorder.error(error)
        else:
            self.recorder.end(steps)

    def _watch_optimizers(self, kind: type) -> None:
        made = self._optimizers
        original = kind.__dict__["__init__"]

        @functools.wraps(original)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            made.append(weakref.ref(optimizer))

        setattr(kind, "__init__", init)  # noqa: B010 - mypy takes the plain form for a mistake
        self._undo.append(lambda: setattr(kind, "__init__", original))

    def _watch_calls(self, kind: "type[nn.Module]") -> None:
        import torch

        original = kind.__call__
        compiling, grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled

        # Of this thread; -1 outside a backward pass, in which checkpointed activations are computed again.
        graph_task = torch._C._current_graph_task_id

        def call(module: "nn.Module", *args: Any, **kwargs: Any) -> Any:
            if compiling() or not grad_enabled() or self._stepping or os.getpid() != self._process:
                return original(module, *args, **kwargs)
            if graph_task() != -1:
                return original(module, *args, **kwargs)
            kind.__call__ = original
            try:
                counted = self._before_call(module, args, kwargs)
                output = original(module, *args, **kwargs)
                if counted:
                    counted(output)
                return output
            finally:
                if self._undo:
                    kind.__call__ = call

        kind.__call__ = call
        self._undo.append(lambda: setattr(kind, "__call__", original))

    def _before_call(
        self, module: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Callable[[Any], None] | None:
        """Look at an outermost call. Returns what wants to see its output."""
        trained = self._trained
        assert trained is not None
        if not trained.knows(module):
            # Looked at again once there is another optimizer.
            if self._rejected.get(module) == len(self._optimizers):
                return None
            if not trained.discover(module, self._alive()):
                self._rejected[module] = len(self._optimizers)
                return None
        return trained.called(module, args, kwargs)

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        trained = self._trained
        if trained is None or os.getpid() != self._process:
            return
        trained.meet(optimizer)
        if trained.concerns(optimizer):
            self._stepping = True
            trained.stepping(optimizer, self._alive())

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        trained = self._trained
        if os.getpid() == self._process and trained is not None and trained.concerns(optimizer):
            self._stepping = False
            trained.stepped(optimizer, self._alive())

    def _alive(self) -> list[Any]:
        return [optimizer for one in self._optimizers if (optimizer := one()) is not None]


def placed(mesh: str, rank: int, world_size: int) -> dict[str, tuple[int, int]]:
    """By axis, a rank's place and how many there are, from a text such as `dp=2,tp=3`.

    Args:
        mesh: the outermost axis first: ranks count through the last one fastest.
        rank: whose place.
        world_size: what the sizes multiply to.

    Raises:
        UsageError: they do not, or the text is another.
    """
    sizes: dict[str, int] = {}
    for one in mesh.replace(",", " ").split():
        axis, _, count = one.partition("=")
        if axis not in AXES or axis in sizes or not count.isdecimal() or int(count) < 1:
            raise UsageError(f"mesh: {one!r} is no axis and size, such as dp=2; the axes are {', '.join(AXES)}")
        sizes[axis] = int(count)
    if math.prod(sizes.values()) != world_size:
        raise UsageError(f"mesh: {mesh} makes {math.prod(sizes.values())} ranks, but there are {world_size}")
    places = {}
    inner = world_size
    for axis, size in sizes.items():
        inner //= size
        places[axis] = (rank // inner % size, size)
    return places
