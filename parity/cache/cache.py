"""`parity run --cache`: what becomes of each leg."""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from parity.cache.inputs import Inputs, cacheable, key_of
from parity.cache.reasons import NotCacheableError
from parity.cache.store import DamagedError, Store, TooLargeError
from parity.checks.words import age
from parity.errors import UsageError
from parity.plain import plain
from parity.result import LegResult, Reused
from parity.rundir import RunDirectory, Snapshot
from parity.suite import Suite, digest

__all__ = ["Cache"]


class Cache:
    """Legs that finished under the same inputs, and those that do so now.

    Args:
        folder: where they are; it need not exist.
        suite_file: the suite, of which what concerns a leg counts, and not the file.

    Attributes:
        without: what is no code of the legs.
        keys: by leg that may be there, its key.
    """

    def __init__(self, folder: Path, suite_file: Path) -> None:
        self.without = (folder, suite_file)
        self.keys: dict[str, str] = {}
        self._store = Store(folder)
        self._inputs: Callable[[], Inputs] | None = None
        self._told: list[str] = []

    def look(self, suite: Suite, names: Sequence[str], inputs: Callable[[], Inputs]) -> list[str]:
        """Find the keys of those of these legs that may come from here.

        Args:
            suite: the suite.
            names: of its legs.
            inputs: looks at what legs depend on, as it is when this is called.

        Returns:
            The legs that are here, if their entries are whole.
        """
        self._inputs, now = inputs, inputs()
        for name in cacheable(suite):
            if name in names:
                try:
                    self.keys[name] = key_of(now.of(name))
                except NotCacheableError as error:
                    self._say(f"{name} has to run, as {error}")
        return [name for name, key in self.keys.items() if self._store.has(key)]

    def take(self, directory: RunDirectory, snapshot: Snapshot) -> dict[str, LegResult]:
        """Put the legs that are here into a run directory, where they are not yet; each with its `leg.json`."""
        taken = {}
        for name, key in self.keys.items():
            try:
                leg = self._take(directory, snapshot, name, key)
            except (DamagedError, UsageError) as error:
                shutil.rmtree(directory.leg(name), ignore_errors=True)
                why = "is damaged" if isinstance(error, DamagedError) else f"cannot be used ({error})"
                self._say(f"the entry of {name} {why}, so it runs again")
                continue
            if leg is not None and leg.reused is not None:
                taken[name] = leg
                self._say(f"{name} need not run: it is there, {age(leg.reused.age)} old")
        return taken

    def keep(self, directory: RunDirectory, snapshot: Snapshot, names: Sequence[str]) -> None:
        """Keep those of these legs that finished with a whole curve, for another time.

        Nothing is kept of a leg whose code or anything else has changed since it was looked at.
        """
        now = None if self._inputs is None else self._inputs()
        for name in (name for name in names if name in self.keys):
            with suppress(UsageError, NotCacheableError):
                leg = directory.read_leg(name)
                if now is None or leg is None or not _is_good(directory, snapshot, leg):
                    continue
                if key_of(now.of(name)) != self.keys[name]:
                    self._say(f"{name} is not kept, as its code or environment has changed since it began")
                    continue
                self._keep(directory, name)

    def told(self) -> list[str]:
        """What a person should know that was not told yet, each in a line."""
        told, self._told = self._told, []
        return told

    def _take(self, directory: RunDirectory, snapshot: Snapshot, name: str, key: str) -> LegResult | None:
        created = self._store.read(key, directory.leg(name))
        if created is None:
            return None
        leg = directory.read_leg(name)
        if leg is None or not _is_good(directory, snapshot, leg):
            raise DamagedError(name)
        reused = Reused(age=round(max(0.0, time.time() - created), 3), key=key)
        leg = leg.model_copy(update={"reused": reused})
        directory.write_leg(leg)
        return leg

    def _keep(self, directory: RunDirectory, name: str) -> None:
        try:
            self._store.write(self.keys[name], directory.leg(name))
        except TooLargeError as error:
            self._say(f"{name} is not kept, as it left {error}")
        except UsageError as error:
            self._say(f"{name} is not kept: {error}")

    def _say(self, what: str) -> None:
        self._told.append(plain(f"cache: {what}", 1000))


def _is_good(directory: RunDirectory, snapshot: Snapshot, leg: LegResult) -> bool:
    """Whether a leg finished under this suite, with a curve of every step."""
    from parity.legs import curves_of, is_whole

    if leg.status != "finished" or leg.digest != digest(snapshot.suite, leg.name, snapshot.device):
        return False
    curves, _ = curves_of(directory, snapshot, leg)
    return curves is not None and is_whole(snapshot.suite, curves)
