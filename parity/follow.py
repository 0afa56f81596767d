"""Be one of the machines of a run that machine 0 leads: run this one's parts of the legs when they come."""

from collections.abc import Callable
from pathlib import Path

from parity.errors import DeviceError, UsageError
from parity.launch import Event, LegEnd, Machines, run_legs
from parity.planning import needs
from parity.prepare import Run
from parity.run import leg_plan
from parity.rundir import RunDirectory
from parity.schedule import Slots
from parity.schedule.expected import expected
from parity.suite import Suite

__all__ = ["follow", "followed"]


def followed(suite: Suite, node: int) -> list[str]:
    """The legs that have a part on this machine.

    Raises:
        UsageError: there is none.
    """
    launchers = {name: suite.launcher_of(suite.legs[name]) for name in suite.compared()}
    names = [
        name
        for name, launcher in launchers.items()
        if launcher.torchrun is not None and launcher.nodes(suite.legs[name].ranks) > node
    ]
    if not names:
        raise UsageError(f"--node-rank {node}: no leg of the suite takes so many machines; see launcher: torchrun")
    return names


def follow(
    suite: Suite,
    *,
    node: int,
    folder: Path,
    suite_dir: Path,
    out: Path,
    slots: Slots,
    on_event: Callable[[Event], None],
) -> dict[str, LegEnd]:
    """Run this machine's parts, until machine 0 has ended its run.

    Args:
        suite: the suite; the same as machine 0's.
        node: which machine this is, from 1.
        folder: what relative working folders are relative to.
        suite_dir: the folder that the suite file lies in.
        out: machine 0's run directory.
        slots: this machine's devices.
        on_event: called with what happens.

    Returns:
        How this machine's parts ended; `not started` for those that machine 0 did not ask for.

    Raises:
        DeviceError: this machine has too few devices for its part of a leg.
        UsageError: the suite needs no such machine; machine 0 has begun no run, or that of another suite.
    """
    names = followed(suite, node)
    machines = Machines(out, node)
    run_id = machines.wait()
    directory = RunDirectory(out)
    snapshot = directory.read_snapshot()
    if snapshot.run_id != run_id or snapshot.suite != suite:
        raise UsageError(f"{out}: machine 0 runs another suite: give the same one, and the same options, everywhere")
    times = expected(suite, names, out)
    takes = {need.name: need for need in needs(suite, names, snapshot.device, times)}
    run = Run(suite, folder, suite_dir.absolute(), directory, snapshot, names, slots, takes)
    machines.begin(run_id)
    try:
        return run_legs(
            [leg_plan(run, name) for name in names],
            slots=slots,
            run_id=f"{run_id}.{node}",  # another than machine 0's: each ends what is its own
            on_event=on_event,
            machines=machines,
        )
    except DeviceError:
        machines.leave()  # so that nobody waits for this one
        raise
