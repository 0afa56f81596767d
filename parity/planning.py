"""What a run would do, before anything runs: legs by slot and time, what is shared, and what is not needed."""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from parity.errors import UsageError
from parity.plain import plain
from parity.schedule import Need, Place, Schedule, Slots, packed
from parity.schedule.expected import Expected
from parity.suite import Suite, run_of

__all__ = ["Plan", "as_matrix", "as_text", "needs", "planned"]

_MOST_JOBS = 256  # of one matrix, by GitHub's limits
_WIDTH = 60


@dataclass(frozen=True)
class Plan:
    """What would run.

    Attributes:
        suite: the suite.
        device: of all legs.
        expected: how long each leg will likely take.
        schedule: the legs by slot and time.
    """

    suite: Suite
    device: str
    expected: Expected
    schedule: Schedule


def needs(suite: Suite, names: Sequence[str], device: str, times: Expected) -> list[Need]:
    """What these legs take. Baselines go first where candidates are held against them while they run."""
    early = {item.baseline for item in suite.compare} if suite.stop == "first-divergence" else set()
    legs = {name: suite.legs[name] for name in names}
    slots = {name: suite.launcher_of(leg).slots(leg.ranks) for name, leg in legs.items()}
    return [Need(name, slots[name], device != "cpu", times.times[name], name in early) for name in names]


def planned(suite: Suite, device: str, slots: Slots, times: Expected, there: Collection[str] = ()) -> Plan:
    """The schedule of the legs that comparisons need, but for those that are there already.

    Raises:
        DeviceError: a leg needs more slots than there are.
    """
    names = [name for name in suite.compared() if name not in there]
    return Plan(suite, device, times, packed(needs(suite, names, device, times), slots))


def as_matrix(suite: Suite, times: Expected) -> str:
    """A matrix for GitHub's `fromJSON`, a job for each leg that a comparison needs, the longest first.

    Raises:
        UsageError: there are more than a matrix may have.
    """
    names = sorted(suite.compared(), key=lambda name: (-times.times[name], -suite.legs[name].ranks))
    if len(names) > _MOST_JOBS:
        raise UsageError(f"--matrix: {len(names)} legs, and a matrix has at most {_MOST_JOBS} jobs")
    return json.dumps({"include": [{"leg": name, "ranks": suite.legs[name].ranks} for name in names]})


def as_text(plan: Plan) -> str:
    """Tables for a person."""
    suite, schedule, unit = plan.suite, plan.schedule, plan.expected.unit
    word = "slots for ranks" if plan.device == "cpu" else f"{schedule.slots.accelerator.word}s"
    size = schedule.slots.cpu if plan.device == "cpu" else len(schedule.slots.gpus)
    lines = [
        f"{suite.name}: {len(schedule.places)} legs of {suite.steps} steps on {plan.device}, {size} {word}",
        f"durations: {plain(plan.expected.source)}",
        "",
        *_legs(suite, schedule, unit),
        "",
        *_slots(schedule),
        "",
        f"ends after {_time(schedule.makespan, unit)}; no schedule ends before {_time(schedule.bound, unit)}",
        f"all together {schedule.device_time:.0f} {'device-seconds' if unit == 's' else unit}",
        *_told(suite),
    ]
    return "\n".join(lines) + "\n"


def _time(time: float, unit: str) -> str:
    return f"{time:.1f} s" if unit == "s" else f"{time:.0f} {unit}"


def _legs(suite: Suite, schedule: Schedule, unit: str) -> list[str]:
    digits = 1 if unit == "s" else 0
    rows = [("leg", "ranks", "start", "end", "slots")]
    rows += [
        (
            one.need.name,
            str(suite.legs[one.need.name].ranks),
            f"{one.start:.{digits}f}",
            f"{one.end:.{digits}f}",
            " ".join(one.slots) or "Slurm's",
        )
        for one in schedule.places
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{name:<{widths[0]}}  {ranks:>{widths[1]}}  {start:>{widths[2]}}  {end:>{widths[3]}}  {slots}"
        for name, ranks, start, end, slots in rows
    ]


def _slots(schedule: Schedule) -> list[str]:
    """A line for each slot that is used, with its legs as long as they take."""
    used = list(dict.fromkeys(slot for place in schedule.places for slot in place.slots))
    on_devices = any(place.need.cuda for place in schedule.places)
    width = max(map(len, used), default=0)
    ordered = sorted(used, key=schedule.slots.gpus.index if on_devices else int)
    return [f"{slot:>{width}} {_line(schedule, slot)}" for slot in ordered]


def _line(schedule: Schedule, slot: str) -> str:
    line = ""
    for place in (place for place in schedule.places if slot in place.slots):
        start, end = (_column(schedule, time) for time in (place.start, place.end))
        line = line.ljust(start) + _bar(place, max(1, end - start))
    return line


def _column(schedule: Schedule, time: float) -> int:
    return round(_WIDTH * time / schedule.makespan) if schedule.makespan else 0


def _bar(place: Place, width: int) -> str:
    """As `[tp4-----]`."""
    return "|" if width < 2 else f"[{place.need.name[: width - 2]:-<{width - 2}}]"


def _told(suite: Suite) -> list[str]:
    """What a person may want to know of the legs."""
    counts = Counter(name for item in suite.compare for name in set(item.legs()))
    shared = [f"{name} by {count} comparisons" for name in suite.legs if (count := counts[name]) > 1]
    lines = [f"shared: {', '.join(shared)}"] if shared else []
    left_out = [name for name in suite.legs if name not in counts]
    if left_out:
        lines.append(f"not run, for no comparison needs it: {', '.join(left_out)}")
    lines += [f"the same run twice: {a} and {b}; one leg can serve all comparisons" for a, b in _twins(suite)]
    if suite.stop == "first-divergence":
        lines.append("a candidate that is wrong at its first step is ended there")
    return lines


def _twins(suite: Suite) -> list[tuple[str, str]]:
    """Legs that no comparison takes for noise, and that run the very same as one before."""
    noise = {name for item in suite.compare for name in (*item.control, *item.repeat, *item.perturbed)}
    seen: dict[str, str] = {}
    twins = []
    for name in suite.compared():
        if name in noise:
            continue
        content = json.dumps(run_of(suite, name, ""), sort_keys=True)
        if content in seen:
            twins.append((seen[content], name))
        seen.setdefault(content, name)
    return twins
