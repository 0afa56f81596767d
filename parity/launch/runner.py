"""Run a suite's legs: start what fits, watch it, end it, and leave nothing behind."""

import math
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

import psutil

from parity.launch import kin, linux, marker
from parity.launch.command import CommandLeg
from parity.launch.embedded import EmbeddedLeg
from parity.launch.events import DevicesHeld, Event, Interrupted, LegFinished, Tick
from parity.launch.helpers import Guard, Warm
from parity.launch.leg import Leg, StartError
from parity.launch.machines import MachineLeg, Machines
from parity.launch.plan import LegEnd, LegPlan, Slurm, Torchrun
from parity.launch.signals import StopRequests, stop_requests
from parity.launch.slurm import SlurmLeg, cancel, job_name
from parity.schedule import DeviceLocks, Need, Slots, packed, start_now

__all__ = ["run_legs"]

LOOK = 1.0  # seconds between looks at who is whose child
SHOWN = 1.0  # seconds between the events that only tell of time
TICK = 0.05  # seconds between looks at progress and clocks; ends of processes wake the loop at once


def run_legs(
    plans: Sequence[LegPlan],
    *,
    slots: Slots,
    run_id: str,
    on_event: Callable[[Event], None],
    ending: Mapping[str, str] = MappingProxyType({}),
    machines: Machines | None = None,
) -> dict[str, LegEnd]:
    """Run every leg, side by side where slots allow, each to its own end.

    SIGINT, SIGTERM and SIGHUP end all ranks and make this return as usual: running legs are `interrupted`,
    waiting ones `not started`, and `on_event` has got an `Interrupted`. A second signal kills at once.

    Args:
        plans: the legs; names are unique.
        slots: room for ranks, usually `Slots.here()`.
        run_id: unique among the runs on this machine. Marks every process of the run.
        on_event: called from within the loop, so it should be quick. If it raises, all legs are ended and the
            exception passes on.
        ending: legs to end, and why, their status then being `stopped`; looked at while the run goes, so that
            `on_event` can add to it.
        machines: the others of a run of several, which has begun there.

    Returns:
        How each leg ended, in the order of `plans`.

    Raises:
        DeviceError: a leg needs more slots than there are. Nothing has been started.
        KeyboardInterrupt: one of these signals came when there was no leg to end any more.
    """
    names = [plan.name for plan in plans]
    if len(set(names)) != len(names):
        raise ValueError(f"two legs of the same name among {names}")
    schedule = packed([_need(plan) for plan in plans], slots)
    by_name = {plan.name: plan for plan in plans}
    run = _Run([by_name[place.need.name] for place in schedule.places], slots, run_id, on_event, ending, machines)
    with stop_requests() as requests:
        reaper_before = linux.become_subreaper(True)
        try:
            run.start_helpers()
            run.loop(requests)
        finally:
            run.clean_up()
            linux.become_subreaper(reaper_before)
    if requests.count and not run.interrupted:  # whoever goes on to the next run would never know
        raise KeyboardInterrupt
    return {name: run.ends[name] for name in names}


