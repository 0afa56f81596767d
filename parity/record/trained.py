"""What a loop that does not know of the recorder trains, and where in a step it is."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from parity.record.description import optimizer_lines
from parity.record.environment import completed
from parity.record.inputs import Inputs, unseen_batch
from parity.record.lines import Line
from parity.record.modules import Modules, trained_ids
from parity.record.observer import Observer
from parity.record.places import Places, places_of
from parity.record.recorder import Recorder
from parity.record.renaming import Renaming

__all__ = ["Trained"]


class Trained:
    """Follows a loop from one optimizer step to the next, and has the recorder write each.

    A step is over once all optimizers of the modules found have stepped; or some have, and one steps again or a
    module is called to train. It is written when the next one begins: loops update buffers after their optimizers.

    Args:
        recorder: writes.
        renaming: model-wide names.
        places: this rank's place on each axis, where somebody said it.
    """

    def __init__(self, recorder: Recorder, renaming: Renaming, places: Places) -> None:
        self._recorder = recorder
        self._modules = Modules(renaming, recorder.perturbed)
        self._places = places
        self._observer: Observer | None = None
        self._of_optimizers: list[Line] = []
        self._concerned: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        self._last_hook: Any = None
        self._begun = False
        self._told = 0
        self._steps = 0
        self._over = False
        self._norm: float | None = None
        self._stepped: set[int] = set()
        self._rates: set[float] = set()
        self._inputs = Inputs()

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is trained, as far as it is known by now."""
        return module in self._modules

    def discover(self, module: nn.Module, optimizers: Sequence[Any]) -> bool:
        """Look at a module that is called to train. Returns whether it is trained."""
        if self._begun or not self._modules.called(module, optimizers):
            return False
        self._watch()
        return True

    def called(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Callable[[Any], None] | None:
        """A known module is called to train. Returns what wants to see its output, if it is a whole one."""
        self._end_step()
        if any(module is root for root in self._modules.roots):
            return self._inputs.take(module.training, args, kwargs)
        return None

    def concerns(self, optimizer: Any) -> bool:
        """Whether an optimizer's steps are to be followed: it trains what is known, and no framework drives it."""
        found = self._concerned.get(optimizer)
        if found is None:
            found = not self._modules.framework.steps(optimizer)
            found = found and bool(trained_ids([optimizer]) & self._modules.ids)
            self._concerned[optimizer] = found
        return found

    def meet(self, optimizer: Any) -> None:
        """An optimizer is about to step: look for what it trains, should none of that have been called."""
        if not (self._begun or self._modules.framework.steps(optimizer)) and self._modules.stepped(optimizer):
            self._watch()

    def stepping(self, optimizer: Any, optimizers: Sequence[Any]) -> None:
        """An optimizer is about to step."""
        if self._over or id(optimizer) in self._stepped:
            self._end_step()
        self._describe(optimizers)
        self._rates |= {float(group["lr"]) for group in optimizer.param_groups if "lr" in group}
        if self._last_hook is not None:
            self._last_hook.remove()  # of a step that raised
        # Last of the optimizer's hooks: what the others do to gradients is part of what is computed.
        self._last_hook = optimizer.register_step_pre_hook(lambda one, *_: self.before_update(one))

    def before_update(self, optimizer: Any = None) -> None:
        """Gradients are complete, and nothing is updated yet."""
        if self._observer is not None:
            self._observer.before_update(optimizer)

    def stepped(self, optimizer: Any, optimizers: Sequence[Any]) -> None:
        """An optimizer has stepped."""
        if self._last_hook is not None:
            self._last_hook.remove()
        self._stepped.add(id(optimizer))
        if all(id(one) in self._stepped for one in optimizers if self.concerns(one)):
            self.step_over()

    def framework_steps(self, optimizers: Sequence[Any], rates: set[float], how: str, scale: Any = None) -> None:
        """A framework is about to clip and step, and calls `step_over` when it has.

        Args:
            optimizers: with the model's own parameters in their groups.
            rates: learning rates.
            how: when this is, for the record.
            scale: a factor that gradients still carry.
        """
        self._end_step()
        if not self._begun:
            self._of_optimizers = optimizer_lines(optimizers, self._modules.parameters)
        self._rates |= rates
        if self._observer is not None:
            carried = None if scale in (None, 1) else torch.as_tensor(scale, dtype=torch.float64)
            self._observer.read_gradients(how, carried)
            self._observer.before_update()

    def step_over(self, norm: float | None = None) -> None:
        """Everything is updated.

        Args:
            norm: L2 norm of the whole gradient before clipping, where a framework tells.
        """
        self._over = True
        self._norm = norm if norm is not None else self._norm
        if self._observer is not None:
            self._observer.after_update()

    def _end_step(self) -> None:
        """Something of the next step begins: write what there is of this one."""
        if not (self._over or self._stepped):
            return
        self.step_over()
        self._begin()
        batch = self._inputs.batch()
        if batch is not None and (self._unseen_batch or self._places.get("pp", (0, 1))[0] > 0):
            batch = None
        self._recorder.step(
            self._steps,
            loss=None,
            grad_norm=self._norm,
            lr=next(iter(self._rates)) if len(self._rates) == 1 else None,
            batch=batch,
            output_loss=self._inputs.loss(),
        )
        self._steps += 1
        self._over, self._norm = False, None
        self._stepped.clear()
        self._rates.clear()
        self._inputs.forget()

    def close(self, *, whole: bool) -> int:
        """The script has ended. Returns how many steps it made.

        Args:
            whole: it ended well, so that a step that was begun is one.
        """
        if whole or self._over:
            self._end_step()
        if not self._modules.roots:
            self._modules.unseen.append("no module was called whose parameters an optimizer of torch has")
        self._begin()
        self._tell()
        return self._steps

    def _watch(self) -> None:
        """Observe all parameters that are known by now."""
        if self._observer is not None:
            self._observer.detach()
            self._observer = None
        self._concerned.clear()
        framework = self._modules.framework
        framework.attach(self)
        if not self._modules.parameters:
            return
        self._observer = Observer(
            self._modules.parameters,
            (),
            world_size=self._recorder.world_size,
            sketched=self._recorder.sketched,
            gradient=framework.gradient,
            summed_over=framework.summed_over,
            buffers=self._modules.buffers,
        )
        self._observer.attach()

    def _describe(self, optimizers: Sequence[Any]) -> None:
        """Take down the optimizers' settings before their first step."""
        if not self._begun and not self._stepped:
            mine = [one for one in optimizers if self.concerns(one)]
            self._of_optimizers = optimizer_lines(mine, self._modules.parameters)

    def _begin(self) -> None:
        """Write what the leg began with; by now everything that is trained has been called or has stepped."""
        if self._begun:
            return
        self._begun = True
        world_size = self._recorder.world_size
        parameters, framework = self._modules.parameters, self._modules.framework
        seen = places_of(self._modules.roots, parameters, world_size)
        self._places = {**seen, **framework.coordinates(), **self._places}
        self._unseen_batch = unseen_batch(self._places, world_size)
        environment: dict[str, object] = {"recorded_by": "python -m parity.record"}
        if self._recorder.perturbed is not None and parameters:
            environment["perturbed"] = self._recorder.perturbed
        lines: list[Line] = []
        if (line := self._modules.line()) is not None:
            lines.append({**line, "optimizer": self._of_optimizers})
        lines.append({"kind": "watched", "modules": [type(root).__name__ for root in self._modules.roots]})
        self._recorder.begin(
            completed(environment, parameters, world_size),
            lines,
            self._observer,
            coordinates={axis: place for axis, (place, _) in self._places.items()},
        )
        if self._unseen_batch:
            self._modules.unseen.append(self._unseen_batch)
        self._tell()

    def _tell(self) -> None:
        """Write what could not be seen, as far as it was not written yet."""
        unseen = self._modules.unseen[self._told :]
        if unseen:
            self._recorder.note("watched", unseen=unseen)
        self._told += len(unseen)
