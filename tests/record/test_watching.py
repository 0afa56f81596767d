"""What a rank records of a model that trains, and that it trains as if nobody watched."""

import base64
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_ as imported_by_name

from parity.errors import UsageError
from parity.record import Recorder
from parity.record import observer as observing
from parity.record.fingerprint import sketch, state_hash


@pytest.fixture(autouse=True)
def _clipping_is_restored() -> Iterator[None]:
    original = torch.nn.utils.clip_grad_norm_
    yield
    assert torch.nn.utils.clip_grad_norm_ is torch.nn.utils.clip_grad.clip_grad_norm_ is original is imported_by_name


def recorder(folder: Path, **more: str) -> Recorder:
    return Recorder.from_env({"PARITY_RECORD_DIR": str(folder), **more})


def lines(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in (folder / "rank-0.jsonl").read_text().splitlines()]
    return [line for line in every if kind in (None, line["kind"])]


def unpacked(text: str) -> Tensor:
    data = base64.b64decode(text, validate=True)
    return torch.tensor(struct.unpack(f"<{len(data) // 8}d", data), dtype=torch.float64).view(-1, 64)


def network(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)


def backward(model: nn.Module, step: int, micro_batches: int = 2) -> tuple[float, list[Tensor]]:
    """Accumulate a step's gradients; the loss and the data."""
    generator = torch.Generator().manual_seed(step)
    dtype = next(model.parameters()).dtype
    data = [torch.randn(4, 8, generator=generator).to(dtype) for _ in range(micro_batches)]
    total = 0.0
    for x in data:
        loss = model(x).square().mean() / micro_batches
        loss.backward()
        total += loss.item()
    return total, data


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rec: Recorder | None,
    *,
    steps: int = 4,
    clip: Callable[..., Any] | None = None,
    first: int = 0,
) -> list[list[Tensor]]:
    """A plain loop; every step's gradients as they were before clipping."""
    seen = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss, data = backward(model, step)
        seen.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        if clip is not None:
            clip(model.parameters(), 0.05)
        optimizer.step()
        if rec is not None:
            rec.step(step, loss=loss, lr=0.01, batch=data)
    return seen


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=0.01)


def test_three_calls_in_a_plain_loop(tmp_path: Path) -> None:
    model = network()
    optimizer = adam(model)
    start = {name: state_hash(p) for name, p in model.named_parameters()}
    rec = recorder(tmp_path)
    rec.start(model, optimizer, environment={"dtype": "fp32"}, coordinates={"dp": 0})
    # Taken after the start, and not the function imported above.
    seen = train(model, optimizer, rec, clip=torch.nn.utils.clip_grad_norm_)
    rec.end(4)

    assert [line["kind"] for line in lines(tmp_path)] == [
        "start", "model", *["gradients", "update", "batch", "step"] * 4, "end",
    ]  # fmt: skip
    about = lines(tmp_path, "start")[0]
    assert about["coordinates"] == {"dp": 0}
    assert about["environment"].keys() >= {"torch", "device", "dtype", "deterministic", "threads", "backend"}
    described = lines(tmp_path, "model")[0]
    assert described["parameters"][0] == {
        "name": "0.weight", "shape": [16, 8], "start": [0, 0], "stop": [16, 8], "dtype": "float32", "split": {},
        "trainable": True, "hash": f"{start['0.weight']:016x}",
    }  # fmt: skip
    (group,) = described["optimizer"][0]["groups"]
    assert (described["optimizer"][0]["class"], described["optimizer"][0]["state_step"]) == ("AdamW", 0)
    assert (group["lr"], group["betas"], group["eps"]) == (0.01, [0.9, 0.999], 1e-8)
    assert group["parameters"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert (described["layers"], described["experts"], len(described["rng"])) == (None, None, 16)

    for step, (line, grads) in enumerate(zip(lines(tmp_path, "gradients"), seen, strict=True)):
        assert (line["step"], line["read"]) == (step, "before clipping")
        assert line["norms"] == pytest.approx([float(grad.double().norm()) for grad in grads], rel=1e-8)
        if step < 3:
            torch.testing.assert_close(unpacked(line["sketch"]), torch.stack([sketch(grad) for grad in grads]))
        else:
            assert "sketch" not in line
        norm = torch.cat([grad.reshape(-1) for grad in grads]).double().norm()
        assert lines(tmp_path, "step")[step]["grad_norm"] == pytest.approx(float(norm), rel=1e-6)
    batches = lines(tmp_path, "batch")
    assert [(line["samples"], line["micro_batches"]) for line in batches] == [(8, 2)] * 4
    assert len({line["hash"] for line in batches}) == 4


def test_which_ranks_share_a_group_of_the_optimizer_is_no_setting_of_it(tmp_path: Path) -> None:
    # Megatron Core says so of experts under expert parallelism alone, and was taken for another optimizer.
    model = network()
    group = {"params": list(model.parameters()), "is_expert_parallel": True, "wd_mult": 1.0}
    rec = recorder(tmp_path)
    rec.start(model, torch.optim.AdamW([group]))
    rec.end(0)
    (described,) = lines(tmp_path, "model")[0]["optimizer"][0]["groups"]
    assert "is_expert_parallel" not in described
    assert described["wd_mult"] == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("clone_bytes", [64 << 20, 0])
def test_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clone_bytes: int, dtype: torch.dtype) -> None:
    given = {**(observing.Observer.__init__.__kwdefaults__ or {}), "clone_bytes": clone_bytes}
    monkeypatch.setattr(observing.Observer.__init__, "__kwdefaults__", given)
    model = network(dtype=dtype)
    optimizer = adam(model)
    rec = recorder(tmp_path, WORLD_SIZE="2")
    rec.start(model, optimizer)
    for step in range(3):
        before = [p.detach().double().clone() for p in model.parameters()]
        train(model, optimizer, rec, steps=1, first=step)
        changes = [p.detach().double() - old for p, old in zip(model.parameters(), before, strict=True)]
        line = lines(tmp_path, "update")[-1]
        assert line["estimated"] == (clone_bytes == 0)
        assert line["norms"] == pytest.approx(
            [float(change.norm()) for change in changes], rel=0.5 if clone_bytes == 0 else 1e-6
        )
        if step < 2:
            expected = torch.stack([sketch(change) for change in changes])
            torch.testing.assert_close(unpacked(line["sketch"]), expected, rtol=1e-6, atol=1e-7)
        else:
            assert "sketch" not in line
        assert line["hashes"] == [f"{state_hash(p):016x}" for p in model.parameters()]
    rec.end(3)


