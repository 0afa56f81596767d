import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import LegCurves, read, scalars
from parity.errors import UsageError


def run_of(folder: Path, metrics: dict[str, str]) -> Path:
    """A run's folder as MLflow's file store lays it out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.yaml").write_text("run_id: 0\n")
    for name, text in metrics.items():
        path = folder / "metrics" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(*args, **kwargs)
    (line,) = error.value.lines
    return line.split(": ", 1)[1]


def notes(leg: LegCurves) -> list[str]:
    return [note.text for note in leg.notes]


def test_mlflow__a_run(tmp_path: Path) -> None:
    text = "1796038543000 5.555248737335205 1\n1796038544000 nan 2\n"
    run = run_of(tmp_path / "run", {"loss": text, "grad_norm": "1 2.5 1\n2 3.5 2\n", "system/cpu": "1 50.0 0\n"})
    leg = read(run)
    assert notes(leg)[0] == "mlflow: 1 run with 3 metrics"
    assert leg.curves["loss"].steps.tolist() == [1, 2]
    assert np.array_equal(leg.curves["loss"].values, [5.555248737335205, np.nan], equal_nan=True)
    assert leg.curves["grad_norm"].values.tolist() == [2.5, 3.5]
    assert read(run, keys={"cpu": "system/cpu"}).curves["cpu"].steps.tolist() == [0]


def test_mlflow__names_with_folders(tmp_path: Path) -> None:
    assert read(run_of(tmp_path / "run", {"train/loss": "1 2.5 1\n"})).curves["loss"].values.tolist() == [2.5]


def test_mlflow__a_store_with_one_run_and_with_two(tmp_path: Path) -> None:
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("")
    run_of(tmp_path / "mlruns" / "0" / "4fd1", {"train/loss": "1 2.5 1\n"})
    for folder in (tmp_path, tmp_path / "mlruns"):
        assert read(folder).curves["loss"].values.tolist() == [2.5]
    run_of(tmp_path / "mlruns" / "0" / "9ab2", {"train/loss": "1 3.5 1\n"})
    assert refused(tmp_path / "mlruns") == "holds several runs, 0/4fd1/, 0/9ab2/: name the folder of one"


def test_mlflow__a_step_logged_twice_is_a_conflict(tmp_path: Path) -> None:
    loss = read(run_of(tmp_path / "run", {"loss": "1 2.5 1\n2 2.25 2\n3 3.5 1\n"})).curves["loss"]
    assert [(one.step, one.values) for one in loss.conflicts] == [(1, (2.5, 3.5))]


def test_mlflow__torn_and_odd_lines_are_noted(tmp_path: Path) -> None:
    leg = read(run_of(tmp_path / "run", {"loss": "1 2.5 1\nx\n1 2.5 -1\n2 2.25 2\n3 2.1"}))
    assert leg.curves["loss"].steps.tolist() == [1, 2]
    assert notes(leg)[1:] == ["lines of loss that are not timestamp, value and step were ignored"]


def test_mlflow__two_losses_are_asked_about(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"loss": "1 2.5 1\n", "train_loss": "1 2.5 1\n"})
    assert refused(run).startswith("loss and train_loss could each be the loss")


def test_mlflow__folders_that_are_none(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", {"accuracy": "1 0.5 1\n"})
    assert refused(run).startswith("no record has a loss, grad_norm, lr; the keys are: accuracy")
    (run / "meta.yaml").unlink()
    assert refused(run).startswith(
        "is a folder, and not one of csv_monitor or mlflow or tensorboard: name the file in it"
    )
    assert refused(run, format="mlflow").startswith("holds no run: the folder of one has meta.yaml")


def test_mlflow__links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1 2.5 1\n")
    run = run_of(tmp_path / "run", {"loss": "1 2.5 1\n"})
    (run / "metrics" / "train_loss").symlink_to(tmp_path / "secret")
    assert refused(run).endswith("is a link: links are not followed")
    (run / "metrics" / "train_loss").unlink()
    os.mkfifo(run / "metrics" / "train_loss")
    assert "is a pipe" in refused(run)


def test_mlflow__bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path / "run", {"loss": "1 2.5 1\n" * 20})
    monkeypatch.setattr(scalars, "MOST_VALUES", 10)
    assert refused(run) == "holds more than 10 values of the metrics asked for"


SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@SHARED
@given(st.binary(max_size=60) | st.lists(st.sampled_from([b"1", b" ", b"\n", b"nan", b"-1", b"\xff"])).map(b"".join))
def test_mlflow__any_bytes_give_curves_or_one_line(tmp_path: Path, data: bytes) -> None:
    run = run_of(tmp_path / "run", {"loss": ""})
    (run / "metrics" / "loss").write_bytes(data)
    try:
        read(run)
    except UsageError as error:
        (line,) = error.lines
        assert line.isprintable()


@SHARED
@given(st.dictionaries(st.integers(0, 2**53), st.floats(), min_size=1, max_size=20))
def test_mlflow__values_come_back_bit_for_bit(tmp_path: Path, values: dict[int, float]) -> None:
    text = "".join(f"1796038543000 {value} {step}\n" for step, value in values.items())
    loss = read(run_of(tmp_path / "run", {"loss": text})).curves["loss"]
    assert loss.steps.tolist() == sorted(values)
    assert np.array_equal(loss.values, [values[step] for step in sorted(values)], equal_nan=True)
