"""Real ranks over gloo, forked from a server that has imported torch once and run nothing with it."""

import json
import multiprocessing
import os
import socket
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from parity.layout import Layout
from parity.train.arguments import Arguments, to_argv
from parity.train.options import TrainOptions

__all__ = ["curve", "gaps", "gradients", "records", "relative", "run_ranks", "whole_gradients"]

DEADLINE = 300
"""Seconds for all ranks of one test; far beyond what any takes, so that only a hang meets it."""

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["parity.train.loop", "parity.train.process"])


def run_ranks(
    world_size: int,
    function: Callable[..., Any],
    *args: Any,
    env: dict[str, str] | None = None,
    rank_env: dict[int, dict[str, str]] | None = None,
) -> list[Any]:
    """What `function(*args)` returns on each rank, started as parity's launcher starts them.

    Args:
        world_size: ranks.
        function: a module's function.
        args: its arguments, and like its result pickled.
        env: variables for all ranks.
        rank_env: more for single ranks.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipes, processes = [], []
        for rank in range(world_size):
            receiver, sender = CONTEXT.Pipe(duplex=False)
            variables = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(listener.getsockname()[1]),
                "PARITY_RUN_ID": "run",
                "PARITY_LEG": "leg",
                **(env or {}),
                **(rank_env or {}).get(rank, {}),
            }
            process = CONTEXT.Process(
                target=_rank, args=(variables, listener if rank == 0 else None, sender, function, args)
            )
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
    try:
        return _results(pipes)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
            process.join()
            process.close()
        for pipe in pipes:
            pipe.close()


def _results(pipes: list[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    deadline = time.monotonic() + DEADLINE
    while len(results) < len(pipes):
        waiting = [pipe for rank, pipe in enumerate(pipes) if rank not in results]
        ready = wait(waiting, timeout=max(0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError(f"ranks {[pipes.index(pipe) for pipe in waiting]} hang")
        for pipe in ready:
            rank = pipes.index(pipe)
            try:
                done, results[rank] = pipe.recv()
            except EOFError:
                raise AssertionError(f"rank {rank} died without a word") from None
            assert done, f"rank {rank}:\n{results[rank]}"
    return [results[rank] for rank in range(len(pipes))]


def _rank(
    env: dict[str, str],
    listener: socket.socket | None,
    sender: Connection,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    warnings.simplefilter("error")
    os.environ.update(env)
    if listener is not None:
        os.environ["PARITY_STORE_FD"] = str(listener.detach())
    try:
        sender.send((True, function(*args)))
    except BaseException:
        sender.send((False, traceback.format_exc()))


def records(
    options: TrainOptions, layout: Layout, steps: int, *, seed: int = 0, more: Iterable[str] = ()
) -> list[list[dict[str, Any]]]:
    """Train through the command line; every rank's record."""
    argv = [*to_argv(Arguments(options, layout, steps, seed, "cpu")), *more]
    world = layout.world_size
    with tempfile.TemporaryDirectory() as folder:
        codes = run_ranks(world, _main, argv, env={"PARITY_RECORD_DIR": folder})
        assert codes == [0] * world
        files = [Path(folder, f"rank-{rank}.jsonl") for rank in range(world)]
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


@cache
def curve(options: TrainOptions, layout: Layout, steps: int, seed: int = 0) -> list[tuple[float, float]]:
    """Loss and gradient norm of each step, which must be the same in every rank's record."""
    ranks = [
        [(line["loss"], line["grad_norm"]) for line in lines if line["kind"] == "step"]
        for lines in records(options, layout, steps, seed=seed)
    ]
    assert all(rank == ranks[0] for rank in ranks), "the ranks report different curves"
    return ranks[0]


@cache
def gradients(options: TrainOptions, layout: Layout) -> list[dict[str, tuple[Any, Any, Any]]]:
    """On each rank, by parameter: its shard, its value and its gradient at the first step, as arrays."""
    return run_ranks(layout.world_size, _gradients, options, layout)


def whole_gradients(options: TrainOptions, layout: Layout) -> dict[str, Any]:
    """Every parameter's gradient, put together from the ranks' shards; what several hold must be bitwise equal."""
    whole: dict[str, Any] = {}
    for rank, held in enumerate(gradients(options, layout)):
        for name, (shard, _, gradient) in held.items():
            there = whole.setdefault(name, np.full(shard.shape, np.nan))[shard.slices]
            known = ~np.isnan(there)
            assert np.array_equal(there[known], gradient[known]), f"{name} on rank {rank} differs from another's"
            there[...] = gradient
    for name, gradient in whole.items():
        assert not np.isnan(gradient).any(), f"no rank holds all of {name}"
    return whole


def gaps(options: TrainOptions, layout: Layout, fault: str = "") -> dict[str, float]:
    """By parameter, how far the first step's gradient is from one rank's, which never has the fault: relative L2
    distance."""
    expected = whole_gradients(replace(options, sequence_parallel=False), Layout())
    found = whole_gradients(replace(options, fault=fault), layout)
    assert found.keys() == expected.keys()
    return {name: relative(expected[name], found[name]) for name in expected}


def relative(expected: Any, found: Any) -> float:
    """Relative L2 distance of two arrays."""
    expected, found = (np.asarray(value, dtype=np.float64) for value in (expected, found))
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def _main(argv: list[str]) -> int:
    from parity.train.__main__ import main

    return main(argv)


def _gradients(options: TrainOptions, layout: Layout) -> dict[str, tuple[Any, Any, Any]]:
    from parity.train.gradients import local
    from parity.train.loop import Trainer
    from parity.train.process import join

    with join(layout, "cpu", options.threads) as process:
        trainer = Trainer(options, seed=0, device=process.device, mesh=process.mesh)
        trainer.backward(0)
    return {
        name: (trainer.shards[name], local(parameter.detach()).numpy(), local(parameter.grad).numpy())
        for name, parameter in trainer.parameters.items()
    }