def test_replicas_are_hashed_after_the_first_steps_and_then_after_every_fifth(tmp_path: Path) -> None:
    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path, WORLD_SIZE="2")
    rec.start(model, optimizer)
    train(model, optimizer, rec, steps=12)
    rec.end(12)
    hashed = [line["step"] for line in lines(tmp_path, "update") if None not in line["hashes"]]
    assert hashed == [0, 1, 2, 3, 4, 5, 10]


def test_parameters_of_several_dtypes_and_more_than_a_block(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.ParameterDict(
        {
            "narrow": torch.randn(300, dtype=torch.bfloat16),
            "large": torch.randn(300, 301).t(),  # not contiguous, and more than a block on the CPU
            "wide": torch.randn(70, dtype=torch.float64),
        }
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rec = recorder(tmp_path, WORLD_SIZE="2")
    rec.start(model, optimizer)
    before = [p.detach().double().clone() for p in model.values()]
    for p in model.values():
        p.grad = torch.randn_like(p)
    optimizer.step()
    rec.step(0, loss=1.0)
    rec.end(1)
    grads, update = lines(tmp_path, "gradients")[0], lines(tmp_path, "update")[0]
    changes = [p.detach().double() - old for p, old in zip(model.values(), before, strict=True)]
    assert grads["norms"] == pytest.approx([float(p.grad.double().norm()) for p in model.values()], rel=1e-8)
    assert update["norms"] == pytest.approx([float(change.norm()) for change in changes], rel=1e-5)
    torch.testing.assert_close(unpacked(grads["sketch"]), torch.stack([sketch(p.grad) for p in model.values()]))
    expected = torch.stack([sketch(change) for change in changes])
    torch.testing.assert_close(unpacked(update["sketch"]), expected, rtol=1e-5, atol=1e-5)  # subtracted in float32
    assert update["hashes"] == [f"{state_hash(p):016x}" for p in model.values()]


def test_a_single_rank_has_no_replicas(tmp_path: Path) -> None:
    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path)
    rec.start(model, optimizer)
    train(model, optimizer, rec, steps=1)
    rec.end(1)
    assert lines(tmp_path, "update")[0]["hashes"] == [None] * 4


@pytest.mark.skipif(not hasattr(torch.nn.utils, "clip_grads_with_norm_"), reason="torch 2.7 has it")
def test_clipping_by_a_norm_that_the_loop_reduced_itself(tmp_path: Path) -> None:
    # As torchtitan does: its gradients were read once they were clipped, and all off by what two norms differed.
    def clip(parameters: Iterator[nn.Parameter], max_norm: float) -> None:
        given = list(parameters)
        norm = torch.nn.utils.get_total_norm([p.grad for p in given if p.grad is not None])
        torch.nn.utils.clip_grads_with_norm_(given, max_norm, norm)

    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path)
    rec.start(model, optimizer)
    (grads,) = train(model, optimizer, rec, steps=1, clip=clip)
    rec.end(1)
    (line,) = lines(tmp_path, "gradients")
    assert line["read"] == "before clipping"
    assert line["norms"] == pytest.approx([float(grad.double().norm()) for grad in grads], rel=1e-8)


