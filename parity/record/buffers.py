"""Hashes of the buffers that several ranks hold, such as routing biases, which are updated by no optimizer."""

from collections.abc import Callable, Sequence

import torch

from parity.record.lines import Readout, hexadecimal
from parity.record.measure import Measure
from parity.record.parts import Part

__all__ = ["Buffers", "Hashes"]

Hashes = list[str | None]
"""In the order of the buffers; None for one that is not hashed."""


class Buffers:
    """The buffers of a rank, to be hashed from time to time.

    Only those that a checkpoint keeps: one rank writes it for all that hold them, so they have to be equal. What is
    left out of checkpoints may be a rank's own count. Running statistics are a rank's own too, of the samples that
    it has seen.

    Args:
        parts: all buffers, in the order of the record. One that its module replaces is not followed.
        world_size: ranks of the leg.
    """

    def __init__(self, parts: Sequence[Part], world_size: int) -> None:
        self._parts = parts
        self._hashed = [part.kept and not part.exclusive(world_size) and part.box.numel > 0 for part in parts]
        # Keys are made anew each time: buffers are small.
        self._measure = Measure(parts, key_bytes=0) if any(self._hashed) else None

    def ask(self, readout: Readout) -> Callable[[], Hashes] | None:
        """Have the hashes moved to the host, as the buffers are now; None if there are none to take."""
        if self._measure is None:
            return None
        each = list(zip(self._parts, self._hashed, strict=True))
        with torch.no_grad():
            hashes = readout.ask(self._measure.hashes([part.local if hashed else None for part, hashed in each]))
        return lambda: [
            hexadecimal(int(one)) if hashed else None for one, hashed in zip(hashes(), self._hashed, strict=True)
        ]
