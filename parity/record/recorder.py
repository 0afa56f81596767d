"""One JSON line per event, in one file per rank."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import SupportsFloat

from parity.errors import UsageError

__all__ = ["FORMAT", "Recorder"]

FORMAT = "parity.record/1"

MESSAGE_LIMIT = 2000
"""Characters kept of an error's message: enough for any sentence, too few for a dumped tensor."""


class Recorder:
    """Writes `rank-<r>.jsonl` into a leg's folder, or nothing when the leg is not being recorded.

    The file is created by the first call, whichever that is, and replaces an older one. It is opened for
    each line and closed again, so a rank that dies leaves whole lines and nothing to flush.

    Args:
        folder: where the file goes; None makes every call do nothing.
        rank: this process's rank in its leg.
        world_size: ranks of the leg.
        run_id: identifies the run that started this leg.
        leg: the leg's name in its suite.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        rank: int = 0,
        world_size: int = 1,
        run_id: str | None = None,
        leg: str | None = None,
    ) -> None:
        self.path = None if folder is None else Path(folder) / f"rank-{rank}.jsonl"
        self.rank = rank
        self.world_size = world_size
        self.run_id = run_id
        self.leg = leg
        self._begun = False

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> "Recorder":
        """A recorder as the environment says; one that does nothing unless `PARITY_RECORD_DIR` is set.

        Args:
            env: read instead of `os.environ`. `RANK` defaults to 0 and `WORLD_SIZE` to 1; `PARITY_RUN_ID`
                and `PARITY_LEG` may be absent.

        Raises:
            UsageError: `RANK` or `WORLD_SIZE` is not a whole number.
        """
        env = os.environ if env is None else env
        folder = env.get("PARITY_RECORD_DIR")
        if not folder:
            return cls(None)
        return cls(
            folder,
            rank=_whole_number(env, "RANK", 0),
            world_size=_whole_number(env, "WORLD_SIZE", 1),
            run_id=env.get("PARITY_RUN_ID"),
            leg=env.get("PARITY_LEG"),
        )

    @property
    def active(self) -> bool:
        """Whether anything is written."""
        return self.path is not None

    def start(self, environment: Mapping[str, object]) -> None:
        """Say who writes, and in what environment: JSON values by name."""
        self._write(
            "start",
            format=FORMAT,
            run_id=self.run_id,
            leg=self.leg,
            rank=self.rank,
            world_size=self.world_size,
            time=time.time(),
            environment=dict(environment),
        )

    def step(
        self,
        step: int,
        *,
        loss: SupportsFloat,
        grad_norm: SupportsFloat | None = None,
        lr: SupportsFloat | None = None,
        **other_metrics: SupportsFloat | None,
    ) -> None:
        """Write a step's metrics at full precision.

        Args:
            step: counts from 0.
            loss: of the whole global batch, before this step's update.
            grad_norm: L2 norm of the whole gradient before clipping.
            lr: learning rate of this step's update.
            other_metrics: further curves by name. A metric that is None is left out, so that it reads as
                absent; NaN and infinities are written as `json` writes them.
        """
        metrics = {"loss": loss, "grad_norm": grad_norm, "lr": lr, **other_metrics}
        numbers = {name: _number(value) for name, value in metrics.items() if value is not None}
        self._write("step", step=step, **numbers, time=time.time())

    def error(self, exc: BaseException) -> None:
        """Write what ended the leg, as one line of at most 2000 characters; also before `start`."""
        message = " ".join(str(exc).split())[:MESSAGE_LIMIT]
        self._write("error", type=type(exc).__name__, message=message, time=time.time())

    def end(self, steps: int) -> None:
        """Say that the leg finished, and after how many steps."""
        self._write("end", steps=steps, time=time.time())

    def _write(self, kind: str, **fields: object) -> None:
        if self.path is None:
            return
        line = json.dumps({"kind": kind, **fields}) + "\n"
        if not self._begun:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered: a line reaches the file in one write, so a reader never sees half of it.
        with self.path.open("ab" if self._begun else "wb", buffering=0) as file:
            file.write(line.encode())
        self._begun = True


def _number(value: SupportsFloat) -> int | float:
    return value if isinstance(value, int) else float(value)


def _whole_number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, str(default))
    if not text.isdecimal():
        raise UsageError(f"{name}: {text!r} is not a whole number")
    return int(text)
