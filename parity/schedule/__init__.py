"""What a machine has room for, and which legs run on it when."""

from parity.schedule.devices import RANKS_PER_CORE, WORDS, Accelerator, Device, Slots, cpu_slots
from parity.schedule.locks import DeviceLocks
from parity.schedule.packing import Grant, Need, Place, Schedule, check_room, packed, start_now

__all__ = [
    "RANKS_PER_CORE",
    "WORDS",
    "Accelerator",
    "Device",
    "DeviceLocks",
    "Grant",
    "Need",
    "Place",
    "Schedule",
    "Slots",
    "check_room",
    "cpu_slots",
    "packed",
    "start_now",
]
