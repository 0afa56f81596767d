"""What is to be run, and on what: a suite, its legs that need to run, and a folder for everything they leave."""

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parity.errors import DeviceError, UsageError
from parity.needs import check_needs
from parity.planning import needs
from parity.result import LegResult
from parity.rundir import RunDirectory, Snapshot, new_run_id
from parity.schedule import WORDS, Device, Need, Slots, check_room
from parity.schedule.expected import expected
from parity.suite import Suite, digest
from parity.suite.values import PERTURB

if TYPE_CHECKING:
    from parity.cache import Cache
    from parity.cache.inputs import Inputs

__all__ = [
    "PATH",
    "Run",
    "check_environment",
    "check_only",
    "choose_device",
    "finished_before",
    "inputs_of",
    "prepare",
]

# A leg finds torchrun even where the virtual environment was not activated.
PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
"""Where legs' commands are looked for."""


@dataclass(frozen=True)
class Run:
    """What is to be run.

    Attributes:
        suite: the suite.
        folder: what relative working folders are relative to.
        suite_dir: the folder that the suite file lies in, absolute.
        directory: where everything goes.
        snapshot: the suite as it is recorded in the run directory.
        only: the legs to run.
        slots: devices.
        needs: by leg, what it takes.
        cache: where legs come from, and are kept.
    """

    suite: Suite
    folder: Path
    suite_dir: Path
    directory: RunDirectory
    snapshot: Snapshot
    only: Sequence[str]
    slots: Slots
    needs: Mapping[str, Need]
    cache: "Cache | None" = None


def choose_device(suite: Suite, only: Sequence[str], slots: Slots) -> tuple[Device, str]:
    """What all legs run on, and a note where that needs saying.

    Raises:
        DeviceError: the suite asks for GPUs, or for more ranks at a time, than the machine has.
    """
    ranks = {name: suite.launcher_of(leg := suite.legs[name]).slots(leg.ranks) for name in only}
    need, have, make = max(ranks.values()), len(slots.gpus), slots.accelerator
    embedded = [name for name in only if suite.command_of(suite.legs[name]) is None]
    device, note = suite.device, ""
    if device not in ("auto", "cpu"):
        if embedded and device != "cuda":
            raise DeviceError(f"device: {device}, but the embedded trainer of {embedded[0]} takes cpu or cuda")
        have = have if make.device == device else 0
        if have < need:
            large = ", ".join(name for name in only if ranks[name] > have)
            raise DeviceError(
                f"device: {device}, but {large} needs up to {need} {WORDS[device]}s and this machine offers {have};"
                " a smaller layout, or device: cpu"
            )
    if device == "auto":
        device = make.device if have else "cpu"
        if 0 < have < need:
            device = "cpu"
            note = f"{have} {make.word}s are too few for a leg of {need} ranks, so all legs run on the CPU"
        elif embedded and device not in ("cpu", "cuda"):
            device, note = "cpu", f"the embedded trainer takes no {make.make} device, so all legs run on the CPU"
    check_room((Need(name, ranks[name], device != "cpu") for name in only), slots)
    return device, note


def check_environment() -> None:
    """Go on only if this process's environment, which legs inherit, would not move every leg's weights.

    Raises:
        UsageError: it would.
    """
    if PERTURB in os.environ:
        raise UsageError(f"{PERTURB}: is set here, and would move the weights of every leg: unset it")


def check_only(suite: Suite, only: Sequence[str]) -> list[str]:
    """The legs to run, in the suite's order: those named, or all that some comparison needs.

    Raises:
        UsageError: a name is no leg of the suite; or as `check_environment`.
    """
    check_environment()
    unknown = [name for name in only if name not in suite.legs]
    if unknown:
        raise UsageError(*(f"--only {name}: no such leg; there is {', '.join(suite.legs)}" for name in unknown))
    return [name for name in suite.legs if name in (only or suite.compared())]