def test_clipping_that_was_imported_by_name(tmp_path: Path) -> None:
    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path)
    rec.start(model, optimizer)
    (grads,) = train(model, optimizer, rec, steps=1, clip=imported_by_name)
    rec.end(1)
    (line,) = lines(tmp_path, "gradients")
    assert line["read"] == "before clipping"
    assert line["norms"] == pytest.approx([float(grad.double().norm()) for grad in grads], rel=1e-8)
    assert "grad_norm" in lines(tmp_path, "step")[0]


def test_gradients_read_where_the_loop_says(tmp_path: Path) -> None:
    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path)
    rec.start(model, optimizer)
    backward(model, 0)
    expected = [float(p.grad.double().norm()) for p in model.parameters()]
    rec.gradients()
    for p in model.parameters():
        p.grad.mul_(0.5)
    optimizer.step()
    rec.step(0, loss=1.0, grad_norm=2.0)
    rec.end(1)
    (line,) = lines(tmp_path, "gradients")
    assert line["read"] == "gradients()"
    assert line["norms"] == pytest.approx(expected, rel=1e-8)
    assert lines(tmp_path, "step")[0]["grad_norm"] == 2.0


def test_without_clipping_gradients_are_read_at_the_optimizer_step(tmp_path: Path) -> None:
    model = network()
    # One for each layer; both of them step before the loop records.
    optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.SGD(model[2].parameters(), lr=0.1)]
    rec = recorder(tmp_path)
    rec.start(model, optimizers)
    backward(model, 0)
    norms = [float(p.grad.double().norm()) for p in model.parameters()]
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    rec.step(0, loss=1.0)
    rec.end(1)
    (line,) = lines(tmp_path, "gradients")
    assert line["read"] == "at the optimizer step"
    assert line["norms"] == pytest.approx(norms, rel=1e-8)
    assert lines(tmp_path, "update")[0]["norms"] == pytest.approx([0.1 * norm for norm in norms], rel=1e-4)
    assert len(lines(tmp_path, "model")[0]["optimizer"]) == 2


def test_a_norm_of_some_of_the_gradients_is_not_the_gradient_norm(tmp_path: Path) -> None:
    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path)
    rec.start(model, optimizer)
    backward(model, 0)
    torch.nn.utils.clip_grad_norm_(model[0].parameters(), 1.0)
    optimizer.step()
    rec.step(0, loss=1.0)
    rec.end(1)
    assert "grad_norm" not in lines(tmp_path, "step")[0]


def test_a_step_that_a_scaler_leaves_out(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    rec = recorder(tmp_path)
    rec.start(model, optimizer)
    for step, factor in enumerate((1.0, float("inf"))):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(4, 8)).square().mean() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        rec.step(step, loss=1.0)
    rec.end(2)
    assert [line["step"] for line in lines(tmp_path, "update")] == [0]
    assert [line["step"] for line in lines(tmp_path, "step")] == [0, 1]
    model = network()
    model(torch.ones(4, 8)).square().mean().backward()
    exact = [float(p.grad.double().norm()) for p in model.parameters()]
    assert lines(tmp_path, "gradients")[0]["norms"] == pytest.approx(exact, rel=1e-5)


