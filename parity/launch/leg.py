"""A leg while it runs: what is common to legs of embedded ranks and of a command."""

import contextlib
import math
import shutil
import signal
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from parity.curves.numbers import as_number, as_step
from parity.errors import UsageError
from parity.launch import left, linux, marker, torchrun
from parity.launch.cause import Cause, oom_kills
from parity.launch.events import Event, LegEnding, LegProgress
from parity.launch.failure import Symptom
from parity.launch.files import Follower, json_lines
from parity.launch.plan import LegEnd, LegPlan, Status
from parity.plain import plain
from parity.untrusted import write_whole

__all__ = ["GRACE", "Leg", "StartError"]

GRACE = 2.0  # seconds between SIGTERM and SIGKILL; the whole end of a run is to take less than 5
DUMP = 0.5  # seconds for ranks to write their stacks before SIGTERM
ASK = 1.0  # seconds between looks at whether all ranks have recorded their end
SETTLE = 0.5  # for helpers (resource trackers, loader workers) to see that the leg has ended and go: ten looks
ACCIDENT = "parity-error.log"  # the traceback of an error of ours, for its report
# What an earlier run may have left in a leg's folder; old lines would pass for this run's.
LEFT = ("rank-*", "node-*.log", "command.log", ACCIDENT, torchrun.FOLDER)
GIVE_UP = 10.0  # after SIGKILL; a process that is still there hangs in the kernel, and no one can end it


