"""What a run tells while it goes, in small frozen pieces."""

from collections.abc import Mapping
from dataclasses import dataclass

from parity.launch.plan import LegEnd

__all__ = [
    "DevicesHeld",
    "Event",
    "Interrupted",
    "LegEnding",
    "LegFinished",
    "LegProgress",
    "LegStarted",
    "Tick",
    "TorchImported",
]


@dataclass(frozen=True)
class TorchImported:
    """The process that embedded ranks are forked from is ready.

    Attributes:
        seconds: how long it took from its start.
        threads: threads in it; more than one is a risk to forked ranks.
    """

    seconds: float
    threads: int


@dataclass(frozen=True)
class DevicesHeld:
    """Legs wait for devices that another run on this machine holds.

    Attributes:
        holders: by device, the other run's process; None where that cannot be told.
    """

    holders: Mapping[str, int | None]


@dataclass(frozen=True)
class LegStarted:
    """A leg's processes run.

    Attributes:
        name: the leg.
        ranks: its world size.
        gpus: its devices; empty on the CPU.
        port: its rendezvous port.
    """

    name: str
    ranks: int
    gpus: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class LegProgress:
    """The latest step of a leg.

    Attributes:
        name: the leg.
        step: as the leg numbers it.
        loss: None where the line had none; may be NaN or infinite.
    """

    name: str
    step: int
    loss: float | None


@dataclass(frozen=True)
class LegEnding:
    """A leg is being ended: its processes have been asked to go, and are killed if they stay.

    Attributes:
        name: the leg.
        why: one line.
    """

    name: str
    why: str


@dataclass(frozen=True)
class LegFinished:
    """No process of the leg is left.

    Attributes:
        end: how it ended.
    """

    end: LegEnd


@dataclass(frozen=True)
class Interrupted:
    """The run was asked to stop; running legs are ended and no further one starts.

    Attributes:
        signal: the signal's number.
    """

    signal: int


@dataclass(frozen=True)
class Tick:
    """About a second has passed and legs run, so that what shows times can show them anew."""


Event = TorchImported | DevicesHeld | LegStarted | LegProgress | LegEnding | LegFinished | Interrupted | Tick
