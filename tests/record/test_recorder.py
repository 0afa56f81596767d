"""What a rank leaves of itself, also when it dies."""

import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parity.errors import UsageError
from parity.record import Recorder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def recorder(folder: Path, **more: str) -> Recorder:
    return Recorder.from_env({"PARITY_RECORD_DIR": str(folder), **more})


def test_a_whole_leg_is_one_line_per_event(tmp_path: Path) -> None:
    env = {"RANK": "1", "WORLD_SIZE": "3", "PARITY_RUN_ID": "r7", "PARITY_LEG": "tp3"}
    rec = recorder(tmp_path, **env)
    rec.start({"torch": "2.13.0", "layout": {"tp": 3}})
    rec.step(0, loss=6.28, grad_norm=3.2, lr=0.001)
    rec.end(1)
    start, step, end = lines(tmp_path / "rank-1.jsonl")
    times = [line.pop("time") for line in (start, step, end)]
    assert times == sorted(times)
    assert start == {
        "kind": "start",
        "format": "parity.record/1",
        "run_id": "r7",
        "leg": "tp3",
        "rank": 1,
        "world_size": 3,
        "environment": {"torch": "2.13.0", "layout": {"tp": 3}},
    }
    assert step == {"kind": "step", "step": 0, "loss": 6.28, "grad_norm": 3.2, "lr": 0.001}
    assert 1 << 22 < end.pop("peak_memory") < 1 << 40
    assert end == {"kind": "end", "steps": 1}


def test_peak_memory_is_the_accelerators_where_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = SimpleNamespace(is_initialized=lambda: False)
    busy = SimpleNamespace(is_initialized=lambda: True, max_memory_allocated=lambda: 5 << 30)
    for number, torch in enumerate((SimpleNamespace(cuda=busy), SimpleNamespace(cuda=idle, npu=busy))):
        monkeypatch.setitem(sys.modules, "torch", torch)
        rec = recorder(tmp_path, RANK=str(number))
        rec.end(0)
        (end,) = lines(tmp_path / f"rank-{number}.jsonl")
        assert end["peak_memory"] == 5 << 30


def test_without_a_launcher_rank_and_run_have_defaults(tmp_path: Path) -> None:
    recorder(tmp_path).start({})
    (start,) = lines(tmp_path / "rank-0.jsonl")
    assert (start["rank"], start["world_size"], start["run_id"], start["leg"]) == (0, 1, None, None)


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARITY_RECORD_DIR", raising=False)
    rec = Recorder.from_env()
    rec.start({})
    rec.step(0, loss=1.0)
    rec.error(ValueError("x"))
    rec.end(1)
    assert not rec.active
    assert list(tmp_path.iterdir()) == []


def test_floats_keep_every_digit(tmp_path: Path) -> None:
    loss = math.nextafter(6.238324165344238, 7)
    recorder(tmp_path).step(0, loss=loss)
    assert lines(tmp_path / "rank-0.jsonl")[0]["loss"] == loss


def test_nan_and_infinity_are_written_bare(tmp_path: Path) -> None:
    recorder(tmp_path).step(3, loss=math.nan, grad_norm=math.inf)
    text = (tmp_path / "rank-0.jsonl").read_text()
    assert '"loss": NaN, "grad_norm": Infinity' in text


def test_a_metric_that_is_none_is_absent_and_others_keep_their_type(tmp_path: Path) -> None:
    recorder(tmp_path).step(0, loss=1, grad_norm=None, lr=None, tokens=128, router_loss=0.5)
    (step,) = lines(tmp_path / "rank-0.jsonl")
    del step["time"]
    assert step == {"kind": "step", "step": 0, "loss": 1, "tokens": 128, "router_loss": 0.5}


def test_an_error_before_start_is_on_record(tmp_path: Path) -> None:
    recorder(tmp_path / "new").error(ValueError("no such layout"))
    (error,) = lines(tmp_path / "new" / "rank-0.jsonl")
    del error["time"]
    assert error == {"kind": "error", "type": "ValueError", "message": "no such layout"}


def test_an_errors_message_is_one_short_line(tmp_path: Path) -> None:
    recorder(tmp_path).error(RuntimeError("first\n  second\t" + "x" * 5000))
    (error,) = lines(tmp_path / "rank-0.jsonl")
    assert error["message"].startswith("first second xxx")
    assert len(error["message"]) == 2000


def test_an_older_record_is_replaced_not_continued(tmp_path: Path) -> None:
    for run in ("old", "new"):
        rec = recorder(tmp_path, PARITY_RUN_ID=run)
        rec.start({})
        rec.step(0, loss=1.0)
    start, step = lines(tmp_path / "rank-0.jsonl")
    assert start["run_id"] == "new"
    assert step["kind"] == "step"


def test_every_line_is_in_the_file_before_the_next_call(tmp_path: Path) -> None:
    rec = recorder(tmp_path)
    rec.start({})
    for step in range(3):
        rec.step(step, loss=1.0)
        assert len(lines(tmp_path / "rank-0.jsonl")) == step + 2


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_a_rank_that_is_no_number_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: 'two' is not a whole number"):
        recorder(tmp_path, **{name: "two"})


def test_importing_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; import parity.record;"
        "tops = {name.partition('.')[0] for name in sys.modules};"
        "sys.exit(bool(tops & {'torch', 'numpy', 'pydantic', 'click', 'yaml'}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
