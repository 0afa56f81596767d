"""What recording costs: the embedded model with and without, step by step in turns. `make bench` prints it.

CPU time of the thread and not wall time: on cores that others use too, wall time measures the others.
"""

import statistics
import sys
import tempfile
import time

import torch

from parity.record import Recorder
from parity.train.data import batches
from parity.train.loop import Trainer
from parity.train.options import TrainOptions

__all__ = ["bench_recorder", "measure_recorder"]

PROMISED = 0.10
STEPS = 40
RUNS = 5


def measure_recorder(steps: int = STEPS, world_size: int = 1) -> tuple[float, float, float]:
    """Cost of one run.

    Args:
        steps: of each training, which alternate.
        world_size: what the recorder is told; above 1 it hashes all parameters after every step.

    Returns:
        Milliseconds of a plain step; what recording adds to one, as a share of it; and what it adds to all of
        them, with the steps that are sketched, likewise.
    """
    options = TrainOptions()
    plain, recorded = (Trainer(options, seed=0, device=torch.device("cpu")) for _ in range(2))
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(folder, world_size=world_size)
        recorder.start(recorded.model, recorded.optimizer)
        _train(plain, None, 0)  # what is done once in a process
        for step in range(steps):
            for trainer, rec in ((plain, None), (recorded, recorder))[:: 1 if step % 2 else -1]:
                started = time.thread_time()
                _train(trainer, rec, step)
                seconds[rec is not None].append(time.thread_time() - started)
        recorder.end(steps)
    base = statistics.median(seconds[False])
    added = statistics.median(b - a for a, b in zip(seconds[False], seconds[True], strict=True))
    total = sum(seconds[True]) - sum(seconds[False])
    return 1e3 * base, added / base, total / sum(seconds[False])


def _train(trainer: Trainer, recorder: Recorder | None, step: int) -> None:
    loss = trainer.backward(step)
    data = batches(trainer.options, trainer.seed, step)
    if recorder is not None:
        recorder.gradients()
    norm = trainer.grad_norm()
    trainer.update(norm)
    if recorder is not None:
        recorder.step(step, loss=loss, grad_norm=norm, lr=trainer.options.lr, batch=data)


def bench_recorder(runs: int = RUNS) -> bool:
    """Print what recording adds to a step; whether the promise was kept."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured = [measure_recorder() for _ in range(runs)]
        shared = [measure_recorder(world_size=2) for _ in range(runs)]
    finally:
        torch.set_num_threads(threads)
    base, step, whole = (statistics.median(values) for values in zip(*measured, strict=True))
    kept = bool(step <= PROMISED)
    print(f"recorder, of a step of {base:.1f} ms: {step:.1%} (promised {PROMISED:.0%}) {'ok' if kept else 'MISSED'}")
    print(f"  over {STEPS} steps with the sketched ones: {whole:.1%}")
    print(f"  with replicas to hash: {statistics.median(values[1] for values in shared):.1%}", flush=True)
    return kept


if __name__ == "__main__":
    sys.exit(not bench_recorder())