def test_frozen_parameters_missing_gradients_and_buffers(tmp_path: Path) -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 2, bias=False), "unused": nn.Linear(2, 2, bias=False)})
    model["frozen"] = nn.BatchNorm1d(2).requires_grad_(False)
    optimizer = adam(model)
    rec = recorder(tmp_path, WORLD_SIZE="2")
    rec.start(model, optimizer)
    model["used"](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    rec.step(0, loss=1.0)
    rec.end(1)
    described = lines(tmp_path, "model")[0]
    assert [part["trainable"] for part in described["parameters"]] == [True, True, False, False]
    assert [part["name"] for part in described["buffers"]] == [
        "frozen.running_mean", "frozen.running_var", "frozen.num_batches_tracked",
    ]  # fmt: skip
    (line,) = lines(tmp_path, "gradients")
    assert [norm is None for norm in line["norms"]] == [False, True, True, True]
    assert not unpacked(line["sketch"])[1:].any()
    (line,) = lines(tmp_path, "update")
    assert [norm is None for norm in line["norms"]] == [False, False, True, True]
    assert None not in line["hashes"]


def test_an_empty_part(tmp_path: Path) -> None:
    class Nothing:
        shape, starts, stops = (2, 8), (2, 0), (2, 8)

    model = nn.Linear(8, 1, bias=False)
    model.weight = nn.Parameter(torch.zeros(0, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rec = recorder(tmp_path, WORLD_SIZE="3")
    rec.start(model, optimizer, shards={"weight": Nothing()})
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    rec.step(0, loss=1.0)
    rec.end(1)
    assert lines(tmp_path, "model")[0]["parameters"][0]["hash"] == "0" * 16
    assert lines(tmp_path, "gradients")[0]["norms"] == [0]
    assert lines(tmp_path, "update")[0]["hashes"] == [None]


def test_sketched_steps_are_counted_from_the_start(tmp_path: Path) -> None:
    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path, PARITY_SKETCH_STEPS="0, 2")
    rec.start(model, optimizer)
    train(model, optimizer, rec, steps=4, first=100)
    rec.end(4)
    assert [line["step"] for line in lines(tmp_path, "gradients") if "sketch" in line] == [100, 102]
    assert [line["step"] for line in lines(tmp_path, "update") if "sketch" in line] == [100]
    with pytest.raises(UsageError, match="PARITY_SKETCH_STEPS: 'x' is not a whole number"):
        recorder(tmp_path, PARITY_SKETCH_STEPS="0,x")


@pytest.mark.parametrize("watched", [True, False])
def test_training_is_bitwise_the_same(tmp_path: Path, watched: bool) -> None:
    plain, other = network(), network()
    rec = recorder(tmp_path) if watched else Recorder.from_env({})
    optimizers = adam(plain), adam(other)
    rec.start(other, optimizers[1])
    before = torch.get_rng_state()
    train(plain, optimizers[0], None, clip=imported_by_name)
    train(other, optimizers[1], rec, clip=torch.nn.utils.clip_grad_norm_)
    rec.end(4)
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a.grad, b.grad)
        for name, value in optimizers[0].state[a].items():
            assert torch.equal(value, optimizers[1].state[b][name])


def test_outside_of_a_leg_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clip = torch.nn.utils.clip_grad_norm_
    model = network()
    optimizer = adam(model)
    rec = Recorder.from_env({})
    rec.start(model, optimizer)
    assert torch.nn.utils.clip_grad_norm_ is clip
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    rec.gradients()
    train(model, optimizer, rec, steps=1)
    rec.end(1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("last", ["end", "error"])
def test_everything_is_restored(tmp_path: Path, last: str) -> None:
    clip = torch.nn.utils.clip_grad_norm_
    inner = torch.nn.utils.clip_grad._get_total_norm
    model = network()
    optimizer = adam(model)
    rec = recorder(tmp_path)
    rec.start(model, optimizer)
    assert torch.nn.utils.clip_grad_norm_ is not clip
    train(model, optimizer, rec, steps=1)
    rec.end(1) if last == "end" else rec.error(ValueError("late"))
    assert torch.nn.utils.clip_grad_norm_ is torch.nn.utils.clip_grad.clip_grad_norm_ is clip
    assert torch.nn.utils.clip_grad._get_total_norm is inner
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    assert lines(tmp_path)[-1]["kind"] == last


def test_an_optimizer_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="an optimizer, but no model"):
        recorder(tmp_path).start(None, adam(network()))


def test_without_a_model_only_curves_are_written(tmp_path: Path) -> None:
    rec = recorder(tmp_path)
    rec.start(environment={"dtype": "fp32"}, coordinates={"dp": 1})
    rec.gradients()
    rec.step(0, loss=1.0, batch=torch.arange(6).view(2, 3))
    assert [line["kind"] for line in lines(tmp_path)] == ["start", "batch", "step"]
    assert lines(tmp_path)[0]["environment"] == {"dtype": "fp32"}
    assert lines(tmp_path)[0]["coordinates"] == {"dp": 1}


def test_a_hundred_parameters_and_steps_take_less_than_a_megabyte(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.ModuleList(nn.Linear(16, 16) for _ in range(50))
    optimizer = adam(model)
    rec = recorder(tmp_path, WORLD_SIZE="2")
    rec.start(model, optimizer, coordinates={"dp": 0, "tp": 0})
    for step in range(100):
        for layer in model:
            layer(torch.randn(2, 16)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        rec.step(step, loss=1 / 3, grad_norm=2 / 3, lr=1e-3, batch=[torch.arange(8).view(2, 4)] * 2)
    rec.end(100)
    assert (tmp_path / "rank-0.jsonl").stat().st_size < 1e6


def test_a_process_without_a_leg_does_not_import_torch() -> None:
    code = (
        "import sys; from parity.record import Recorder; rec = Recorder.from_env({}); rec.start(object(), object());"
        "rec.gradients(); rec.step(0, loss=1.0, batch=object()); rec.end(1); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
