"""The left half of the data's way: a suite to legs on disk."""

import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from parity.errors import DeviceError, DiskError, UsageError
from parity.launch import Event, LegEnd, LegFinished, LegPlan, LegStarted, Machines, Slurm, Torchrun, run_legs
from parity.needs import check_needs
from parity.placeholders import fill
from parity.planning import needs
from parity.result import LegResult, LegStatus
from parity.rundir import RESERVE, RunDirectory, Snapshot, new_run_id, placeholders
from parity.schedule import WORDS, Device, Need, Slots, check_room
from parity.schedule.expected import expected
from parity.sources import LegSource
from parity.stopping import Stopping
from parity.suite import Leg, Suite, digest, train_options
from parity.suite_values import PERTURB
from parity.train.arguments import Arguments, to_argv

if TYPE_CHECKING:
    from parity.cache import Cache
    from parity.cache.inputs import Inputs

__all__ = ["Run", "check_only", "check_whole", "choose_device", "inputs_of", "leg_plan", "prepare", "run"]


# The logs that are ours; a leg may leave any others.
_LOG = re.compile(r"(rank-\d{1,6}|node-\d{1,6}|command|parity-error)\.log")
_LEAST_FREE = 1 << 20
# How legs ended that need not run again.
_KEPT = ("finished", "stopped")
# A leg finds torchrun even where the virtual environment was not activated.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


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
    if any(suite.launcher_of(suite.legs[name]).slurm for name in names) and shutil.which("srun", path=_PATH) is None:
        raise DeviceError(
            "launcher: slurm, but there is no srun here: start parity where jobs are submitted, or launcher: local"
        )
    done = _done(suite, names, device, out) if resume else {}
    names = [name for name in names if name not in done]
    keep = keep or resume
    suite_dir = (folder if suite_dir is None else suite_dir).absolute()
    check_needs(suite, names, folder, suite_dir, _PATH)
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

    return Inputs(suite, device=device, slots=slots, folder=folder, suite_dir=suite_dir, path=_PATH, without=without)


def _done(suite: Suite, names: Sequence[str], device: str, out: Path) -> dict[str, LegResult]:
    """The legs that an earlier run in `out` has finished, under a suite that says the same of them."""
    done = {}
    for name in names:
        with contextlib.suppress(UsageError):
            leg = RunDirectory(out).read_leg(name)
            if leg is not None and leg.status in _KEPT and leg.digest == digest(suite, name, device):
                done[name] = leg
    return done


def run(plan: Run, on_event: Callable[[Event], None]) -> dict[str, LegEnd]:
    """Run the legs; each leaves its folder with logs, records and `leg.json`, whatever happens to the others.

    Raises:
        DeviceError: a leg needs more slots than there are; nothing was started.
    """
    plans = {name: leg_plan(plan, name) for name in plan.only}
    sources = {
        name: LegSource(plan.directory, plan.snapshot, name, leg.cwd or Path(), plan.suite_dir)
        for name, leg in plans.items()
    }
    begun: set[str] = set()
    others = [name for name in plan.suite.legs if name not in plans]
    earlier = _done(plan.suite, others, plan.snapshot.device, plan.directory.path)
    stopping = Stopping(plan.directory, plan.snapshot, _followed(plan, plans), earlier)

    def listen(event: Event) -> None:
        if isinstance(event, LegStarted):
            begun.add(event.name)
            # If this process is killed, the leg was interrupted; nothing else says so.
            unfinished = LegEnd(event.name, "interrupted", error="parity itself ended while this leg ran")
            _write_leg(plan, plans[event.name], unfinished, None)
        if isinstance(event, LegFinished):
            # At once, so that a later leg's accident cannot take it away.
            name = event.end.name
            _write_leg(plan, plans[name], event.end, sources[name] if name in begun else None)
        stopping.take(event)
        on_event(event)

    plan.directory.reserve()
    try:
        ends = run_legs(
            list(plans.values()),
            slots=plan.slots,
            run_id=plan.snapshot.run_id,
            on_event=listen,
            ending=stopping.ending,
            machines=_machines(plan, plans),
        )
    finally:
        plan.directory.release()
    if plan.cache is not None:
        plan.cache.keep(plan.directory, plan.snapshot, plan.only)
    return ends


def _machines(plan: Run, plans: Mapping[str, LegPlan]) -> Machines | None:
    """The other machines, where there are any."""
    counts = [leg.launcher.nodes for leg in plans.values() if isinstance(leg.launcher, Torchrun)]
    if not counts:
        return None
    machines = Machines(plan.directory.path, 0, max(counts))
    machines.begin(plan.snapshot.run_id)
    return machines


def _followed(plan: Run, plans: Mapping[str, LegPlan]) -> dict[str, str]:
    """By leg, the file that is followed while it runs, of those that write below their own folder."""
    found = {}
    for name, leg in plans.items():
        file = Path(os.path.abspath(leg.progress or plan.directory.leg(name) / "rank-0.jsonl"))
        if file.is_relative_to(plan.directory.leg(name)):
            found[name] = str(file.relative_to(plan.directory.path.absolute()))
    return found


def check_whole(ends: Mapping[str, LegEnd]) -> None:
    """Go on only if nobody interrupted the run.

    Raises:
        KeyboardInterrupt: some leg was interrupted, or not even started.
    """
    if any(end.status in ("interrupted", "not started") for end in ends.values()):
        raise KeyboardInterrupt


