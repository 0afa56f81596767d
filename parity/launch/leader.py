"""The process between a leg and its embedded ranks: forks them, waits for them, reports how each ended.

Runs in a fork of the warm process, so torch and the trainer are imported already.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from parity.launch import linux, marker

__all__ = ["lead"]


def lead(request: Mapping[str, Any], report: int) -> NoReturn:
    """Run one leg's ranks to their end.

    Args:
        request: `leg`, `ranks`, `directory`, `module`, `argv`, `env`, `cwd`, `warm` (the parent's process id).
        report: file descriptor that gets one JSON line for the start and one for each rank's end. Its other
            end sees it closed when the leader is gone.
    """
    try:
        os.setsid()
        linux.die_with_parent(request["warm"])
        # The leader has to see how its ranks end; the session is asked to go as a whole.
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        linux.overwrite_environ(marker.LEG, marker.PLACEHOLDER, request["leg"])
        os.environ.setdefault(
            "GLOO_SOCKET_IFNAME", "lo"
        )  # all ranks are here; the host's name may resolve to nothing
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        _wait(_fork_ranks(request, report), report)
    except BaseException as error:
        _tell(report, {"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _fork_ranks(request: Mapping[str, Any], report: int) -> dict[int, int]:
    """Start the ranks; returns rank by process id."""
    # Bound before any rank exists and never closed in between: no other process can take the port, and a rank
    # that connects before rank 0 listens waits in the queue instead of being refused.
    with socket.socket() as store:
        store.bind(("127.0.0.1", 0))
        store.listen(max(128, request["ranks"]))
        port = store.getsockname()[1]
        os.environ.update(
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            WORLD_SIZE=str(request["ranks"]),
            LOCAL_WORLD_SIZE=str(request["ranks"]),
        )
        leader = os.getpid()
        ranks = {}
        for rank in range(request["ranks"]):
            log = os.open(
                os.path.join(request["directory"], f"rank-{rank}.log"),
                os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW,
                0o644,
            )
            pid = os.fork()
            if pid == 0:
                os.close(report)
                _rank(rank, leader, log, store, request)
            os.close(log)
            ranks[pid] = rank
        _tell(report, {"leader": leader, "port": port, "ranks": list(ranks)})
    return ranks


def _wait(ranks: dict[int, int], report: int) -> None:
    while ranks:
        pid, status = os.wait()
        if pid in ranks:
            _tell(
                report,
                {
                    "rank": ranks.pop(pid),
                    "exit": os.waitstatus_to_exitcode(status),
                    "time": time.time(),
                    "monotonic": time.monotonic(),
                },
            )


def _tell(report: int, line: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):  # no one listens any more; the end of that one ends us too
        os.write(report, json.dumps(line).encode() + b"\n")


def _rank(rank: int, leader: int, log: int, store: socket.socket, request: Mapping[str, Any]) -> NoReturn:
    module, argv = request["module"], request["argv"]
    code = 1
    try:
        linux.die_with_parent(leader)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(null)
        os.close(log)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        if rank == 0:
            os.environ["PARITY_STORE_FD"] = str(store.detach())
        else:
            store.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True)  # sent when the leg's time is over
        _limit_threads()
        sys.argv = [module, *argv]
        code = _exit_code(importlib.import_module(f"{module}.__main__").main(list(argv)))
    except SystemExit as stop:
        code = _exit_code(stop.code)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
            linux.flush_c_streams()
        # Not through the interpreter's end: that would run what the parent registered, in every rank.
        os._exit(code)


def _exit_code(result: object) -> int:
    """As the interpreter does it: None is 0, a text is printed and 1."""
    if result is None:
        return 0
    if isinstance(result, int):
        return int(result) & 0xFF or int(result != 0)
    print(result, file=sys.stderr)
    return 1


def _limit_threads() -> None:
    """OpenMP read `OMP_NUM_THREADS` when torch was imported; the leg's own value has to be told to torch."""
    wanted = os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch = sys.modules.get("torch")
    if torch is not None and wanted.isdigit() and int(wanted) > 0:
        torch.set_num_threads(int(wanted))
