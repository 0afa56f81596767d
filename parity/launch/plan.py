"""What a leg is to the launcher, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from parity.launch.cause import Cause

__all__ = ["LegEnd", "LegPlan", "Slurm", "Status", "Torchrun"]

Status = Literal["finished", "failed", "timed out", "interrupted", "stopped", "not started"]


@dataclass(frozen=True)
class Slurm:
    """Have Slurm run a leg.

    Attributes:
        nodes: how many; each gets as many ranks as any other.
        options: more options of `srun`.
        most: legs that Slurm is asked to run at a time; None for all.
    """

    nodes: int
    options: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True)
class Torchrun:
    """Run a leg's parts on several machines, each by a parity of its own.

    Attributes:
        nodes: how many machines; each gets as many ranks as any other.
        endpoint: where they meet, as torchrun takes it: machine 0's name and a port.
        name: of their meeting, which no other leg's has.
    """

    nodes: int
    endpoint: str
    name: str


@dataclass(frozen=True)
class LegPlan:
    """One leg to run. Either `module` or `command` says what.

    Attributes:
        name: the leg's name; unique in a run.
        ranks: world size, and so the slots the leg takes.
        directory: where its logs and records go; the launcher creates it, and removes an earlier run's
            `rank-*`, `node-*`, `command.log` and `torchrun/` from it. May not be a link.
        module: an importable package such as `parity.train`, whose `__main__.main(argv)` runs in every rank,
            in processes forked from one that has imported torch already.
        argv: arguments for the module.
        command: a line for `sh -c`, or a list of arguments, run once; it starts its own ranks.
        env: additions to the environment. What the interpreter or a library reads when it starts (`PYTHONPATH`,
            `LD_LIBRARY_PATH`) comes too late for embedded ranks; `OMP_NUM_THREADS` is passed on to torch.
        cwd: working folder; None for the current one.
        timeout: wall-clock seconds from the start of its processes to the end of the last one.
        cuda: ranks take GPUs, and `CUDA_VISIBLE_DEVICES`, or what other accelerators have instead, gets the leg's
            own; without it that is empty unless `env` has one.
        expected: seconds that the leg will likely take, or of another unit, if that is the same for all.
        early: start before legs that are not, however long these are.
        peer_grace: seconds that embedded ranks get to fail by themselves, and to write why, after one failed.
        end_grace: seconds that the processes get to go after every rank has recorded that it ended.
        launcher: what starts the leg's ranks, if not this machine alone.
        progress: file of JSON lines with `step` and perhaps `loss`, followed while the leg runs;
            None for `rank-0.jsonl` in `directory`.
    """

    name: str
    ranks: int
    directory: Path
    module: str | None = None
    argv: tuple[str, ...] = ()
    command: str | tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    timeout: float = 1800.0
    cuda: bool = False
    expected: float = 0.0
    early: bool = False
    peer_grace: float = 5.0
    end_grace: float = 60.0
    launcher: Slurm | Torchrun | None = None
    progress: Path | None = None

    def __post_init__(self) -> None:
        if (self.module is None) == (self.command is None):
            raise ValueError(f"leg {self.name}: give either a module or a command")
        if self.ranks < 1:
            raise ValueError(f"leg {self.name}: a leg has at least one rank, not {self.ranks}")

    @property
    def slots(self) -> int:
        """How many slots of this machine the leg takes."""
        if isinstance(self.launcher, Torchrun):
            return self.ranks // self.launcher.nodes
        return 0 if self.launcher is not None else self.ranks


@dataclass(frozen=True)
class LegEnd:
    """How a leg ended, as far as its processes tell. Whether its curve is complete is judged by reading it.

    Attributes:
        name: the leg.
        status: `finished` means that every rank, or the command, ended with exit code 0.
        exit_code: of the first failing rank or of the command, negative for a signal; 0 when finished; None
            when the leg was ended by its time limit or an interruption, or never started.
        seconds: wall time from the start of its processes to the end of the last one.
        device_seconds: wall time times ranks.
        failing_rank: the rank that failed first, where that can be told.
        error: one line, that rank's own error rather than what its failure did to the others.
        cause: why it did not finish, where its processes tell; None also where it could not start.
        leftovers: processes still there after the leg's own end, and killed.
        last_steps: the last step that each rank recorded.
    """

    name: str
    status: Status
    exit_code: int | None = None
    seconds: float = 0.0
    device_seconds: float = 0.0
    failing_rank: int | None = None
    error: str | None = None
    cause: Cause | None = None
    leftovers: int = 0
    last_steps: Mapping[int, int] = field(default_factory=dict)