def prepare(
    suite: Suite,
    *,
    folder: Path,
    out: Path,
    slots: Slots,
    reproduce: str,
    suite_dir: Path | None = None,
    only: Sequence[str] = (),
    keep: bool = False,
    resume: bool = False,
    durations: Path | None = None,
    node: int | None = None,
    cache: "Cache | None" = None,
) -> tuple[Run, tuple[str, ...]]:
    """Make room for a run, and write down what is to be run.

    Args:
        suite: the suite.
        folder: what relative working folders are relative to.
        out: the run directory; an earlier run there is moved aside, unless it is kept.
        slots: devices.
        reproduce: the command line that runs it.
        suite_dir: the folder that the suite file lies in; `folder` if not given.
        only: the legs to run; those that some comparison needs if there are none.
        keep: leave an earlier run's other legs where they are.
        resume: leave also those of these legs that have finished there under the same suite.
        durations: the earlier run that tells how long legs take; the one in `out` if not given.
        cache: has legs that need not run, and keeps those that now do.
        node: 0 where this is the first of several machines.

    Returns:
        What `run` takes; and what a person should know before it begins.

    Raises:
        DeviceError: a leg needs more devices than there are.
        PackageError: the legs' Python lacks a module that the suite says they import.
        UsageError: `out` is no place for a run.
    """
    names = list(only or suite.compared())
    device, note = choose_device(suite, names, slots)
    if any(suite.launcher_of(suite.legs[name]).slurm for name in names) and shutil.which("srun", path=PATH) is None:
        raise DeviceError(
            "launcher: slurm, but there is no srun here: start parity where jobs are submitted, or launcher: local"
        )
    done = finished_before(suite, names, device, out) if resume else {}
    names = [name for name in names if name not in done]
    keep = keep or resume
    suite_dir = (folder if suite_dir is None else suite_dir).absolute()
    check_needs(suite, names, folder, suite_dir, PATH)
    if node is None and any(suite.launcher_of(suite.legs[name]).torchrun for name in names):
        raise UsageError("launcher: torchrun: say which machine this is, with --node-rank 0 on the first")
    takes = needs(suite, names, device, expected(suite, names, durations or out))
    if cache is not None:
        cache.look(suite, names, lambda: inputs_of(suite, device, slots, folder, suite_dir, cache.without))
    directory, moved = RunDirectory.create(out, keep=keep, legs=names)
    snapshot = Snapshot(run_id=new_run_id(), reproduce=reproduce, device=device, suite=suite)
    directory.write("suite.json", snapshot.model_dump_json(indent=1) + "\n")
    reused = {} if cache is None else cache.take(directory, snapshot)
    names = [name for name in names if name not in reused]
    left_out = [] if keep else [name for name in suite.legs if name not in suite.compared()]
    notes = (
        f"the earlier run is now in {moved}" if moved else "",
        note,
        f"finished already: {', '.join(done)}" if done else "",
        f"not run, for no comparison needs it: {', '.join(left_out)}" if left_out else "",
    )
    by_name = {need.name: need for need in takes}
    made = Run(suite, folder, suite_dir, directory, snapshot, names, slots, by_name, cache)
    return made, (*filter(None, notes), *(cache.told() if cache is not None else ()))


def inputs_of(
    suite: Suite, device: str, slots: Slots, folder: Path, suite_dir: Path, without: Sequence[Path]
) -> "Inputs":
    """What legs depend on, as it is now; arguments as of `parity.cache.inputs.Inputs`."""
    from parity.cache.inputs import Inputs

    return Inputs(suite, device=device, slots=slots, folder=folder, suite_dir=suite_dir, path=PATH, without=without)


def finished_before(suite: Suite, names: Sequence[str], device: str, out: Path) -> dict[str, LegResult]:
    """The legs that an earlier run in `out` has finished, under a suite that says the same of them.

    Not one whose metrics are gone. One that was ended early counts as long as nothing in the suite is another, for it
    was wrong beside this baseline and by these bounds.
    """
    directory, done = RunDirectory(out), {}
    for name in names:
        with contextlib.suppress(UsageError):
            leg = directory.read_leg(name)
            if leg is None or leg.digest != digest(suite, name, device):
                continue
            kept = leg.status == "finished" or (leg.status == "stopped" and directory.read_snapshot().suite == suite)
            if kept and leg.source is not None and (out / leg.source).exists():
                done[name] = leg
    return done
