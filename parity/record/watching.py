"""The recorder's side that needs torch: begin to watch a model, and make a step's lines."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from parity.record.batches import fingerprint_batches
from parity.record.description import described
from parity.record.environment import completed
from parity.record.lines import Line, Readout, hexadecimal
from parity.record.observer import Observer
from parity.record.parts import Described, find_parts
from parity.record.perturb import perturb

__all__ = ["final_lines", "step_lines", "watch"]


def watch(
    modules: Sequence[nn.Module],
    optimizers: Sequence[Any],
    *,
    environment: Mapping[str, object],
    shards: Mapping[str, Described],
    names: Sequence[Mapping[str, str]],
    layers: Sequence[int] | None,
    experts: Mapping[str, Sequence[int]] | None,
    world_size: int,
    sketched: Sequence[int],
    perturbed: int | None = None,
) -> tuple[dict[str, object], list[Line], Observer | None]:
    """Describe a model, moved first if it is to be perturbed, and begin to watch it. See `Recorder.start`.

    Returns:
        The environment, completed; the lines that describe the model; and the observer, attached, which is
        None if this rank holds no parameter.
    """
    parameters, buffers = find_parts(modules, shards, names)
    if perturbed is not None:
        perturb(parameters, perturbed, environment.get("dtype"))
        environment = {**environment, "perturbed": perturbed}
    line = described(parameters, buffers, optimizers, layers=layers, experts=experts)
    observer = None
    if parameters:
        observer = Observer(parameters, optimizers, world_size=world_size, sketched=sketched, buffers=buffers)
        observer.attach()
    return completed(environment, parameters, world_size), [line], observer


def step_lines(
    step: int, observer: Observer | None, batch: object, micro_batches: int | None
) -> tuple[list[Line], float | None]:
    """End a step. See `Recorder.step`.

    Returns:
        Its lines but for the metrics, and the gradient norm that clipping told.
    """
    readout = Readout()
    norm = None if observer is None else observer.clip_norm
    read_norm = None if norm is None else readout.ask(norm.to(torch.float64))
    of_model = None if observer is None else observer.lines(step, readout)
    data = None if batch is None else fingerprint_batches(batch, micro_batches)
    read_sums = [] if data is None else [readout.ask(sums) for sums in data.sums]
    readout.fetch()
    lines = [] if of_model is None else of_model()
    if data is not None:
        total = data.hash([read() for read in read_sums])
        line: Line = {"kind": "batch", "step": step, "hash": hexadecimal(total)}
        lines.append({**line, "samples": data.samples, "micro_batches": data.micro_batches})
    return lines, None if read_norm is None else read_norm()[0]


def final_lines(observer: Observer) -> list[Line]:
    """What is recorded when no step follows."""
    readout = Readout()
    made = observer.final(readout)
    readout.fetch()
    return made()