def leg_plan(plan: Run, name: str) -> LegPlan:
    """One leg, as the launcher takes it."""
    suite, leg = plan.suite, plan.suite.legs[name]
    out = plan.directory.leg(name)
    values = placeholders(suite, name, leg, out, plan.snapshot.run_id, plan.suite_dir)
    need = plan.needs[name]
    common = {
        "name": name,
        "ranks": leg.ranks,
        "directory": out,
        "env": {"PATH": _PATH, **suite.env, **leg.env},
        "cwd": plan.folder / fill(leg.cwd or suite.cwd or ".", values),
        "timeout": leg.timeout or suite.timeout,
        "cuda": need.cuda,
        "expected": need.seconds,
        "early": need.early,
        "launcher": _launcher(suite, leg, values),
    }
    command = suite.command_of(leg)
    if command is None:
        options = train_options(suite, leg)
        arguments = Arguments(options, leg.sizes(), suite.steps, suite.seed, "cuda" if need.cuda else "cpu")
        return LegPlan(module="parity.train", argv=tuple(to_argv(arguments)), **common)  # type: ignore[arg-type]
    filled: str | tuple[str, ...]
    if isinstance(command, str):
        filled = fill(command, values, quote=True)
    else:
        filled = tuple(fill(part, values) for part in command)
    source = leg.source or suite.source
    progress = None if source is None else common["cwd"] / fill(source.file, values)  # type: ignore[operator]
    return LegPlan(command=filled, progress=progress, **common)  # type: ignore[arg-type]


def _launcher(suite: Suite, leg: Leg, values: Mapping[str, object]) -> Slurm | Torchrun | None:
    launcher = suite.launcher_of(leg)
    nodes = launcher.nodes(leg.ranks)
    if launcher.torchrun is not None and nodes > 1:
        return Torchrun(nodes, launcher.torchrun.rdzv_endpoint, f"{values['run_id']}-{values['leg']}")
    if launcher.slurm is None:
        return None
    options = tuple(fill(option, values) for option in launcher.slurm.options)
    return Slurm(nodes, options, launcher.slurm.max_jobs)


def _write_leg(plan: Run, leg_plan: LegPlan, end: LegEnd, source: LegSource | None) -> None:
    """Write `leg.json`. What a leg does to its own folder harms that leg alone, which then counts as not run.

    Raises:
        DiskError: the disk is full; what is written here has still found room.
    """
    result = _leg_result(plan, leg_plan, end, source)
    try:
        plan.directory.write_leg(result)
    except DiskError:
        plan.directory.release()
        with contextlib.suppress(DiskError):
            plan.directory.write_leg(result)
        if shutil.disk_usage(plan.directory.path).free < _LEAST_FREE + RESERVE:
            raise DiskError(
                f"{plan.directory.path}: the disk is full, so the legs that still ran were ended; make room, then"
                " parity run --resume runs what is missing"
            ) from None


def _leg_result(plan: Run, leg_plan: LegPlan, end: LegEnd, source: LegSource | None) -> LegResult:
    """What `leg.json` says; a leg that ended well and left no metrics has the status `no curve`."""
    status: LegStatus = end.status
    error, file = end.error, None
    if source is not None:
        file, missing = source.collect()
        if missing and status == "finished":
            status, error = "no curve", missing
    folder = plan.directory.leg(end.name)
    leg = plan.suite.legs[end.name]
    return LegResult(
        name=end.name,
        run_id=plan.snapshot.run_id,
        digest=digest(plan.suite, end.name, plan.snapshot.device),
        status=status,
        layout=leg.layout.model_dump(),
        ranks=leg.ranks,
        command=_shown(leg, leg_plan),
        cause=None if status == "no curve" else end.cause,
        exit_code=end.exit_code,
        failing_rank=end.failing_rank,
        error=error,
        seconds=round(end.seconds, 3),
        device_seconds=round(end.device_seconds, 3),
        leftovers=end.leftovers,
        last_steps=dict(end.last_steps),
        source=file,
        logs=sorted(f"legs/{end.name}/{path.name}" for path in folder.glob("*.log") if _LOG.fullmatch(path.name)),
    )


def _shown(leg: Leg, plan: LegPlan) -> str:
    """The command that a person can type to run the leg by hand."""
    nodes = 1 if plan.launcher is None else plan.launcher.nodes
    if plan.command is not None:
        shown = plan.command if isinstance(plan.command, str) else shlex.join(plan.command)
    else:
        where = "--standalone" if plan.launcher is None else f"--nnodes {nodes} --rdzv-endpoint HOST:PORT"
        per_node = leg.ranks // nodes
        shown = f"torchrun {where} --nproc-per-node {per_node} -m {plan.module} {shlex.join(plan.argv)}"
    if isinstance(plan.launcher, Slurm):
        return shlex.join(["srun", f"--nodes={nodes}", "--ntasks-per-node=1", *plan.launcher.options]) + f" {shown}"
    return shown


def check_only(suite: Suite, only: Sequence[str]) -> list[str]:
    """The legs to run, in the suite's order: those named, or all that some comparison needs.

    Raises:
        UsageError: a name is no leg of the suite, or this process's environment would move every leg's weights.
    """
    if PERTURB in os.environ:
        raise UsageError(f"{PERTURB}: is set here, and would move the weights of every leg: unset it")
    unknown = [name for name in only if name not in suite.legs]
    if unknown:
        raise UsageError(*(f"--only {name}: no such leg; there is {', '.join(suite.legs)}" for name in unknown))
    return [name for name in suite.legs if name in (only or suite.compared())]
