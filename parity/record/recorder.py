"""One JSON line per event, in one file per rank."""

import contextlib
import faulthandler
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from parity.errors import UsageError
from parity.record.writing import append, compact, line

if TYPE_CHECKING:
    # Imported where they are needed: outside a leg, and where only curves are written, torch is not.
    from torch import nn

    from parity.record.observer import Observer
    from parity.record.parts import Described

__all__ = ["FORMAT", "Recorder"]

FORMAT = "parity.record/1"

MESSAGE_LIMIT = 2000
"""Characters kept of an error's message: enough for any sentence, too few for a dumped tensor."""

SKETCH_STEPS = "0,1,2"
"""A sketch takes 0.7 KB a parameter; the steps before the first updates blur everything tell the most."""


class Recorder:
    """Writes `rank-<r>.jsonl` into a leg's folder, or nothing when the leg is not being recorded.

    Three calls are enough in a loop: `from_env`, `start` before the first step, and `step` after each optimizer
    step. Recording never communicates, and never changes what is computed, but for the first weights of a leg that is
    to be perturbed. Gradients are read at the first of `gradients()`, `torch.nn.utils.clip_grad_norm_`, and the
    optimizer's step; the record says which.

    The file is created by the first call, whichever that is, and replaces an older one. It is opened for
    each write and closed again, so a rank that dies leaves whole lines and nothing to flush.

    Args:
        folder: where the file goes; None makes every call do nothing.
        rank: this process's rank in its leg.
        world_size: ranks of the leg.
        run_id: identifies the run that started this leg.
        leg: the leg's name in its suite.
        sketched: which steps' gradients are sketched, counted from 0 since `start` whatever the loop calls
            them. Updates are sketched at all of these but the last.
        perturbed: which way `start` moves the weights, from 1; None leaves them as they are.
    """

    automatic: "Recorder | None" = None
    """The one that records this process without its knowledge, which no other may get in the way of."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        rank: int = 0,
        world_size: int = 1,
        run_id: str | None = None,
        leg: str | None = None,
        sketched: Sequence[int] = (0, 1, 2),
        perturbed: int | None = None,
    ) -> None:
        self.path = None if folder is None else Path(folder) / f"rank-{rank}.jsonl"
        self.rank = rank
        self.world_size = world_size
        self.run_id = run_id
        self.leg = leg
        self.sketched = tuple(sketched)
        self.perturbed = perturbed
        self._begun = False
        self._observer: Observer | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> "Recorder":
        """A recorder as the environment says; one that does nothing unless `PARITY_RECORD_DIR` is set.

        Args:
            env: read instead of `os.environ`. `RANK` defaults to 0, `WORLD_SIZE` to 1 and
                `PARITY_SKETCH_STEPS` to 0,1,2; `PARITY_RUN_ID`, `PARITY_LEG` and `PARITY_PERTURB` may be absent.

        Raises:
            UsageError: `RANK`, `WORLD_SIZE`, `PARITY_PERTURB` or one of `PARITY_SKETCH_STEPS` is not a whole number,
                or a model was to be moved that nothing is recorded of.
        """
        env = os.environ if env is None else env
        folder = env.get("PARITY_RECORD_DIR")
        perturbed = env.get("PARITY_PERTURB")
        if not folder:
            if perturbed is not None:
                raise UsageError(
                    "PARITY_PERTURB: is set, but PARITY_RECORD_DIR is not, so no record would tell of it"
                )
            return cls(None)
        _show_stacks_when_asked()
        steps = env.get("PARITY_SKETCH_STEPS", SKETCH_STEPS)
        return cls(
            folder,
            rank=_whole_number("RANK", env.get("RANK", "0")),
            world_size=_whole_number("WORLD_SIZE", env.get("WORLD_SIZE", "1")),
            run_id=env.get("PARITY_RUN_ID"),
            leg=env.get("PARITY_LEG"),
            sketched=[_whole_number("PARITY_SKETCH_STEPS", one.strip()) for one in steps.split(",") if one.strip()],
            perturbed=None if perturbed is None else _whole_number("PARITY_PERTURB", perturbed, least=1),
        )

    @property
    def active(self) -> bool:
        """Whether anything is written."""
        return self.path is not None

    def start(
        self,
        model: "nn.Module | Sequence[nn.Module] | Mapping[str, object] | None" = None,
        optimizer: Any = None,
        *,
        environment: Mapping[str, object] | None = None,
        coordinates: Mapping[str, int] | None = None,
        shards: "Mapping[str, Described] | None" = None,
        names: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
        layers: Sequence[int] | None = None,
        experts: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Say who writes and with what it begins, and watch the model from now on.

        DTensors say themselves which part this rank holds. A tensor that is tied to another is recorded once,
        under its first name. Gradients and updates of sparse and low-precision tensors are measured in float64.

        In a perturbed leg, every floating-point parameter is moved in place by one unit in its last place (that
        of `environment["dtype"]`, if the model computes in less than it stores), before
        anything is recorded. Call this before the weights are copied: fp32 masters that an optimizer made earlier are
        not moved, and overwrite the moved weights at its first step.

        Args:
            model: its initialised weights, split as they will be trained; a list if this rank has several
                stages; None to write curves only. A mapping is taken for the environment.
            optimizer: one, a list, or None.
            environment: of the process, JSON values by name; completed by what torch says, if there is a model.
            coordinates: this rank's place on each axis: {"dp": 0, "tp": 1}.
            shards: which part of the whole tensor is held here of a parameter or buffer, by name. Of a DTensor too,
                where its placements do not tell all, as where experts were dealt out before they were sharded.
            names: model-wide names by the module's own, where they differ, as in a pipeline stage; for several
                modules one mapping for all or one each. Wrappers such as `_orig_mod.` are left out anyway.
            layers: that this rank owns.
            experts: that this rank owns, by module.

        Raises:
            UsageError: the model cannot be described as it was told to; the message says which parameter. Or this is
                a perturbed leg, and there is no model, or nothing in it, that could be moved.
        """
        if not self.active:
            return
        about = dict(environment or {})
        if isinstance(model, Mapping):
            about |= model
            model = None
        more: dict[str, object] = {} if coordinates is None else {"coordinates": dict(coordinates)}
        lines: list[dict[str, object]] = []
        observer = None
        if model is None:
            if optimizer is not None:
                raise UsageError("start: an optimizer, but no model; give the model whose parameters it trains")
            if self.perturbed is not None:
                raise UsageError("start: no model; a perturbed leg (PARITY_PERTURB) needs start(model, ...)")
        else:
            from parity.record.watching import watch

            self._detach()
            modules = list(model) if isinstance(model, (list, tuple)) else [model]
            watched = watch(
                modules,
                optimizer if isinstance(optimizer, (list, tuple)) else [] if optimizer is None else [optimizer],
                environment=about,
                shards=shards or {},
                names=[names or {}] * len(modules) if names is None or isinstance(names, Mapping) else list(names),
                layers=layers,
                experts=experts,
                world_size=self.world_size,
                sketched=self.sketched,
                perturbed=self.perturbed,
            )
            about, lines, observer = watched
            more.setdefault("coordinates", {})
        self.begin(about, lines, observer, **more)

    def begin(
        self,
        environment: Mapping[str, object],
        lines: Iterable[Mapping[str, object]],
        observer: "Observer | None",
        **more: object,
    ) -> None:
        """What `start` does once the model is described: for whoever finds and describes it in another way.

        Args:
            environment: of the process, complete.
            lines: that describe the model.
            observer: of the model, attached.
            more: fields of the start line, such as `coordinates`.
        """
        self._observer = observer
        start = line(
            "start",
            format=FORMAT,
            run_id=self.run_id,
            leg=self.leg,
            rank=self.rank,
            world_size=self.world_size,
            time=time.time(),
            environment=environment,
            **more,
        )
        self._write(start, *map(compact, lines))

    def note(self, kind: str, **fields: object) -> None:
        """Write a line of a kind of its own."""
        self._write(line(kind, **fields))

    def gradients(self) -> None:
        """Have this step's gradients read now: after the backward pass of the last micro-batch, once they are
        summed over the ranks and before they are clipped. Only needed where neither torch's own clipping nor
        the optimizer's step is the right moment."""
        if self._observer is not None:
            self._observer.read_gradients("gradients()")

    def step(
        self,
        step: int,
        *,
        loss: SupportsFloat | None,
        grad_norm: SupportsFloat | None = None,
        lr: SupportsFloat | None = None,
        batch: object = None,
        micro_batches: int | None = None,
        **other_metrics: SupportsFloat | None,
    ) -> None:
        """Write a step: its metrics at full precision, its data's hash, its gradients and its update.

        Args:
            step: counts from 0.
            loss: of the whole global batch, before this step's update. None where only the framework's own log,
                which the suite names as `source`, has it.
            grad_norm: L2 norm of the whole gradient before clipping. None takes the norm that
                `torch.nn.utils.clip_grad_norm_` returned, if it was called once for everything.
            lr: learning rate of this step's update.
            batch: what this data-parallel rank trained on: a micro-batch or a list of them, each a tensor, or
                a mapping, dataclass or tuple of tensors with samples along dimension 0. A list is always one
                of micro-batches.
            micro_batches: how many there were, where `batch` does not tell; recorded with it.
            other_metrics: further curves by name. A metric that is None is left out, so that it reads as
                absent; NaN and infinities are written as `json` writes them.

        Raises:
            UsageError: the batch is not as described above.
        """
        if not self.active:
            return
        made: list[dict[str, object]] = []
        if self._observer is not None or batch is not None:
            from parity.record.watching import step_lines

            made, clip_norm = step_lines(step, self._observer, batch, micro_batches)
            grad_norm = clip_norm if grad_norm is None else grad_norm
        metrics = {"loss": loss, "grad_norm": grad_norm, "lr": lr, **other_metrics}
        numbers = {name: _number(value) for name, value in metrics.items() if value is not None}
        self._write(*map(compact, made), line("step", step=step, **numbers, time=time.time()))

    def traits(self, traits: Mapping[str, str]) -> None:
        """Say how parts of the model really computed, where a layout must not change it: which kernel or rule, by the
        module's model-wide name. Two legs in which a module's trait differs do not compute the same thing.
        """
        if traits:
            self._write(line("traits", traits=dict(traits)))

    def error(self, exc: BaseException) -> None:
        """Write what ended the leg, as one line of at most 2000 characters; also before `start`."""
        self._detach()
        message = " ".join(str(exc).split())[:MESSAGE_LIMIT]
        self._write(line("error", type=type(exc).__name__, message=message, time=time.time()))

    def end(self, steps: int) -> None:
        """Say that the leg finished, and after how many steps. The model is no longer watched."""
        lines: list[str] = []
        if self._observer is not None:
            from parity.record.watching import final_lines

            lines = [compact(one) for one in final_lines(self._observer)]
        self._detach()
        self._write(*lines, line("end", steps=steps, peak_memory=_peak_memory(), time=time.time()))

    def _detach(self) -> None:
        if self._observer is not None:
            self._observer.detach()
            self._observer = None

    def _write(self, *lines: str) -> None:
        if self.path is None:
            return
        if not self._begun and Recorder.automatic not in (None, self):
            raise UsageError(
                f"{self.path}: the script records itself, and python -m parity.record records it too; leave one out"
            )
        append(self.path, lines, replace=not self._begun)
        self._begun = True


def _peak_memory() -> int:
    """Bytes, the most at once: what torch had allocated on this process's accelerator, or what the process held in
    the host's memory if it uses none."""
    torch = sys.modules.get("torch")
    for name in ("cuda", "xpu", "npu"):
        device = getattr(torch, name, None)
        if device is not None and device.is_initialized():
            return int(device.max_memory_allocated())
    # KiB but on macOS: getrusage(2).
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << (0 if sys.platform == "darwin" else 10)


def _show_stacks_when_asked() -> None:
    """Have SIGUSR1 write where this process is, should it hang; unless the trainer has a use of its own for that."""
    if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):  # no such file as stderr
            faulthandler.register(signal.SIGUSR1, all_threads=True)


def _number(value: SupportsFloat) -> int | float:
    return value if isinstance(value, int) else float(value)


def _whole_number(name: str, text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise UsageError(f"{name}: {text!r} is not a whole number" + (f" of at least {least}" if least else ""))
    return int(text)
