"""A leg that Slurm runs: `srun` starts the leg's command once on each node, and torchrun there the node's ranks.

Inside an allocation (`SLURM_JOB_ID` is set) a leg is a step of it; elsewhere `srun` waits for a job of the leg's own.
"""

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from parity.launch import marker, torchrun
from parity.launch.events import Event, LegStarted
from parity.launch.files import tail
from parity.launch.leg import GRACE
from parity.launch.nodes import NodesLeg
from parity.launch.plan import LegPlan, Slurm, Status

__all__ = ["SlurmLeg", "cancel", "job_name"]

# Cancelling is a message to Slurm's daemons; a controller that does not answer in this time is not waited for.
PATIENCE = 10.0
TO_SRUN = 3.0  # seconds that srun gets, once told to end its job at once, before it is killed itself
# What srun says of a task that ended badly: "srun: error: n1: task 1: Exited with exit code 1", or "... Killed".
FAILED = re.compile(
    r"^srun: error: [^\s:]+: tasks? (?P<task>\d{1,9})[\d,-]*: (?P<how>Exited with exit code (?P<code>\d{1,3})|.*)$",
    re.MULTILINE,
)

# A signal, and names. Steps go by numbers only, and get the signal at once; a job that is cancelled gets SIGTERM, and
# SIGKILL half a minute later, but only that ends one that waits.
CANCEL = """\
how=$1; shift
squeue --me --steps --noheader --format="%i %j" | while read -r step of; do
    for name; do [ "$of" != "$name" ] || scancel --quiet --signal="$how" "$step"; done
done
[ "$how" = TERM ] || for name; do scancel --quiet --name="$name"; done"""


def job_name(run_id: str, leg: str) -> str:
    """The name of a leg's job or step, which no other run's has."""
    return f"parity-{run_id}-{leg}"


def cancel(names: Sequence[str], how: str = "KILL") -> list[str]:
    """The command that ends legs' jobs and steps by their names.

    Args:
        names: as `job_name` gives them.
        how: `TERM` asks the tasks to end, and leaves jobs that wait where they are; `KILL` ends both.
    """
    return ["sh", "-c", CANCEL, "sh", how, *names]


class SlurmLeg(NodesLeg):
    """Runs `srun`, which leaves what it says in `command.log`, and each node's output in `node-<k>.log`.

    The leg's time begins when a task runs, however long its job has waited. What Slurm started is Slurm's to end: it
    is asked to, by the job's name.
    """

    def __init__(self, plan: LegPlan, run_id: str, emit: Callable[[Event], None]) -> None:
        assert isinstance(plan.launcher, Slurm)
        super().__init__(plan, run_id, (), emit, plan.launcher.nodes)
        self._options = plan.launcher.options
        self._name = job_name(run_id, plan.name)
        self._cancelling: list[subprocess.Popen[bytes]] = []
        self._forced: float | None = None  # when srun was told to end its job at once

    def start(self) -> None:
        self.prepare()
        folder = self.plan.directory.absolute() / torchrun.FOLDER
        folder.mkdir()
        rendezvous = {
            # In a file, which every node sees as it sees the records: there is no port to choose before the nodes
            # are known, and none that another leg could hold.
            "PET_RDZV_CONF": f"store_type=file,join_timeout={math.ceil(self.plan.timeout)}",
            "PET_RDZV_ENDPOINT": str(folder / "rendezvous"),
        }
        self.spawn(self._srun(), {**self.variables(), **rendezvous})

    def _srun(self) -> list[str]:
        within = "SLURM_JOB_ID" in os.environ
        return [
            "srun",
            f"--job-name={self._name}",
            f"--nodes={self.nodes}",
            f"--ntasks={self.nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={self.plan.ranks // self.nodes}",
            # A job that outlives everyone who would cancel it ends by this.
            f"--time={math.ceil(self.plan.timeout / 60) + 1}",
            *(["--exact"] if within else []),  # else a step takes whole nodes, and the next leg waits for its end
            *self._options,
            "--kill-on-bad-exit=0",  # the other nodes' ranks get time to say what they saw
            f"--export=ALL,{marker.NODE}=slurm",
            f"--output={str(self.plan.directory.absolute()).replace('%', '%%')}/node-%t.log",
            *self.on_node("SLURM_PROCID", "SLURMD_NODENAME"),
        ]

    def environment(self) -> dict[str, str]:
        added = super().environment()
        if self.plan.module is not None:
            # The nodes' ranks find the modules that this process finds.
            added["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
            added["PYTHONSAFEPATH"] = "1"
        return added

    def poll(self) -> bool:
        gone = super().poll()
        self._cancelling = [one for one in self._cancelling if one.poll() is None]
        if self._started is None and any(self.plan.directory.glob("node-*.log")):
            self.running()
            self.emit(LegStarted(self.plan.name, self.plan.ranks, (), 0))
        if not gone and self._failed is None and FAILED.search(tail(self._command_log)):
            self.failed()
        return gone

    def stop(self, status: Status, why: str, grace: float = GRACE) -> None:
        if self._started is None and not self.gone and self._process is not None:
            self.running()  # its job waits, and is to be cancelled like one that runs
            why, grace = f"{why} while its job waited for nodes", 0
        super().stop(status, why, grace)

    def ask_to_end(self) -> None:
        self._cancel("TERM")

    def kill(self, left: Sequence[psutil.Process]) -> None:
        now = time.monotonic()
        if self._forced is None:
            self._forced = now
            self._cancel("KILL")
            marker.send(left, signal.SIGTERM)  # srun then kills its tasks, and gives its job back
        elif now - self._forced > TO_SRUN:
            super().kill(left)

    def _cancel(self, how: str) -> None:
        with suppress(OSError):
            self._cancelling.append(
                subprocess.Popen(
                    cancel([self._name], how),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )

    def close(self) -> None:
        super().close()
        deadline = time.monotonic() + PATIENCE
        for one in self._cancelling:
            try:
                one.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()

    def first_node(self) -> tuple[int, int | None] | None:
        failed = FAILED.search(tail(self._command_log))
        if failed is None:
            return None
        if failed["code"] is not None:
            return int(failed["task"]), int(failed["code"])
        number = next((number for number in signal.Signals if signal.strsignal(number) == failed["how"]), None)
        return int(failed["task"]), None if number is None else -number
