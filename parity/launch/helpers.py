"""The two processes that help the supervising one: from here they are started, asked and ended."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from parity.launch import marker
from parity.launch.events import TorchImported

__all__ = ["Guard", "Warm"]

# Both processes must find the modules that this one finds, the trainer among them, wherever this one got them
# from and whatever lies in the current folder.
ENTRY = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1));"
    "from parity.launch.{0} import main; main(sys.argv[1:])"
)
IMPORTING = 300.0  # seconds for importing torch: a cold CUDA build on a network disk takes a minute or two


def _interpreter(name: str) -> list[str]:
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    return [sys.executable, "-P", "-u", "-c", ENTRY.format(name), path]


class Warm:
    """The warm process (`parity.launch.warm`): started once, asked for a leader per leg."""

    def __init__(self, run_id: str, modules: Sequence[str]) -> None:
        self.error: str | None = None  # why no leg can be had from it
        self.ready: TorchImported | None = None  # what it said when torch was imported
        self._deadline = time.monotonic() + IMPORTING
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        env = {
            # numpy's OpenBLAS would start threads at import, which a fork must not have.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            **os.environ,
            marker.RUN: run_id,
        }
        # Last, since the bytes after a shorter name are zeros, where readers of the environment stop.
        env.pop(marker.LEG, None)
        env[marker.LEG] = marker.PLACEHOLDER
        self._process = subprocess.Popen(
            [*_interpreter("warm"), str(theirs.fileno()), str(os.getpid()), *modules],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=env,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        self.pid = self._process.pid
        theirs.close()
        ours.setblocking(False)
        self._socket = ours

    def fileno(self) -> int:
        """Readable when the process has something to say or is gone."""
        return self._socket.fileno()

    def poll(self) -> bool:
        """Take in news. True when it has just become ready."""
        if self.error is not None:
            return False
        try:
            message = self._socket.recv(1 << 16)
        except BlockingIOError:
            if self.ready is None and time.monotonic() > self._deadline:
                self.error = f"importing torch took more than {IMPORTING:g} s"
            return False
        except OSError:
            message = b""
        if not message:
            self.error = self._last_words()
            return False
        try:
            answer = json.loads(message)
            if "error" not in answer:
                self.ready = TorchImported(float(answer["seconds"]), int(answer["threads"]))
                return True
            self.error = str(answer["error"])
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):  # a trainer's module wrote it
            self.error = "the process that starts ranks said something that it never says"
        return False

    def request(self, request: Mapping[str, Any], report: int) -> None:
        """Ask for a leg; `report` is the write end of the pipe that its leader writes to."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], [report])

    def close(self) -> None:
        """End it, and with it every leader and rank that still lives."""
        self._socket.close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _last_words(self) -> str:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "the process that starts ranks hangs"
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return f"the process that starts ranks ended ({code}): {lines[-1] if lines else 'without a word'}"


class Guard:
    """The guard process (`parity.launch.guard`); `cancel` is the command that ends what runs elsewhere."""

    def __init__(self, run_id: str, cancel: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*_interpreter("guard"), run_id, *cancel],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._named: set[psutil.Process] = set()
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    def name(self, processes: Sequence[psutil.Process]) -> None:
        """Tell it which processes are legs', for when they can no longer be found by their parents."""
        assert self._process.stdin is not None
        for one in {*processes} - self._named:
            with contextlib.suppress(OSError):  # the one is gone, or the other
                os.write(self._process.stdin.fileno(), f"{marker.note(one)}\n".encode())
        self._named = {*processes}

    def close(self) -> None:
        """The run has ended and left nothing."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(b".")
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
