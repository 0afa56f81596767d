"""A leg that is a command: it runs once and starts its ranks itself, as torchrun does."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from parity.launch import torchrun
from parity.launch.events import Event, LegStarted
from parity.launch.failure import Symptom, describe_exit, first_failure, symptom
from parity.launch.files import tail
from parity.launch.leg import Leg, StartError
from parity.launch.plan import LegPlan

__all__ = ["CommandLeg"]


class CommandLeg(Leg):
    """Runs the command in a session of its own.

    `command.log` is what the command printed, whole. Each rank's own output is in `rank-<r>.log` where torchrun
    wrote it apart; with a single rank and no torchrun, `rank-0.log` is a second name of `command.log`. Ranks
    that another launcher starts, more than one of them, are told apart in `command.log` only as it prints them.
    """

    def __init__(self, plan: LegPlan, run_id: str, gpus: tuple[str, ...], emit: Callable[[Event], None]) -> None:
        super().__init__(plan, run_id, gpus, emit)
        self._process: subprocess.Popen[bytes] | None = None
        self._root: psutil.Process | None = None
        self._port: socket.socket | None = None
        self._ended = 0.0
        self._apart: list[int] = []  # ranks whose output torchrun kept apart

    def start(self) -> None:
        self.prepare()
        self._port = _held_port()
        port = self._port.getsockname()[1]
        run = f"{self.run_id}-{self.plan.name}"
        variables = torchrun.variables(self.plan.directory.absolute(), run, port)
        self.spawn(self.command(), {**variables, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        self.running()
        self.emit(LegStarted(self.plan.name, self.plan.ranks, self.gpus, port))

    def command(self) -> list[str]:
        """The arguments of what the plan runs."""
        command = self.plan.command
        assert command is not None
        return ["sh", "-c", command] if isinstance(command, str) else list(command)

    def spawn(self, argv: list[str], variables: Mapping[str, str]) -> None:
        """Start the process that the leg waits for.

        Raises:
            StartError: there is no such program, or it may not be run.
        """
        # One thread: as torchrun does for several ranks, and so that one rank sums in the same order as these.
        env = {"OMP_NUM_THREADS": "1", **os.environ, **variables, **self.environment()}
        log = os.open(self._command_log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.plan.cwd,
                env=env,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise StartError(f"no such command: {argv[0]}", 127) from None
        except PermissionError:
            raise StartError(f"not allowed to run: {argv[0]}", 126) from None
        finally:
            os.close(log)
        self._root = psutil.Process(self._process.pid)
        with contextlib.suppress(OSError):  # wakes the loop; without it the next tick notices
            self.wake = [os.pidfd_open(self._process.pid)]

    def poll(self) -> bool:
        if self._process is None:
            return True
        if self._process.poll() is None:
            return False
        self._ended = self._ended or time.time()
        return True

    def roots(self) -> list[psutil.Process]:
        return [] if self._root is None else [self._root]

    def close(self) -> None:
        if self._process is not None:
            self._process.poll()  # where no one has waited for it since it was killed
        if self._port is not None:
            self._port.close()
        for fd in self.wake:
            os.close(fd)
        self.wake = []

    def collect_logs(self) -> None:
        self._apart = torchrun.collect_logs(self.plan.directory)
        if not self._apart and self.plan.ranks == 1:
            self.only_rank(self._command_log)

    def only_rank(self, log: Path) -> None:
        """Give the output of what has a single rank its second name."""
        if log.exists() and not self._log(0).exists():
            os.link(log, self._log(0), follow_symlinks=False)

    def failure(self) -> Symptom | None:
        code = self._process.returncode if self._process is not None else None
        if code == 0:
            return None
        codes = self.reports()
        # A rank that torchrun does not name was ended by it, or failed in the same moment; what its log says
        # counts only if those named fell to another one's end.
        first = self._first(codes, codes)
        if first is None or first.echo:
            first = self._first(range(self.plan.ranks), codes)
        if first is not None and not (first.echo and code != 1):
            return first if first.exit_code is not None else replace(first, exit_code=code)
        return self.whole(code, self._command_log)

    def reports(self) -> Mapping[int, int]:
        """Exit code by rank, as far as torchrun told, the one that it saw first in front."""
        return torchrun.failures(tail(self._command_log))

    def whole(self, code: int | None, log: Path) -> Symptom | None:
        """What the command as a whole says, where no rank is known to have failed."""
        found = symptom(None, code, self._ended, log)
        if found is None or code != 127:
            return found
        said = found.error.partition("last output: ")[2]
        return replace(found, error=f"no such command ({describe_exit(code)}): {said}")

    def _first(self, ranks: Iterable[int], codes: Mapping[int, int]) -> Symptom | None:
        found = []
        for place, rank in enumerate(ranks):
            log = self._log(rank)
            # There is no clock of the rank's own: take when it last wrote something, else torchrun's order.
            when = log.stat().st_mtime if rank in self._apart else self._ended + place
            found.append(symptom(rank, codes.get(rank), when, log, self._record(rank)))
        return first_failure(one for one in found if one is not None)

    @property
    def _command_log(self) -> Path:
        return self.plan.directory / "command.log"


def _held_port() -> socket.socket:
    """A socket whose port the kernel gives to no one who asks for any, as long as it is open.

    It does not listen, so that whoever asks for this port and may reuse it (SO_REUSEADDR, as torch's store and most
    servers do) can listen there.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held
