"""Which legs run when, and on which slots. Pure."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from parity.errors import DeviceError
from parity.schedule.devices import RANKS_PER_CORE, Slots

__all__ = ["Grant", "Need", "Place", "Schedule", "check_room", "packed", "start_now"]


@dataclass(frozen=True)
class Need:
    """What one leg takes.

    Attributes:
        name: the leg.
        ranks: its world size, and so the slots it takes.
        cuda: whether these are GPUs, or accelerators of another make.
        seconds: how long it is expected to take; in any other unit, if that is the same for all.
        early: whether it starts before legs that are not, however long these are.
    """

    name: str
    ranks: int
    cuda: bool = False
    seconds: float = 0.0
    early: bool = False


@dataclass(frozen=True)
class Grant:
    """A leg that starts now.

    Attributes:
        name: the leg.
        ranks: slots it takes.
        gpus: the devices it gets; empty for a leg on the CPU.
    """

    name: str
    ranks: int
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """A leg in a schedule.

    Attributes:
        need: the leg.
        start: in the unit of `Need.seconds`, from the start of the run.
        slots: names of its GPUs, or numbers of its CPU slots from 0.
    """

    need: Need
    start: float
    slots: tuple[str, ...]

    @property
    def end(self) -> float:
        """When it ends."""
        return self.start + self.need.seconds


@dataclass(frozen=True)
class Schedule:
    """Legs by slot and time, if each takes as long as expected.

    Attributes:
        places: the legs in the order in which they start.
        slots: what there is.
    """

    places: tuple[Place, ...]
    slots: Slots

    @property
    def makespan(self) -> float:
        """From the first start to the last end."""
        return max((place.end for place in self.places), default=0.0)

    @property
    def bound(self) -> float:
        """No schedule is shorter: the longest leg, or all legs' device time over the slots, if that is longer."""
        longest = max((place.need.seconds for place in self.places), default=0.0)
        return max(longest, *(self._device_time(cuda) / max(1, self._size(cuda)) for cuda in (False, True)))

    @property
    def device_time(self) -> float:
        """Of all legs: their time, times their ranks."""
        return self._device_time(False) + self._device_time(True)

    def _device_time(self, cuda: bool) -> float:
        return sum(one.need.seconds * one.need.ranks for one in self.places if one.need.cuda is cuda)

    def _size(self, cuda: bool) -> int:
        return len(self.slots.gpus) if cuda else self.slots.cpu


def check_room(needs: Iterable[Need], slots: Slots) -> None:
    """Raise before anything starts when a leg could never start.

    Raises:
        DeviceError: one line for each leg that needs more slots than there are.
    """
    lines = []
    for need in needs:
        if need.cuda and need.ranks > len(slots.gpus):
            word = slots.accelerator.word
            lines.append(
                f"legs.{need.name}: needs {need.ranks} {word}s, this machine has {len(slots.gpus)}; "
                f"take a smaller layout, a machine with more {word}s, or run the leg on the CPU"
            )
        elif not need.cuda and need.ranks > slots.cpu:
            lines.append(
                f"legs.{need.name}: needs {need.ranks} ranks, this machine has room for {slots.cpu} "
                f"({RANKS_PER_CORE} a core); take a smaller layout or a machine with more cores"
            )
    if lines:
        raise DeviceError(*lines)


def start_now(waiting: Sequence[Need], free: Slots) -> list[Grant]:
    """The legs that start now: in the order given, and later ones in the room that is left.

    A suite has a finite number of legs, so one that others overtake still gets its turn.
    """
    grants = []
    for need in waiting:
        if need.cuda and need.ranks <= len(free.gpus):
            grants.append(Grant(need.name, need.ranks, free.gpus[: need.ranks]))
            free = replace(free, gpus=free.gpus[need.ranks :])
        elif not need.cuda and need.ranks <= free.cpu:
            grants.append(Grant(need.name, need.ranks))
            free = replace(free, cpu=free.cpu - need.ranks)
    return grants


# Single legs moved elsewhere in the order, over their number: a tenth of a second. Of suites of 10 to 16 legs of 1 to
# 4 ranks on 8 slots, 94 % end within 1.1 times the bound, and 80 % without (`tests/schedule/bench_schedule.py`).
_MOVES = 2000
# Each leaves gaps where another leaves none; to try all three costs nothing.
_ORDERS: tuple[Callable[[Need], tuple[float, float]], ...] = (
    lambda need: (-need.seconds, -need.ranks),
    lambda need: (-need.seconds * need.ranks, -need.seconds),
    lambda need: (-need.ranks, -need.seconds),
)


def packed(needs: Sequence[Need], slots: Slots) -> Schedule:
    """A short schedule: longest first and more ranks first, or another order where that ends earlier.

    A leg starts as soon as it fits, so at most twice `Schedule.bound` passes (any two moments as far apart as the
    longest leg have more ranks between them than there are slots). Legs that are alike in all this start in the
    order given, and the same legs always come to the same schedule.

    Raises:
        DeviceError: a leg needs more slots than there are.
    """
    check_room(needs, slots)
    schedules = [
        _simulated(sorted(needs, key=lambda need: (not need.early, *order(need))), slots) for order in _ORDERS
    ]
    return _improved(min(schedules, key=lambda schedule: schedule.makespan))


def _improved(schedule: Schedule) -> Schedule:
    """The schedule, or one that ends earlier, found by moving single legs elsewhere in the order."""
    best = schedule
    draw = random.Random(0)  # noqa: S311
    for _ in range(_MOVES // max(1, len(schedule.places))):
        if best.makespan <= best.bound:
            break
        order = [place.need for place in best.places]
        order.insert(draw.randrange(len(order)), order.pop(draw.randrange(len(order))))
        moved = _simulated(sorted(order, key=lambda need: not need.early), schedule.slots)
        best = min(moved, best, key=lambda one: one.makespan)
    return min(schedule, best, key=lambda one: one.makespan)


def _simulated(needs: Sequence[Need], slots: Slots) -> Schedule:
    waiting, running, places = list(needs), list[Place](), list[Place]()
    most = min(slots.cpu, sum(need.ranks for need in needs if not need.cuda))  # others are never used
    cpu, gpus = [str(number) for number in range(most)], list(slots.gpus)
    now = 0.0
    while waiting:
        grants = {grant.name: grant for grant in start_now(waiting, replace(slots, cpu=len(cpu), gpus=tuple(gpus)))}
        for need in [need for need in waiting if need.name in grants]:
            free = gpus if need.cuda else cpu
            place = Place(need, now, tuple(free[: need.ranks]))
            del free[: need.ranks]
            waiting.remove(need)
            running.append(place)
            places.append(place)
        now = min(place.end for place in running)
        for place in [place for place in running if place.end <= now]:
            running.remove(place)
            (gpus if place.need.cuda else cpu).extend(place.slots)
        cpu.sort(key=int)
        gpus.sort(key=slots.gpus.index)
    return Schedule(tuple(places), slots)