class _Run:
    def __init__(
        self,
        plans: Sequence[LegPlan],
        slots: Slots,
        run_id: str,
        emit: Callable[[Event], None],
        ending: Mapping[str, str],
        machines: Machines | None,
    ) -> None:
        self.ends: dict[str, LegEnd] = {}
        self.interrupted = False
        self._waiting = list(plans)
        self._modules = sorted({plan.module for plan in plans if plan.module is not None and plan.launcher is None})
        self._jobs = [job_name(run_id, plan.name) for plan in plans if isinstance(plan.launcher, Slurm)]
        self._running: list[Leg] = []
        self._slots = self._free = slots
        self._locks = DeviceLocks(slots.identities)
        self._held_since: float | None = None  # by others, what legs could have; infinity once that was said
        self._run_id = run_id
        self._emit = emit
        self._ending = ending
        self._machines = machines
        # What legs have to tell, until `_pass_on`: an exception of the receiver's is none of the leg's.
        self._told: deque[Event] = deque()
        self._warm: Warm | None = None
        self._guard: Guard | None = None
        self._selector = selectors.DefaultSelector()
        self._ticked = self._look_at = time.monotonic()
        self._before = {child.pid for child in psutil.Process().children()}

    def start_helpers(self) -> None:
        """The guard, and the warm process if a leg will need it: its imports take the longest."""
        self._guard = Guard(self._run_id, cancel(self._jobs) if self._jobs else [])
        if self._modules:
            self._start_warm()

    def loop(self, requests: StopRequests) -> None:
        """Until every leg has ended."""
        while self._waiting or self._running:
            self._obey(requests)
            self._end_early()
            self._confer()
            self._start_legs()
            self._selector.select(TICK)
            self._listen_to_warm()
            for leg in list(self._running):
                leg.tick()
                self._pass_on()
                if leg.gone:
                    self._unwatch(leg)  # its descriptors stay readable, and the loop would spin
                if leg.end is not None:
                    self._drop(leg)
            self._look()
            if self._running and time.monotonic() - self._ticked >= SHOWN:
                self._ticked = time.monotonic()
                self._emit(Tick())

    def _look(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        assert self._guard is not None
        began = time.thread_time()
        self._guard.name(kin.trace(self._running, self._others()))
        # On a machine with very many processes a look takes long: never more than a fiftieth of the time.
        self._look_at = now + max(LOOK, 50 * (time.thread_time() - began))

    def _others(self) -> set[int]:
        """Children of ours that are no leg's."""
        helpers = [helper.pid for helper in (self._guard, self._warm) if helper is not None]
        return {*self._before, *helpers}

    def _obey(self, requests: StopRequests) -> None:
        if requests.count and not self.interrupted:
            self.interrupted = True
            for plan in self._waiting:
                self._ended(LegEnd(plan.name, "not started"))
            self._waiting = []
            name = signal.Signals(requests.first).name
            for leg in self._running:
                leg.stop("interrupted", f"the run was ended by {name}")
            self._pass_on()
            self._emit(Interrupted(requests.first))
        if requests.count > 1:
            for leg in self._running:
                leg.stop("interrupted", "the run was ended at once", grace=0)
            self._pass_on()

    def _end_early(self) -> None:
        for leg in self._running:
            if leg.plan.name in self._ending and leg.ending_since is None and not leg.gone:
                leg.stop("stopped", self._ending[leg.plan.name])
        self._pass_on()

    def _confer(self) -> None:
        if self._machines is None:
            return
        self._machines.confer()
        if self._machines.node != 0 and self._machines.over():
            for plan in self._waiting:
                self._ended(LegEnd(plan.name, "not started"))
            self._waiting = []

    def _pass_on(self) -> None:
        while self._told:
            self._emit(self._told.popleft())

    def _start_legs(self) -> None:
        plans = {plan.name: plan for plan in self._waiting}
        ready = [_need(plan) for plan in self._waiting if not self._holds_back(plan)]
        ours = self._locked(ready)
        for grant in start_now(ready, ours):
            plan = plans[grant.name]
            if self._holds_back(plan):
                continue
            self._waiting.remove(plan)
            leg = self._make(plan, grant.gpus)
            self._free = replace(
                self._free,
                cpu=self._free.cpu - (0 if plan.cuda else plan.slots),
                gpus=tuple(gpu for gpu in self._free.gpus if gpu not in grant.gpus),
            )
            self._running.append(leg)
            try:
                leg.start()
            except StartError as error:
                leg.fail(str(error), error.exit_code)
            except OSError as error:
                leg.fail(f"could not start: {error}")
            except Exception as error:  # a NUL in its command, say; the other legs go on
                leg.break_off(error)
            for fd in leg.wake:
                self._selector.register(fd, selectors.EVENT_READ)
            self._pass_on()
        self._locks.give_back(self._free.gpus)

    def _locked(self, ready: Sequence[Need]) -> Slots:
        """What is free, but for the devices of other runs on this machine."""
        if not self._free.gpus or not any(need.cuda for need in ready):
            return self._free
        ours = self._locks.take(self._free.gpus)
        held = [gpu for gpu in self._free.gpus if gpu not in ours]
        now = time.monotonic()
        if not held or self._held_since is None:
            self._held_since = now if held else None
        elif now - self._held_since >= SHOWN:  # rather than for the moment in which the other looks as we do
            self._held_since = math.inf
            self._emit(DevicesHeld({gpu: self._locks.holder(gpu) for gpu in held}))
        return replace(self._free, gpus=ours)

    def _holds_back(self, plan: LegPlan) -> bool:
        """Whether it has to wait, though there is room: for the turn of others on other machines."""
        if isinstance(plan.launcher, Torchrun):
            assert self._machines is not None
            led = self._machines.node == 0 or self._machines.states(plan.name)[0] in ("running", "finished")
            return not led or any(isinstance(leg, MachineLeg) for leg in self._running)  # they meet at one port
        if not isinstance(plan.launcher, Slurm) or plan.launcher.most is None:
            return False
        return sum(isinstance(leg, SlurmLeg) for leg in self._running) >= plan.launcher.most

    def _make(self, plan: LegPlan, gpus: tuple[str, ...]) -> Leg:
        if isinstance(plan.launcher, Slurm):
            return SlurmLeg(plan, self._run_id, self._told.append)
        visible = self._slots.accelerator.visible(gpus)
        # On the CPU: other legs, or no one, hold the GPUs, and a trainer that sees one takes it.
        plan = replace(plan, env={**plan.env, **visible} if plan.cuda else {**visible, **plan.env})
        if isinstance(plan.launcher, Torchrun):
            assert self._machines is not None
            return MachineLeg(plan, self._run_id, gpus, self._told.append, self._machines)
        if plan.module is None:
            return CommandLeg(plan, self._run_id, gpus, self._told.append)
        # One that had been ready and was killed since, by the kernel for memory say, is replaced.
        if self._warm is None or (self._warm.error is not None and self._warm.ready is not None):
            self._start_warm()
        assert self._warm is not None
        return EmbeddedLeg(plan, self._run_id, gpus, self._told.append, self._warm)

    def _unwatch(self, leg: Leg) -> None:
        for fd in leg.wake:
            with suppress(KeyError):
                self._selector.unregister(fd)

    def _drop(self, leg: Leg) -> None:
        assert leg.end is not None
        self._locks.give_back(leg.gpus)
        self._unwatch(leg)
        leg.close()
        self._running.remove(leg)
        self._free = replace(
            self._free,
            cpu=self._free.cpu + (0 if leg.plan.cuda else leg.plan.slots),
            gpus=tuple(gpu for gpu in self._slots.gpus if gpu in self._free.gpus + leg.gpus),
        )
        self._ended(leg.end)

    def _ended(self, end: LegEnd) -> None:
        self.ends[end.name] = end
        self._emit(LegFinished(end))

    def _start_warm(self) -> None:
        self._close_warm()
        self._warm = Warm(self._run_id, self._modules)
        self._selector.register(self._warm, selectors.EVENT_READ)

    def _listen_to_warm(self) -> None:
        if self._warm is None:
            return
        if self._warm.poll():
            assert self._warm.ready is not None
            self._emit(self._warm.ready)
        if self._warm.error is not None:
            with suppress(KeyError):
                self._selector.unregister(self._warm)

    def _close_warm(self) -> None:
        if self._warm is not None:
            with suppress(KeyError):
                self._selector.unregister(self._warm)
            self._warm.close()
            self._warm = None

    def clean_up(self) -> None:
        """End whatever is left, in whatever state the loop was left."""
        try:
            self._end_legs()
            if self._machines is not None:
                self._machines.leave()
        finally:
            self._close_warm()
            self._selector.close()
            self._sweep()
            self._locks.give_back(self._slots.gpus)
            if self._guard is not None:
                self._guard.close()

    def _end_legs(self) -> None:
        for leg in self._running:
            leg.emit = _ignore  # an event's receiver may be the reason why we are here
            leg.stop("interrupted", "the run was broken off")
        while any(leg.end is None for leg in self._running):
            for leg in self._running:
                leg.tick()
            time.sleep(TICK)
        for leg in self._running:
            leg.close()

    def _sweep(self) -> None:
        """Kill what no leg could be told to own, such as a daemon that has cleared its environment."""
        for _ in range(100):  # five seconds: what does not go by then hangs in the kernel
            left = [*marker.members(self._run_id, None), *kin.adopted(self._others())]
            if not left:
                return
            marker.send(left, signal.SIGKILL)
            time.sleep(TICK)


def _need(plan: LegPlan) -> Need:
    return Need(plan.name, plan.slots, plan.cuda, plan.expected, plan.early)


def _ignore(event: Event) -> None:
    pass
