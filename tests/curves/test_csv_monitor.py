import math
from pathlib import Path

import pytest

from parity.curves import LegCurves, read, scalars
from parity.errors import UsageError


def folder_of(path: Path, **curves: list[tuple[int, object]]) -> Path:
    """What DeepSpeed's `csvMonitor` leaves: a file for each tag, whose last part is the header of its values."""
    path.mkdir(parents=True)
    for tag, rows in curves.items():
        lines = [f"step,{tag.rpartition('__')[2]}", *(f"{step},{value}" for step, value in rows), ""]
        (path / f"{tag.replace('__', '_')}.csv").write_text("\r\n".join(lines))
    (path / "deepspeed_config.csv").write_text("key,value\r\ntrain_batch_size,8\r\n")
    return path


def notes(leg: LegCurves) -> list[str]:
    return [note.text for note in leg.notes]


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as error:
        read(path)
    (line,) = error.value.lines
    return line.split(": ", 1)[1]


LOSS: list[tuple[int, object]] = [(8, 2.5), (16, "nan"), (24, 2.125)]


def test_csv_monitor__the_curves_of_a_folder_are_one_leg_s(tmp_path: Path) -> None:
    rates: list[tuple[int, object]] = [(8, 1e-3), (16, 9e-4), (24, 8e-4)]
    norms: list[tuple[int, object]] = [(1, 0.5), (2, 0.25), (3, 0.125)]
    made = folder_of(
        tmp_path / "job", Train__Samples__train_loss=LOSS, Train__Samples__lr=rates, Train__grad_norm=norms
    )
    leg = read(made)
    assert (leg.format, leg.base) == ("csv_monitor", 1)
    assert leg.fields["loss"] == "Train/Samples/train_loss"
    assert {metric: curve.steps.tolist() for metric, curve in leg.curves.items()} == {
        metric: [1, 2, 3] for metric in ("loss", "grad_norm", "lr")
    }
    assert leg.curves["loss"].values[[0, 2]].tolist() == [2.5, 2.125]
    assert math.isnan(leg.curves["loss"].values[1])
    assert leg.curves["lr"].values.tolist() == [1e-3, 9e-4, 8e-4]
    assert notes(leg) == [
        "csv_monitor: 4 curves of DeepSpeed's CSV monitor",
        "DeepSpeed counts samples: 8 were taken for one step, the first of which is 1",
    ]
    assert read(tmp_path, format="csv_monitor").curves["loss"].steps.tolist() == [1, 2, 3]


def test_csv_monitor__a_start_again_and_a_torn_end(tmp_path: Path) -> None:
    made = folder_of(tmp_path / "job", Train__Samples__train_loss=LOSS)
    with (made / "Train_Samples_train_loss.csv").open("a") as file:
        file.write("step,train_loss\r\n24,2.0\r\n32,1.875\r\n,\r\n40,1.7")
    leg = read(made)
    loss = leg.curves["loss"]
    assert loss.steps.tolist() == [1, 2, 3, 4]
    assert [one.step for one in loss.conflicts] == [3]
    assert "Train/Samples/train_loss has its header again, as of another start" in notes(leg)
    assert any("that are not step and value were ignored" in note for note in notes(leg))


def test_csv_monitor__samples_that_make_no_whole_steps(tmp_path: Path) -> None:
    leg = read(folder_of(tmp_path / "job", Train__Samples__train_loss=[(80, 2.5), (88, 2.25)]))
    assert (leg.curves["loss"].steps.tolist(), leg.base) == ([80, 88], None)
    assert "compare runs of equal batch size only" in notes(leg)[1]


def test_csv_monitor__two_jobs_and_none(tmp_path: Path) -> None:
    folder_of(tmp_path / "a", Train__Samples__train_loss=LOSS)
    folder_of(tmp_path / "b", Train__Samples__train_loss=LOSS)
    assert refused(tmp_path) == "holds several runs, a, b: name the folder of one"
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "metrics.csv").write_text("step,loss\n0,1.0\n")
    with pytest.raises(UsageError, match="holds no file Train_Samples_"):
        read(tmp_path / "none", format="csv_monitor")


@pytest.mark.parametrize("header", [b"step,a\rb\n", b'step,"a\n', b"\0\xff,\n", b"", b"step,train_loss\n\n\0,1\n"])
def test_csv_monitor__a_curve_that_is_none_is_one_line(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "Train_Samples_train_loss.csv").write_bytes(header + b"1,2.5")
    assert "\n" not in refused(tmp_path)


def test_csv_monitor__more_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "MOST_VALUES", 2)
    made = folder_of(tmp_path / "job", Train__Samples__train_loss=LOSS)
    assert refused(made) == "holds more than 2 values of the metrics asked for"
