"""Start a leg, watch it, end it."""

from parity.launch.events import (
    DevicesHeld,
    Event,
    Interrupted,
    LegEnding,
    LegFinished,
    LegProgress,
    LegStarted,
    Tick,
    TorchImported,
)
from parity.launch.machines import Machines
from parity.launch.plan import LegEnd, LegPlan, Slurm, Status, Torchrun
from parity.launch.runner import run_legs

__all__ = [
    "DevicesHeld",
    "Event",
    "Interrupted",
    "LegEnd",
    "LegEnding",
    "LegFinished",
    "LegPlan",
    "LegProgress",
    "LegStarted",
    "Machines",
    "Slurm",
    "Status",
    "Tick",
    "TorchImported",
    "Torchrun",
    "run_legs",
]
