"""How long each leg of a suite will likely take: as it did in an earlier run, or by its ranks and steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from parity.errors import UsageError
from parity.rundir import RunDirectory
from parity.suite import Suite

__all__ = ["Expected", "expected"]

# Of a leg: whatever says more, or NaN, is no duration, and a schedule of such would have no end.
_LONGEST = 366 * 86400.0


@dataclass(frozen=True)
class Expected:
    """Durations by leg.

    Attributes:
        times: of every leg that was asked for.
        unit: `s`, or `rank-steps` where nobody has measured anything.
        source: where they are from, in words.
    """

    times: dict[str, float]
    unit: str
    source: str


def expected(suite: Suite, names: Sequence[str], earlier: Path | None) -> Expected:
    """The durations of some legs.

    A leg that finished in the earlier run takes as long again, for each of its steps; another one takes as long for
    each of its ranks as those did.

    Args:
        suite: the suite.
        names: of its legs.
        earlier: a run directory, which may not be there; what is in it can change estimates and nothing else.
    """
    known = {} if earlier is None else _measured(suite, names, RunDirectory(earlier))
    if not known:
        times = {name: float(suite.legs[name].ranks * suite.steps) for name in names}
        return Expected(times, "rank-steps", "estimated as ranks × steps, for there is no earlier run to go by")
    for_each_rank = median(seconds / suite.legs[name].ranks for name, seconds in known.items())
    times = {name: known.get(name, for_each_rank * suite.legs[name].ranks) for name in names}
    guessed = [name for name in names if name not in known]
    by_ranks = f"; by ranks: {', '.join(guessed)}" if guessed else ""
    return Expected(times, "s", f"from {earlier}{by_ranks}")


def _measured(suite: Suite, names: Sequence[str], directory: RunDirectory) -> dict[str, float]:
    try:
        steps = directory.read_snapshot().suite.steps
    except UsageError:
        return {}
    found = {}
    for name in names:
        try:
            leg = directory.read_leg(name)
        except UsageError:
            continue
        if leg is None or leg.status != "finished" or leg.ranks != suite.legs[name].ranks:
            continue
        seconds = (leg.seconds or 0.0) * suite.steps / steps
        if 0 < seconds < _LONGEST:
            found[name] = seconds
    return found
