"""Legs side by side: what their environments share, and what is not alike. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from parity.checks.words import age
from parity.plain import plain
from parity.result import LegResult

__all__ = ["Fact", "asymmetries", "environment", "layout", "place", "state"]

_LONGEST = 200
_UNKNOWN = "–"


@dataclass(frozen=True)
class Fact:
    """One thing that legs have or had.

    Attributes:
        name: of it.
        values: each value with the legs that have it, in the order of the legs.
    """

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def differs(self) -> bool:
        """Whether there is more than one value."""
        return len(self.values) > 1


def environment(legs: Sequence[LegResult]) -> list[Fact]:
    """What the legs recorded of their environment, what differs first; what is not one value is left out."""
    keys = dict.fromkeys(key for leg in legs for key, value in leg.environment.items() if not isinstance(value, dict))
    known = [leg for leg in legs if leg.environment]
    facts = [_fact(key, ((leg, _known(leg.environment.get(key))) for leg in known)) for key in keys]
    return sorted(facts, key=lambda fact: not fact.differs)


def asymmetries(legs: Sequence[LegResult]) -> list[Fact]:
    """What is not alike in how the legs were set up, beside their environment."""
    asked: dict[str, Callable[[LegResult], object]] = {
        "layout": layout,
        "ranks": lambda leg: leg.ranks,
        "micro-batches": lambda leg: leg.micro_batches,
        "samples a step on rank 0": lambda leg: leg.samples,
        "parameters that are cut": _cut,
        "format of the log": lambda leg: leg.format,
    }
    facts = [
        _fact(name, ((leg, value) for leg in legs if leg.status != "not run" and (value := of(leg)) is not None))
        for name, of in asked.items()
    ]
    return [fact for fact in facts if fact.differs]


def layout(leg: LegResult) -> str:
    """`tp=3 dp=2`; a dash where nothing is split."""
    return " ".join(f"{axis}={size}" for axis, size in leg.layout.items() if size > 1) or _UNKNOWN


def place(leg: LegResult) -> str:
    """How it ended: `failed, rank 2 first, exit code 1`."""
    rank = "" if leg.failing_rank is None else f", rank {leg.failing_rank} first"
    code = "" if leg.exit_code in (None, 0) else f", exit code {leg.exit_code}"
    return f"{leg.status}{rank}{code}"


def state(leg: LegResult) -> str:
    """Its status, or where it is from if it did not run: `from the cache, 3 h old`."""
    return leg.status if leg.reused is None else f"from the cache, {age(leg.reused.age)} old"


def _cut(leg: LegResult) -> str | None:
    """By group of parameters, what cuts them; None where no shards were recorded."""
    if not leg.holds:
        return None
    return ", ".join(f"{one.group} by {one.axis or 'ranks'}" for one in leg.sharded) or "none"


def _known(value: Any) -> Any:
    return _UNKNOWN if value is None else value


def _fact(name: str, found: Iterable[tuple[LegResult, Any]]) -> Fact:
    values: dict[str, list[str]] = {}
    for leg, value in found:
        values.setdefault(plain(value, _LONGEST) or _UNKNOWN, []).append(leg.name)
    return Fact(plain(name, _LONGEST), tuple((one, tuple(names)) for one, names in values.items()))
