"""What was measured in a step, on its way from the device to lines of JSON."""

import base64
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from parity.record.fingerprint import SLOTS, folded

__all__ = ["Gradients", "Line", "Readout", "Update", "hexadecimal"]

Line = dict[str, object]

Numbers = Callable[[], list[float]]


class Readout:
    """Moves what was asked for to the host in one transfer a device."""

    def __init__(self) -> None:
        self._asked: list[Tensor] = []
        self._read: list[list[float]] = []

    def ask(self, tensor: Tensor) -> Numbers:
        """Have a float64 or int64 tensor moved.

        Returns:
            Its numbers in order, after `fetch`.
        """
        self._asked.append(tensor.detach().reshape(-1))
        at = len(self._asked) - 1
        return lambda: self._read[at]

    def fetch(self) -> None:
        """Wait for the device, and move everything."""
        self._read = [[] for _ in self._asked]
        for device in {tensor.device for tensor in self._asked}:
            here = [at for at, tensor in enumerate(self._asked) if tensor.device == device]
            # As bits, so that hashes and norms travel together.
            moved = torch.cat([self._asked[at].view(torch.int64) for at in here]).cpu()
            parts = moved.split([self._asked[at].numel() for at in here])
            for at, part in zip(here, parts, strict=True):
                self._read[at] = part.view(self._asked[at].dtype).tolist()


@dataclass(frozen=True, eq=False)
class Gradients:
    """A step's gradients, measured.

    Attributes:
        read: when.
        there: for each parameter, whether it had a gradient.
        pending: names of parameters whose gradient only a collective could have given.
        norms: float64 (P,).
        sketch: float64 (P, 64), or None at a step that is not sketched.
        summed_over: ranks whose gradients add up to those of the parts; empty where each rank has its own whole.
    """

    read: str
    there: Sequence[bool]
    pending: Sequence[str]
    norms: Tensor
    sketch: Tensor | None
    summed_over: Sequence[int] = ()

    def ask(self, step: int, readout: Readout) -> Callable[[], Line]:
        """Have the numbers moved; the line of kind gradients, once they are."""
        norms = readout.ask(self.norms)
        sketch = None if self.sketch is None else readout.ask(self.sketch)

        def line() -> Line:
            made: Line = {"kind": "gradients", "step": step, "read": self.read, "norms": _where(self.there, norms())}
            if sketch is not None:
                made["sketch"] = _packed(sketch())
            if self.pending:
                made["pending"] = list(self.pending)
            if self.summed_over:
                made["summed_over"] = list(self.summed_over)
            return made

        return line


@dataclass(frozen=True, eq=False)
class Update:
    """What a step changed, measured.

    Attributes:
        trained: for each parameter, whether it was looked at; frozen ones are not.
        norms: float64 (P,).
        estimated: whether the norms are those of sketches.
        sketch: float64 (P, 64), or None at a step that is not sketched.
        shared: for each parameter, whether another rank may hold this very part.
        hashes: int64 (P,), of the parts after the step, or None if none is shared or this step is left out.
    """

    trained: Sequence[bool]
    norms: Tensor
    estimated: bool
    sketch: Tensor | None
    shared: Sequence[bool]
    hashes: Tensor | None

    def ask(self, step: int, readout: Readout) -> Callable[[], Line]:
        """Have the numbers moved; the line of kind update, once they are."""
        norms = readout.ask(self.norms)
        sketch = None if self.sketch is None else readout.ask(self.sketch)
        hashes = None if self.hashes is None else readout.ask(self.hashes)

        def line() -> Line:
            made: Line = {
                "kind": "update",
                "step": step,
                "norms": _where(self.trained, norms()),
                "estimated": self.estimated,
            }
            if sketch is not None:
                made["sketch"] = _packed(sketch())
            if hashes is None:
                made["hashes"] = [None] * len(self.shared)
            else:
                each = zip(hashes(), self.shared, strict=True)
                made["hashes"] = [hexadecimal(int(total)) if shared else None for total, shared in each]
            return made

        return line


def hexadecimal(total: int) -> str:
    """A 64-bit hash as 16 digits."""
    return f"{folded(total):016x}"


def _where(there: Sequence[bool], numbers: Sequence[float]) -> list[float | None]:
    # 9 significant digits, with which a float32 can be told from its neighbours.
    return [float(f"{number:.9g}") if one else None for one, number in zip(there, numbers, strict=True)]


def _packed(numbers: Sequence[float]) -> str:
    """Base64 of little-endian float64, row by row of `SLOTS`."""
    assert len(numbers) % SLOTS == 0
    return base64.b64encode(struct.pack(f"<{len(numbers)}d", *numbers)).decode()
