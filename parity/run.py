"""The left half of the data's way: a suite to legs on disk."""

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from parity.errors import DiskError
from parity.launch import Event, LegEnd, LegFinished, LegPlan, LegStarted, Machines, Slurm, Torchrun, run_legs
from parity.placeholders import fill
from parity.prepare import PATH, Run, finished_before
from parity.result import LegResult, LegStatus
from parity.rundir import RESERVE, placeholders
from parity.sources import LegSource
from parity.suite import Leg, Suite, digest, train_options
from parity.train.arguments import Arguments, to_argv

if TYPE_CHECKING:
    from parity.stopping import Stopping

__all__ = ["check_whole", "leg_plan", "run"]


# The logs that are ours; a leg may leave any others.
_LOG = re.compile(r"(rank-\d{1,6}|node-\d{1,6}|command|parity-error)\.log")
_LEAST_FREE = 1 << 20


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
    stopping = _stopping(plan, plans)

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
        if stopping is not None:
            stopping.take(event)
        on_event(event)

    plan.directory.reserve()
    try:
        ends = run_legs(
            list(plans.values()),
            slots=plan.slots,
            run_id=plan.snapshot.run_id,
            on_event=listen,
            ending={} if stopping is None else stopping.ending,
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


def _stopping(plan: Run, plans: Mapping[str, LegPlan]) -> "Stopping | None":
    """What ends candidates early, where the suite wants that."""
    if plan.suite.stop != "first-divergence":
        return None
    from parity.stopping import Stopping

    others = [name for name in plan.suite.legs if name not in plans]
    earlier = finished_before(plan.suite, others, plan.snapshot.device, plan.directory.path)
    return Stopping(plan.directory, plan.snapshot, _followed(plan, plans), earlier)


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
        "env": {"PATH": PATH, **suite.env, **leg.env},
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
        full = shutil.disk_usage(plan.directory.path).free < _LEAST_FREE + RESERVE
        if full and result.status in ("failed", "no curve"):
            # Its own log may have found no room to say so.
            error = "; ".join(filter(None, (result.error, "the disk was full")))
            result = result.model_copy(update={"error": error})
        with contextlib.suppress(DiskError):
            plan.directory.write_leg(result)
        if full:
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
