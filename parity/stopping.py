"""Candidates that are wrong at their first step, found while they run: nothing later can make them pass."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from parity.allowed import choose_profile
from parity.checks import forward
from parity.checks.allowance import DOUBT
from parity.checks.comparison import Comparison, Leg
from parity.checks.outcome import Status
from parity.launch import Event, LegFinished, LegProgress
from parity.legs import curves_of
from parity.result import LegResult
from parity.rundir import RunDirectory, Snapshot
from parity.suite import Compare

__all__ = ["Stopping"]


class Stopping:
    """Takes the run's events, and says which legs need not go on.

    A candidate's first loss is held against its baseline's as the check `forward` will, as soon as both have one. It
    is wrong only where no leg that measures noise could change that. A leg with another role beside it goes on.

    Args:
        directory: the run.
        snapshot: the suite as run.
        sources: of legs whose metrics are written below their own folder, where no earlier run's can lie: the file,
            relative to the run directory.
        earlier: legs that are there already.

    Attributes:
        ending: by leg, why it is wrong.
    """

    def __init__(
        self,
        directory: RunDirectory,
        snapshot: Snapshot,
        sources: Mapping[str, str],
        earlier: Mapping[str, LegResult] = MappingProxyType({}),
    ) -> None:
        self.ending: dict[str, str] = {}
        self._directory, self._snapshot, self._sources = directory, snapshot, sources
        self._earlier, self._begun = earlier, {*earlier}
        self._open = snapshot.suite.compare if snapshot.suite.stop == "first-divergence" else []
        self._wrong: dict[str, list[str]] = {}

    def take(self, event: Event) -> None:
        """Look again where a leg has come to its first loss."""
        match event:
            case LegProgress(name=name, loss=loss) if loss is not None:
                pass
            case LegFinished(end=end) if end.status == "finished":
                name = end.name
            case _:
                return
        if name in self._begun or name not in self._sources:
            return
        self._begun.add(name)
        for item in self._open:
            if name in (item.baseline, item.candidate) and {item.baseline, item.candidate} <= self._begun:
                self._look(item)

    def _look(self, item: Compare) -> None:
        if why := self._wrong_at_first(item):
            self._wrong.setdefault(item.candidate, []).append(why)
        roles = sum(item.candidate in other.legs() for other in self._snapshot.suite.compare)
        if len(found := self._wrong.get(item.candidate, [])) == roles:
            self.ending[item.candidate] = found[0]

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def _wrong_at_first(self, item: Compare) -> str:
        suite = self._snapshot.suite
        legs = [self._leg(name) for name in (item.baseline, item.candidate)]
        baseline, candidate = legs
        if baseline is None or candidate is None:
            return ""
        asked = item.profile if item.profile not in (None, "auto") else suite.profile
        environments = [leg.curves.environment for leg in (baseline, candidate)]
        profile, reason = choose_profile(asked, environments, self._snapshot.device, (suite.bounds, item.bounds))
        if reason.startswith("assumed"):  # the records will tell in which dtype they ran
            return ""
        outcome = forward.check(Comparison(baseline, candidate, profile))
        # A perturbed leg may widen what is allowed at the first step, and by no more than this.
        least = DOUBT if item.perturbed else 1.0
        wrong = any((gap.times_allowed or 0.0) > least for gap in outcome.gaps)
        return outcome.reason if outcome.status is Status.FAIL and wrong else ""

    def _leg(self, name: str) -> Leg | None:
        written = self._earlier.get(name) or LegResult(
            name=name, run_id=self._snapshot.run_id, status="finished", source=self._sources[name]
        )
        curves, _ = curves_of(self._directory, self._snapshot, written)
        return None if curves is None else Leg(name, curves, self._snapshot.suite.legs[name].sizes())