class Leg(ABC):
    """Starts a plan's processes, watches them and ends them, a step at a time: `tick` never waits.

    Subclasses say how to start, whether all has ended by itself, and what failed.
    """

    def __init__(self, plan: LegPlan, run_id: str, gpus: tuple[str, ...], emit: Callable[[Event], None]) -> None:
        self.plan = plan
        self.run_id = run_id
        self.gpus = gpus
        self.emit = emit
        self.end: LegEnd | None = None  # set when no process is left
        self.ending_since: float | None = None  # monotonic; what ranks do from then on is our doing
        self.kin: set[psutil.Process] = set()  # its processes as they were seen; see `parity.launch.kin`
        self.wake: list[int] = []  # file descriptors that become readable when something happens
        self._started: float | None = None
        self._failed: float | None = None
        self._asked = 0.0  # when its ranks' records were last asked for an end
        self._recorded_end: float | None = None
        self._late: tuple[float, str] | None = None  # since when the leg is to be ended for its time, and why
        self._killed_before: int | None = None  # by the kernel, for want of memory
        self._quit: float | None = None  # when the leg had ended by itself
        self._status: Status | None = None  # given by us, against the exit codes
        self._why: str | None = None
        self._kill_at = math.inf
        self._broken: str | None = None  # an error of ours, after which the leg is only put down
        self._leftovers: set[int] = set()
        self._progress = Follower(plan.progress or plan.directory / "rank-0.jsonl")

    # What a kind of leg has to say.

    @abstractmethod
    def start(self) -> None:
        """Start the processes. May raise OSError; an error of the plan's is raised as `StartError`."""

    @abstractmethod
    def poll(self) -> bool:
        """Take in news. True once everything that the leg itself waits for has ended."""

    @abstractmethod
    def roots(self) -> list[psutil.Process]:
        """Processes from which every process of the leg stems."""

    @abstractmethod
    def close(self) -> None:
        """Give back what only this leg needs."""

    def collect_logs(self) -> None:  # noqa: B027  not every kind has to
        """Bring the output of ranks to its place. Called when all processes are gone, before `failure`."""

    def dump(self) -> None:
        """Have the ranks write where they are into their logs, where they can: embedded ones, and with a recorder."""
        if self.plan.launcher is not None:  # it would pass the signal on to whatever runs elsewhere, handler or not
            return
        able = {one.pid: one for one in self._members() if linux.catches(one.pid, signal.SIGUSR1)}
        parents = {one.pid: one.ppid() for one in able.values() if one.is_running()}
        # What a rank has forked, such as a loader's workers, has its handler too, and would write into its log.
        marker.send([one for pid, one in able.items() if parents.get(pid) not in able], signal.SIGUSR1)

    def ask_to_end(self) -> None:
        """Tell the leg's processes that they should end; they have a moment before `kill`."""
        marker.send(self._members(), signal.SIGTERM)

    def kill(self, left: Sequence[psutil.Process]) -> None:
        """End what is left here, and whatever else belongs to the leg, at once. Called until nothing is left."""
        marker.send(left, signal.SIGKILL)

    @abstractmethod
    def failure(self) -> Symptom | None:
        """What went wrong first; None when nothing did. Called when all processes are gone."""

    # What is the same for all.

    def running(self) -> None:
        """The processes are there: from now on time counts."""
        self._started = time.monotonic()
        self._killed_before = oom_kills()

    def failed(self) -> None:
        """A rank failed: the others get some time to fail by themselves."""
        if self._failed is None:
            self._failed = time.monotonic()

    def fail(self, why: str, exit_code: int | None = None) -> None:
        """Nothing runs and nothing will."""
        self._end_with("failed", exit_code, None, why, None)

    @property
    def gone(self) -> bool:
        """Whether no more news will come: it has ended by itself, or is only put down. Processes may be left."""
        return self._quit is not None or self._broken is not None

    def stop(self, status: Status, why: str, grace: float = GRACE) -> None:
        """Begin to end the leg: SIGTERM to every process now, SIGKILL after `grace` seconds."""
        if self.end is not None or self._broken is not None:
            return
        if self._started is None and not self.gone:
            # Asked for, and not there yet: should it still come, it goes with the process that starts it.
            self._end_with("not started", None, None, None, None)
            return
        if self.ending_since is None:
            self.ending_since = time.monotonic()
            if self._quit is None:
                self._status, self._why = status, why
                self.emit(LegEnding(self.plan.name, why))
            if grace > 0:
                self.ask_to_end()
        self._kill_at = min(self._kill_at, time.monotonic() + grace)

    def tick(self) -> None:
        """Go on as far as possible without waiting. Never raises: an error in here ends this leg and no other."""
        if self.end is not None:
            return
        if self._broken is None:
            try:
                self._go_on()
            except Exception as error:
                self.break_off(error)
        if self._broken is not None:
            self._put_down(self._broken)

    def break_off(self, error: Exception) -> None:
        """Something in here failed: nothing that the leg left is looked at any more, and its processes are killed."""
        self._broken = f"an error in parity, not in the leg: {type(error).__name__}: {plain(error)}"
        self._kill_at = time.monotonic()
        self.emit(LegEnding(self.plan.name, self._broken))
        with contextlib.suppress(UsageError):
            write_whole(self.plan.directory / ACCIDENT, "".join(traceback.format_exception(error)))

    def _put_down(self, why: str) -> None:
        now = time.monotonic()
        left: list[psutil.Process] = []
        with contextlib.suppress(Exception):  # if even that fails: the run kills what is left when it ends
            left = self._members()
            self.kill(left)
        if left and now < self._kill_at + GIVE_UP:
            return
        with contextlib.suppress(OSError):
            self._progress.close()
        seconds = 0.0 if self._started is None else now - self._started
        self.end = LegEnd(self.plan.name, "failed", None, seconds, seconds * self.plan.ranks, error=why)

    def _go_on(self) -> None:
        gone = self.poll()
        self._follow()
        now = time.monotonic()
        if self._started is None and not gone:
            return
        if gone and self._quit is None:
            self._quit = now
        if self.ending_since is None:
            self._watch(now)
        if self._quit is not None or self.ending_since is not None:
            self._settle(now)

    def _watch(self, now: float) -> None:
        """Decide whether the leg has to be ended."""
        if self._quit is not None:
            return
        if self._late is None:
            why = self._too_late(now)
            if why:
                self._late = (now, why)
                self.dump()
        elif now - self._late[0] > DUMP:
            self.stop("timed out", self._late[1])
        if self._failed is not None and now - self._failed > self.plan.peer_grace:
            self.stop("failed", f"a rank failed and others still run after {self.plan.peer_grace:g} s")

    def _too_late(self, now: float) -> str:
        """Why the leg's time is over; empty if it is not."""
        assert self._started is not None
        if self._recorded_end is None and now - self._asked > ASK:
            self._asked = now
            if left.ended(self.plan.directory, self.plan.ranks):
                self._recorded_end = now
        if self._recorded_end is not None and now - self._recorded_end > self.plan.end_grace:
            return f"every rank had recorded its end, and {self.plan.end_grace:g} s later the leg still ran"
        if now - self._started > self.plan.timeout:
            return f"no end after its time limit of {self.plan.timeout:g} s"
        return ""

    def _settle(self, now: float) -> None:
        """Wait for what is left, and end it when its time is over."""
        left = self._members()
        if self._quit is not None and self.ending_since is None and left and now - self._quit > SETTLE:
            self._leftovers = {process.pid for process in left}
            self.stop("failed", "")  # the status stays what the exit codes say
        if now >= self._kill_at:
            self.kill(left)
        if left and now < self._kill_at + GIVE_UP:
            return
        if self._quit is None and now < self._kill_at + GIVE_UP:
            return  # nothing runs any more, its last news have not arrived
        self._finish()

    def _finish(self) -> None:
        try:
            self.collect_logs()
        except (OSError, UsageError) as error:  # a full disk, say
            self._status, self._why = self._status or "failed", self._why or f"could not keep its output: {error}"
        first = self.failure()
        if self._status in ("interrupted", "stopped"):
            cause: Cause | None = "cancelled" if self._status == "interrupted" else None
            self._end_with(self._status, None, None, self._why, cause)
        elif self._status == "timed out":
            why, at_end = self._why or "", self._recorded_end is not None
            self._end_with(self._status, None, None, *left.late(self.plan.directory, self.plan.ranks, why, at_end))
        elif first is not None:
            words = left.failed(self.plan.directory, self.plan.ranks, first, self._killed_before)
            self._end_with("failed", first.exit_code, first.rank, *words)
        elif self._status is not None:
            self._end_with(self._status, None, None, self._why, "crashed")
        else:
            self._end_with("finished", 0, None, None, None)

    def _end_with(
        self, status: Status, code: int | None, rank: int | None, error: str | None, cause: Cause | None
    ) -> None:
        now = time.monotonic()
        seconds = 0.0 if self._started is None else (self._quit or now) - self._started
        self._follow()
        self._progress.close()
        self.end = LegEnd(
            name=self.plan.name,
            status=status,
            exit_code=code,
            seconds=seconds,
            device_seconds=seconds * self.plan.ranks,
            failing_rank=rank,
            error=None if error is None else plain(error, 1000),
            leftovers=len(self._leftovers),
            last_steps=left.last_steps(self.plan.directory, self.plan.ranks),
            cause=cause,
        )

    def _members(self) -> list[psutil.Process]:
        return marker.members(self.run_id, self.plan.name, [*self.roots(), *self.kin])

    def _follow(self) -> None:
        """Tell the latest of the steps that were recorded since the last look."""
        latest = None
        for line in json_lines(self._progress.read()):
            step, loss = as_step(line.get("step")), as_number(line.get("loss"))
            # The recorder names the step in lines of other kinds too.
            if step is not None and (loss is not None or line.get("kind") in (None, "step")):
                latest = (step, loss)
        if latest is not None:
            self.emit(LegProgress(self.plan.name, *latest))

    def _log(self, rank: int) -> Path:
        return self.plan.directory / f"rank-{rank}.log"

    def _record(self, rank: int) -> Path:
        return self.plan.directory / f"rank-{rank}.jsonl"

    def prepare(self) -> None:
        """Make the directory, without an earlier run's output."""
        directory = self.plan.directory
        if directory.is_symlink():  # what an earlier leg put there would be emptied, wherever it leads
            raise StartError(f"{directory} is a link: links are not followed")
        directory.mkdir(parents=True, exist_ok=True)
        for old in [found for pattern in LEFT for found in directory.glob(pattern)]:
            if old.is_dir() and not old.is_symlink():
                shutil.rmtree(old)
            else:
                old.unlink()
        if self.plan.cwd is not None and not self.plan.cwd.is_dir():
            raise StartError(f"no such working folder: {self.plan.cwd}")

    def environment(self) -> dict[str, str]:
        """What the leg's processes get in addition, whatever its kind."""
        return {**self.plan.env, **marker.environment(self.run_id, self.plan.name, self.plan.directory.absolute())}


class StartError(Exception):
    """The leg could not start, for a reason that one line tells."""

    def __init__(self, line: str, exit_code: int | None = None) -> None:
        super().__init__(line)
        self.exit_code = exit_code
