"""The warm process: imports torch and the trainer once, then forks a leader for each leg that is asked for.

Importing torch takes a second or more of a core, the first optimizer's lazy imports another; a run of three legs
and eight ranks would pay that eight times. A fork has it all, in shared memory.

It touches no GPU and starts no thread before it forks: neither survives a fork.
"""

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence

from parity.launch import leader, linux

__all__ = ["main"]

REQUEST = 1 << 20  # bytes; the kernel's limit on one message is lower

# torch.optim imports torch._dynamo when the first optimizer is made: 0.9-1.1 s, measured with torch 2.13.
MODULES = ("torch", "torch.distributed", "torch.optim", "torch._dynamo")


def main(argv: Sequence[str]) -> None:
    """Serve until the other end of the control socket is closed.

    Args:
        argv: the control socket's file descriptor, the parent's process id, and the modules of the legs to come.
    """
    began = time.monotonic()
    linux.die_with_parent(int(argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal it reaches everyone; the parent decides
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    control = socket.socket(fileno=int(argv[0]))
    # Imports leave little to collect, and looking for it again and again takes a fifth of their time.
    gc.disable()
    try:
        for name in MODULES:
            importlib.import_module(name)
    except Exception as error:
        _answer(control, {"error": f"cannot import torch: {type(error).__name__}: {error}"})
        # Ending with requests unread would reset the connection, and the answer would be lost.
        while (received := _receive(control)) is not None:
            os.close(received[1])
        return
    for module in argv[2:]:
        _import(module)
    gc.freeze()  # what a rank's collector does not touch stays shared
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # leaders report through their own pipes
    _answer(control, {"seconds": time.monotonic() - began, "threads": len(os.listdir("/proc/self/task"))})
    _serve(control)


def _import(module: str) -> None:
    """Import what a leg will need. An error is left to the rank, which raises it into its own log."""
    with contextlib.suppress(Exception):
        importlib.import_module(f"{module}.__main__")
        if importlib.util.find_spec(f"{module}.loop") is not None:
            importlib.import_module(f"{module}.loop")


def _answer(control: socket.socket, answer: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(answer).encode())


def _receive(control: socket.socket) -> tuple[dict[str, object], int] | None:
    """The next leg that is asked for, and where its leader reports; None when no one asks any more."""
    message, fds, _, _ = socket.recv_fds(control, REQUEST, 1)
    return (json.loads(message), fds[0]) if message else None


def _serve(control: socket.socket) -> None:
    warm = os.getpid()
    while (received := _receive(control)) is not None:
        request, report = received
        sys.stdout.flush()
        sys.stderr.flush()
        if os.fork() == 0:
            control.close()
            leader.lead({**request, "warm": warm}, report)
        os.close(report)


if __name__ == "__main__":
    main(sys.argv[1:])
