"""`main` runs in every rank; the first argument says what the rank does. As a script it runs under torchrun."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RANK = "RANK"


def record(**line: object) -> None:
    """Append a line to this rank's record, as the recorder does."""
    path = Path(os.environ["PARITY_RECORD_DIR"]) / f"rank-{os.environ[RANK]}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def steps(count: int, sleep: float = 0.0) -> None:
    for step in range(count):
        record(kind="step", step=step, loss=1.0 / (step + 1))
        time.sleep(sleep)


def join() -> None:
    """Join the process group, through the socket that the launcher opened where there is one."""
    import torch.distributed as dist

    rank, world, port = (int(os.environ[name]) for name in (RANK, "WORLD_SIZE", "MASTER_PORT"))
    fd = os.environ.get("PARITY_STORE_FD")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_process_group("gloo")
        return
    store = dist.TCPStore(
        "127.0.0.1", port, world, is_master=rank == 0, master_listen_fd=int(fd) if fd is not None else None
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)


def all_reduce() -> float:
    import torch
    import torch.distributed as dist

    value = torch.ones(4)
    dist.all_reduce(value)
    return float(value[0])


def ok(rank: int) -> None:
    join()
    print(f"sum {all_reduce()} on port {os.environ['MASTER_PORT']}")
    steps(3)
    leave()


def leave() -> None:
    import torch.distributed as dist

    dist.destroy_process_group()


def crash(rank: int) -> None:
    """Rank 1 raises while the others wait for it in a collective."""
    join()
    if rank == 1:
        raise ValueError("rank 1 has had enough")
    all_reduce()


def crash_recorded(rank: int) -> None:
    """As `crash`, but all that the failing rank leaves is its record's line."""
    join()
    if rank == 1:
        record(kind="error", type="ValueError", message="noted before the end", time=time.time())
        os._exit(1)
    all_reduce()


def killed(rank: int) -> None:
    join()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    all_reduce()


def killed_in_silence(rank: int) -> None:
    """No rank says anything, not even that another one is gone."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def hang_in_collective(rank: int) -> None:
    """Rank 1 never comes to the collective in which the others wait."""
    join()
    steps(4 + rank)
    if rank == 1:
        stuck_elsewhere()
    print("now waiting", flush=True)
    all_reduce()


def stuck_elsewhere() -> None:
    print("now stuck", flush=True)
    time.sleep(600)


def recorder_hangs(rank: int) -> None:
    from parity.record import Recorder

    Recorder.from_env()
    stuck_elsewhere()


def memory(rank: int) -> None:
    """Rank 1 asks for more memory than it may have."""
    join()
    if rank == 1:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))
        bytearray(1 << 36)
    all_reduce()


def teardown(rank: int) -> None:
    """All is done and said, and the process stays."""
    steps(3)
    record(kind="end", steps=3, time=time.time())
    time.sleep(600)


def exit3(rank: int) -> None:
    join()
    if rank == 1:
        os._exit(3)
    all_reduce()


def exit_code(rank: int) -> int:
    return 3 if rank == 0 else 0


def survivors_hang(rank: int) -> None:
    if rank == 1:
        sys.exit("rank 1 leaves alone")
    time.sleep(600)


def hang(rank: int) -> None:
    steps(5 + rank)
    print("now hanging", flush=True)
    time.sleep(600)


def stubborn(rank: int) -> None:
    """Neither SIGTERM nor SIGINT ends it."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    hang(rank)


def daemon(rank: int) -> None:
    """Leaves a process behind: forked twice, in a session of its own, not a child of anyone here."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for signum in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(signum, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    os.wait()


def daemon_hang(rank: int) -> None:
    daemon(rank)
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    hang(rank)


def nan(rank: int) -> None:
    record(kind="step", step=0, loss=float("nan"))


def no_newline(rank: int) -> None:
    print(f"out of {rank}", end="")
    print("err", end="", file=sys.stderr)
    print("out", end="")
    os.system("printf ' child'")


def big(rank: int) -> None:
    print("x" * (1 << 20))
    print(f"end of {rank}", file=sys.stderr)
    os._exit(0)


def environment(rank: int) -> None:
    print(json.dumps({"cwd": os.getcwd(), **os.environ}))


def train(rank: int, count: str = "20", size: str = "384") -> None:
    """Small steps with two collectives each, as tensor parallelism has."""
    import torch
    import torch.distributed as dist

    join()
    width = int(size)
    layer = torch.nn.Linear(width, width)
    optimizer = torch.optim.AdamW(layer.parameters())
    for step in range(int(count)):
        began = time.perf_counter()
        for _ in range(4):
            loss = layer(torch.ones(width, width)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for parameter in layer.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
        record(kind="step", step=step, loss=loss.item(), seconds=time.perf_counter() - began)
    dist.destroy_process_group()


def main(argv: Sequence[str]) -> int | None:
    mode, *more = argv
    result: int | None = globals()[mode](int(os.environ[RANK]), *more)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
