"""Real ranks over gloo."""

import multiprocessing
import os
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["run_ranks"]

DEADLINE = timedelta(seconds=300)
"""For all ranks of a test; far beyond what any takes, so that only a hang meets it."""

CONTEXT = multiprocessing.get_context("forkserver")


def run_ranks(world_size: int, function: Callable[..., Any], *args: Any, records: Path) -> list[Any]:
    """What `function(*args)` returns on each rank of a process group.

    Args:
        world_size: ranks.
        function: a module's function.
        args: its arguments, and like its result pickled.
        records: a recorder that each rank makes from its environment writes there.
    """
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(world_size, CONTEXT) as pool:
        store = Path(folder, "store")
        ranks = [pool.submit(_rank, rank, world_size, store, records, function, args) for rank in range(world_size)]
        return [rank.result(DEADLINE.total_seconds()) for rank in ranks]


def _rank(
    rank: int, world_size: int, store: Path, records: Path, function: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    warnings.filterwarnings("error", module="parity")  # torch has some of its own for models split like these
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size), "PARITY_RECORD_DIR": str(records)}
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(store), world_size), rank=rank, world_size=world_size, timeout=DEADLINE / 2
    )
    try:
        return function(*args)
    finally:
        dist.destroy_process_group()
