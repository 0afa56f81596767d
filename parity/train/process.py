"""Join the ranks of a leg, and leave them in good order."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

# `use_deterministic_algorithms` and the first optimizer import these two, a second of CPU time in each rank.
# Imported here, a launcher that imports this module and then forks its ranks pays for them once.
import torch._dynamo
import torch._inductor.config
import torch.distributed as dist

from parity.errors import DeviceError, UsageError
from parity.layout import Layout
from parity.train.collectives import Comm
from parity.train.mesh import Mesh

__all__ = ["TIMEOUT", "Process", "join"]

TIMEOUT = timedelta(seconds=120)
"""For a collective or the rendezvous. A step takes milliseconds; two minutes outlast any start on a busy
machine and still end a leg that waits for a dead rank well before a workflow's limit."""

TEARDOWN_SECONDS = 10
"""After an error, a process group that cannot be destroyed in this time is left to the process's end."""

RUN_KEY = "parity/run"


@dataclass(frozen=True)
class Process:
    """This rank among the others.

    Attributes:
        rank: from 0.
        world_size: ranks of the leg.
        device: what this rank computes on.
        backend: "gloo", "nccl", or None for a single rank.
        mesh: the axes of the layout.
    """

    rank: int
    world_size: int
    device: torch.device
    backend: str | None
    mesh: Mesh

    def comm(self) -> Comm:
        """All ranks of the leg."""
        return Comm(self.rank, self.world_size)

    def environment(self) -> dict[str, object]:
        """What the numbers may depend on besides the options."""
        if self.device.type == "cuda":
            device = torch.cuda.get_device_name(self.device)
        else:
            device = f"cpu {torch.backends.cpu.get_cpu_capability()}"
        return {
            "torch": torch.__version__,
            "device": device,
            "backend": self.backend,
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "threads": torch.get_num_threads(),
            "world_size": self.world_size,
        }


@contextmanager
def join(layout: Layout, device: str, threads: int) -> Iterator[Process]:
    """Be a rank for as long as the context lasts; the process group is destroyed at its end, whatever happened.

    Works under torchrun (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`), alone without any variable, and
    under parity's launcher, which sets `PARITY_RUN_ID` and `PARITY_LEG` besides and hands rank 0 a listening
    socket in `PARITY_STORE_FD`.

    Args:
        layout: how many ranks there must be.
        device: "cpu" or "cuda"; the GPU is the one of `LOCAL_RANK`.
        threads: CPU threads of this rank.

    Raises:
        UsageError: the number of ranks is not the layout's, or this rank reached another run's store.
        DeviceError: no such GPU.
    """
    env = os.environ
    rank, world_size = int(env.get("RANK", "0")), int(env.get("WORLD_SIZE", "1"))
    if world_size != layout.world_size:
        raise UsageError(
            f"WORLD_SIZE: {world_size} ranks were started, but the layout ({layout}) takes {layout.world_size}"
        )
    shared = layout.dp * layout.fsdp * layout.cp
    if shared % layout.ep:
        raise UsageError(
            f"layout.ep: {layout.ep} does not divide the {shared} ranks of dp × fsdp × cp, over which experts are"
            " spread"
        )
    torch.set_num_threads(threads)
    chosen = _cuda_device(int(env.get("LOCAL_RANK", "0"))) if device == "cuda" else torch.device("cpu")
    torch.use_deterministic_algorithms(True)
    mesh = Mesh(layout, rank)
    if world_size == 1:
        yield Process(rank, world_size, chosen, None, mesh)
        return
    backend = "nccl" if device == "cuda" else "gloo"
    _rendezvous(backend, rank, world_size, chosen)
    try:
        mesh.connect()
        process = Process(rank, world_size, chosen, backend, mesh)
        yield process
        # Rank 0 keeps the store: none may leave while another still works.
        process.comm().sum(torch.zeros(1, device=chosen))
    except BaseException:
        _destroy_in_time()
        raise
    dist.destroy_process_group()


def _cuda_device(index: int) -> torch.device:
    # cuBLAS is deterministic only with a fixed workspace, and reads this when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    count = torch.cuda.device_count()
    if index >= count:
        raise DeviceError(
            f"LOCAL_RANK: there is no GPU {index}, this machine shows {count}: use a smaller layout or --device cpu"
        )
    torch.cuda.set_device(index)
    # fp32 means fp32: TF32 keeps 10 bits of the mantissa, and gaps would measure that.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return torch.device("cuda", index)


def _rendezvous(backend: str, rank: int, world_size: int, device: torch.device) -> None:
    bound = {"device_id": device} if device.type == "cuda" else {}
    env = os.environ
    run_id = env.get("PARITY_RUN_ID")
    # Under torchrun the store at MASTER_PORT is the agent's, also when parity started torchrun.
    if run_id is None or env.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        dist.init_process_group(backend, timeout=TIMEOUT, **bound)
        return
    run = f"{run_id}/{env.get('PARITY_LEG', '')}"
    inherited = env.get("PARITY_STORE_FD") if rank == 0 else None
    listening = {} if inherited is None else {"master_listen_fd": int(inherited)}
    host, port = env.get("MASTER_ADDR", "127.0.0.1"), int(env["MASTER_PORT"])
    # Nobody is waited for here: a rank that came to the wrong store must not be counted there. Without libuv, whose
    # store refuses a socket that is listening already in torch 2.6 (it takes one in 2.13).
    store = dist.TCPStore(
        host,
        port,
        world_size,
        is_master=rank == 0,
        timeout=TIMEOUT,
        wait_for_workers=False,
        use_libuv=False,
        **listening,
    )
    if rank == 0:
        store.set(RUN_KEY, run)
    elif (found := store.get(RUN_KEY).decode()) != run:
        raise UsageError(f"MASTER_PORT: {host}:{port} belongs to run {found!r}, not to this rank's {run!r}")
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(run, store),
        rank=rank,
        world_size=world_size,
        timeout=TIMEOUT,
        **bound,
    )


def _destroy_in_time() -> None:
    # NCCL may wait for peers that are dead.
    thread = threading.Thread(target=dist.destroy_process_group, daemon=True)
    thread.start()
    thread.join(TEARDOWN_SECONDS)
