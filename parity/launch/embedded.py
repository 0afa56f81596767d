"""A leg whose ranks are forked from the warm process."""

import contextlib
import errno
import json
import math
import os
import signal
import time
from collections.abc import Callable

import psutil

from parity.launch import marker
from parity.launch.events import Event, LegStarted
from parity.launch.failure import Symptom, first_failure, symptom
from parity.launch.helpers import Warm
from parity.launch.leg import Leg
from parity.launch.plan import LegPlan

__all__ = ["EmbeddedLeg"]

FORKING = 60.0  # seconds in which a process that has imported torch forks a leg's ranks: it takes milliseconds


class EmbeddedLeg(Leg):
    """Asks the warm process for a leader, and learns from it how each rank ended."""

    def __init__(
        self, plan: LegPlan, run_id: str, gpus: tuple[str, ...], emit: Callable[[Event], None], warm: Warm
    ) -> None:
        super().__init__(plan, run_id, gpus, emit)
        self._warm = warm
        self._leader: psutil.Process | None = None
        self._led = False
        self._fork_by = math.inf  # when the ranks should be there at the latest
        self._ranks: list[psutil.Process] = []
        self._exits: dict[int, tuple[int, float, float]] = {}  # code; when, by both clocks
        self._torn = b""
        self._gone = False
        self._error: str | None = None

    def start(self) -> None:
        self.prepare()
        read, write = os.pipe()
        os.set_blocking(read, False)
        self.wake = [read]
        request = {
            "leg": self.plan.name,
            "ranks": self.plan.ranks,
            "directory": str(self.plan.directory.absolute()),
            "module": self.plan.module,
            "argv": self.plan.argv,
            "env": self.environment(),
            "cwd": os.path.abspath(self.plan.cwd or os.curdir),
        }
        try:
            self._warm.request(request, write)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise
            # It is gone; `poll` finds the pipe closed and says why.
        finally:
            os.close(write)

    def poll(self) -> bool:
        if not self._led:
            self._wait()
        while not self._gone:
            try:
                data = os.read(self.wake[0], 1 << 16)
            except BlockingIOError:
                break
            self._gone = not data
            *lines, self._torn = (self._torn + data).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        return self._gone

    def _wait(self) -> None:
        """For the ranks, as long as the warm process can be expected to fork them."""
        now = time.monotonic()
        if self._warm.ready is not None:
            self._fork_by = min(self._fork_by, now + FORKING)
        if now > self._fork_by:
            self._warm.error = f"the process that starts ranks has started none for {FORKING:g} s"
        self._gone = self._warm.error is not None

    def _hear(self, news: dict[str, object]) -> None:
        if "error" in news:
            self._error = str(news["error"])
        elif "leader" in news:
            pids = news["ranks"]
            assert isinstance(pids, list)
            self._led = True
            with contextlib.suppress(psutil.NoSuchProcess):
                self._leader = psutil.Process(int(str(news["leader"])))
            for pid in pids:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._ranks.append(psutil.Process(pid))
            self.running()
            self.emit(LegStarted(self.plan.name, self.plan.ranks, self.gpus, int(str(news["port"]))))
        elif "rank" in news:
            code = int(str(news["exit"]))
            when = float(str(news["time"])), float(str(news["monotonic"]))
            self._exits[int(str(news["rank"]))] = (code, *when)
            if code != 0:
                self.failed()

    def roots(self) -> list[psutil.Process]:
        return [] if self._leader is None else [self._leader]

    def dump(self) -> None:
        marker.send(self._ranks, signal.SIGUSR1)

    def close(self) -> None:
        for fd in self.wake:
            os.close(fd)
        self.wake = []

    def failure(self) -> Symptom | None:
        found = []
        for rank in range(self.plan.ranks):
            code, when, monotonic = self._exits.get(rank, (None, time.time(), time.monotonic()))
            late = self.ending_since is not None and monotonic >= self.ending_since
            if code != 0:
                one = symptom(rank, code, when, self._log(rank), self._record(rank), ended_by_us=late)
                if one is not None:
                    found.append(one)
        first = first_failure(found)
        if first is not None and not first.echo:
            return first
        if self._error is not None:
            return Symptom(None, None, 0.0, self._error, echo=False)
        if len(self._exits) < self.plan.ranks and self.ending_since is None:
            self._warm.poll()
            why = self._warm.error or "the process that waits for the ranks was killed"
            return Symptom(None, None, 0.0, why, echo=False)
        return first
