"""A leg on several nodes: its command runs once on each, and torchrun there starts the node's ranks.

Every node sees the leg's folder, at the same path.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from parity.launch import torchrun
from parity.launch.command import CommandLeg
from parity.launch.events import Event
from parity.launch.failure import Symptom
from parity.launch.files import tail
from parity.launch.plan import LegPlan

__all__ = ["NodesLeg"]

NODE = re.compile(r"node-(\d{1,9})\.(.+)")  # the folder in which a node's torchrun keeps its ranks' output
# Before each line of a rank in its node's output: torchrun numbers nodes as it likes, and this tells where ranks are.
TEMPLATE = "[rank${rank}/${local_rank}]:"
FIRST = re.compile(r"^\[rank(\d{1,9})/(\d{1,9})\]:", re.MULTILINE)


class NodesLeg(CommandLeg):
    """Finds out where the ranks were, and which failed first. Subclasses start the command on each node."""

    def __init__(
        self, plan: LegPlan, run_id: str, gpus: tuple[str, ...], emit: Callable[[Event], None], nodes: int
    ) -> None:
        super().__init__(plan, run_id, gpus, emit)
        self.nodes = nodes
        self._firsts: dict[int, int] = {}  # the lowest rank on each node, where known

    def command(self) -> list[str]:
        if self.plan.module is None:
            return super().command()
        return [sys.executable, "-m", "torch.distributed.run", "-m", self.plan.module, *self.plan.argv]

    def on_node(self, number: str, host: str) -> list[str]:
        """The arguments of what runs on each node; `number` and `host` name variables that it finds there."""
        folder = f'"$PARITY_RECORD_DIR/{torchrun.FOLDER}/node-${number}.${host}"'
        script = f'export PET_LOG_DIR={folder}; mkdir -p "$PET_LOG_DIR" && exec "$@"'
        return ["sh", "-c", script, "sh", *self.command()]

    def variables(self) -> dict[str, str]:
        """What torchrun reads on every node, but where it keeps its logs and where the nodes meet."""
        return {
            "PET_NNODES": str(self.nodes),
            "PET_NPROC_PER_NODE": str(self.plan.ranks // self.nodes),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ID": re.sub(r"[^\w.-]", "_", f"{self.run_id}-{self.plan.name}"),
            "PET_TEE": "3",
            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": TEMPLATE,
        }

    def collect_logs(self) -> None:
        folders = self._folders()
        for node in folders:
            output = tail(self._node_log(node))
            found = FIRST.search(output)
            # A node whose ranks were silent may still have torchrun's word on one of them.
            first = torchrun.lowest_rank(output) if found is None else int(found[1]) - int(found[2])
            if first is not None:
                self._firsts[node] = first
        # Of nodes of which nothing was heard it does not matter which is which.
        size = self.plan.ranks // self.nodes
        others = iter(sorted({*range(0, self.plan.ranks, size)} - {*self._firsts.values()}))
        for node, folder in folders.items():
            first = self._firsts[node] if node in self._firsts else next(others)
            self._apart += torchrun.collect_logs(self.plan.directory, f"{torchrun.FOLDER}/{folder.name}", first)
        if not self._apart and self.plan.ranks == 1:
            self.only_rank(self._node_log(0))

    def _folders(self) -> dict[int, Path]:
        """By node, the folder of its torchrun."""
        found = [(NODE.fullmatch(path.name), path) for path in (self.plan.directory / torchrun.FOLDER).glob("node-*")]
        return {int(match[1]): path for match, path in found if match is not None and int(match[1]) < self.nodes}

    def _node_log(self, node: int) -> Path:
        return self.plan.directory / f"node-{node}.log"

    def reports(self) -> Mapping[int, int]:
        codes: dict[int, int] = {}
        for node in range(self.nodes):
            codes |= torchrun.failures(tail(self._node_log(node)))
        return codes

    def whole(self, code: int | None, log: Path) -> Symptom | None:
        first = self.first_node()
        if first is None:
            return super().whole(code, log)
        node, own = first
        found = super().whole(code if own is None else own, self._node_log(node))
        return None if found is None else replace(found, error=f"{found.error} ({self._called(node)})")

    def first_node(self) -> tuple[int, int | None] | None:
        """The node whose command failed first, and its exit code, where that can be told."""
        return None

    def failure(self) -> Symptom | None:
        first = super().failure()
        if first is None:
            return self._missing()
        if first.rank is None:
            return first
        size = self.plan.ranks // self.nodes
        node = next((node for node, low in self._firsts.items() if low <= first.rank < low + size), None)
        return first if node is None else replace(first, error=f"{first.error} ({self._called(node)})")

    def _missing(self) -> Symptom | None:
        """Of a leg that ended well: a node that left nothing."""
        missing = [node for node in range(self.nodes) if not self._node_log(node).exists()]
        if not missing:
            return None
        return Symptom(
            None,
            None,
            0.0,
            f"nothing came from {', '.join(map(self._called, missing))}: {self.plan.directory} has to be in a file"
            " system that all nodes share; give another --out",
            echo=False,
        )

    def _called(self, node: int) -> str:
        folder = self._folders().get(node)
        match = None if folder is None else NODE.fullmatch(folder.name)
        return f"node {node}" if match is None else f"node {node}, {match[2]}"
