"""Buffers that several ranks hold are hashed with the parameters."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parity.record.fingerprint import state_hash
from parity.record.recorder import Recorder


class Router(nn.Module):  # type: ignore[misc]
    """Moves its bias by what it has seen, as the routers of DeepSeek-V3 do."""

    bias: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("bias", torch.zeros(3))
        self.register_buffer("seen", torch.zeros(3), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.norm(self.project(x)) + self.bias
        self.seen += scores.detach().argmax(1).bincount(minlength=3)
        return scores


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    made = [json.loads(line) for line in (folder / "rank-0.jsonl").read_text().splitlines()]
    return [line for line in made if line["kind"] == kind]


def trained(folder: Path, world_size: int, steps: int = 7) -> Router:
    torch.manual_seed(0)
    model = Router()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(folder, world_size=world_size)
    recorder.start(model, optimizer)
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        model.bias -= 0.001 * (model.seen - model.seen.mean()).sign()  # after the optimizer's step, as loops do
        recorder.step(step, loss=1.0)
    recorder.end(steps)
    return model


def test_a_buffer_is_hashed_as_it_is_at_the_end_of_a_step(tmp_path: Path) -> None:
    model = trained(tmp_path, world_size=2, steps=1)
    names = [part["name"] for part in lines(tmp_path, "model")[0]["buffers"]]
    (line,) = lines(tmp_path, "buffers")
    assert dict(zip(names, line["hashes"], strict=True))["bias"] == f"{state_hash(model.bias):016x}"


def test_buffers_are_hashed_when_parameters_are_and_at_the_end(tmp_path: Path) -> None:
    model = trained(tmp_path, world_size=2)
    assert [line["step"] for line in lines(tmp_path, "buffers")] == [0, 1, 2, 3, 4, 5]
    assert f"{state_hash(model.bias):016x}" in lines(tmp_path, "final")[0]["buffers"]


def test_what_no_checkpoint_has_and_running_statistics_are_a_ranks_own(tmp_path: Path) -> None:
    trained(tmp_path, world_size=2)
    names = [part["name"] for part in lines(tmp_path, "model")[0]["buffers"]]
    taken = lines(tmp_path, "buffers")[0]["hashes"]
    assert [name for name, one in zip(names, taken, strict=True) if one] == ["bias"]


def test_a_single_rank_shares_no_buffer(tmp_path: Path) -> None:
    trained(tmp_path, world_size=1)
    assert lines(tmp_path, "buffers") == []
    assert lines(tmp_path, "final") == []
