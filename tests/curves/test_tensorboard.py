import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import LegCurves, Limits, events, read, tensorboard
from parity.errors import UsageError

LOGS = Path(__file__).parents[1] / "data" / "logs"
Scalars = dict[str, dict[int, float]]


def framed(*payloads: bytes) -> bytes:
    return b"".join(
        struct.pack("<Q", len(data)) + checksum(struct.pack("<Q", len(data))) + data + checksum(data)
        for data in payloads
    )


def checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def event(step: int = 0, **fields: Any) -> bytes:
    made = events._event()(step=step, **fields)
    return bytes(made.SerializeToString())


def value(tag: str, number: float, step: int) -> bytes:
    return event(step, summary={"value": [{"tag": tag.encode(), "simple_value": number}]})


# Field 3 is the file's version.
FIRST = framed(b"\x09" + struct.pack("<d", 1.8e9) + b"\x1a\x0dbrain.Event:2")


def file_of(scalars: Scalars, restart: int | None = None) -> bytes:
    begin = [] if restart is None else [event(restart, session_log={"status": 1})]
    steps = sorted({step for one in scalars.values() for step in one})
    return FIRST + framed(
        *begin, *(value(tag, scalars[tag][step], step) for step in steps for tag in scalars if step in scalars[tag])
    )


Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def _save(content: bytes, name: str = "run/events.out.tfevents.1.host0.7.0") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return _save


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(path, **options)
    (line,) = error.value.lines
    return line.split(": ", 1)[1]


def notes(leg: LegCurves) -> list[str]:
    return [note.text for note in leg.notes]


def test_tensorboard__torchtitan_a_file_and_its_folder() -> None:
    folder = LOGS / "torchtitan/tp2/tb"
    (file,) = folder.rglob("events*")
    by_folder, by_file = read(folder), read(file)
    assert notes(by_folder) == ["tensorboard: 1 event file"]
    assert notes(by_file) == ["tensorboard: it begins as an event file does"]
    for leg in (by_folder, by_file):
        assert leg.format == "tensorboard"
        assert leg.curves["loss"].steps.tolist() == list(range(1, 21))
        assert leg.curves["loss"].values[[0, -1]].tolist() == [8.046070098876953, 5.897411346435547]
        assert leg.curves["grad_norm"].values[-1] == 1.4301621913909912
        assert leg.curves["lr"].values[0] == np.float32(4e-4)
        assert leg.base == 1


def test_tensorboard__values_are_no_finer_than_float32() -> None:
    loss = read(LOGS / "torchtitan/base/tb").curves["loss"]
    assert loss.resolution.at(loss.values)[0] == 2.0**-20
    assert loss.resolution.at(np.array([1.0, np.nan, 0.0])).tolist() == [2.0**-23, 0.0, 2.0**-23]


def test_tensorboard__deepspeed_counts_samples_and_autotp_ranks_as_data_parallel() -> None:
    for leg, samples in (("tp1_z0", 4), ("tp3_z0", 12)):
        read_leg = read(LOGS / "deepspeed/tb" / leg)
        assert read_leg.curves["lr"].steps.tolist() == list(range(1, 51))
        assert f"counts samples: {samples} were taken for one step" in notes(read_leg)[1]


def test_tensorboard__samples_that_are_no_multiples_stay(save: Save) -> None:
    leg = read(save(file_of({"Train/Samples/train_loss": {8: 1.0, 12: 2.0}})))
    assert leg.curves["loss"].steps.tolist() == [8, 12]
    assert "counts samples, taken for steps here" in notes(leg)[1]


def test_tensorboard__megatron_without_its_twins(save: Save) -> None:
    leg = read(
        save(
            file_of(
                {
                    "lm loss": {1: 2.0, 2: 1.0},
                    "lm loss vs samples": {4: 2.0, 8: 1.0},
                    "grad-norm": {1: 3.0, 2: 4.0},
                    "lm loss validation": {2: 9.0},
                }
            )
        )
    )
    assert {m: c.values.tolist() for m, c in leg.curves.items()} == {"loss": [2.0, 1.0], "grad_norm": [3.0, 4.0]}
    assert notes(leg)[1] == "tags that end in ' vs samples' were left out: they are not by step"


def test_tensorboard__two_losses_are_asked_about(save: Save) -> None:
    path = save(file_of({"loss": {1: 1.0}, "train/loss": {1: 2.0}}))
    assert (
        refused(path) == "loss and train/loss could each be the loss: say which, keys: {loss: loss} (--key loss=loss)"
    )
    assert read(path, keys={"loss": "train/loss"}).curves["loss"].values.tolist() == [2.0]


def test_tensorboard__keys(save: Save) -> None:
    path = save(file_of({"my/loss": {1: 1.0}, "aux": {1: 2.0}}))
    assert refused(path).startswith("no record has a loss, grad_norm, lr; the keys are: aux, my/loss, step")
    assert read(path, keys={"loss": "my/loss", "aux": "aux"}).curves["aux"].values.tolist() == [2.0]
    assert "no record has my/lss, did you mean my/loss?" in refused(path, keys={"loss": "my/lss"})
    assert refused(path, keys={"step": "x"}).startswith("keys.step: every value is stored with its own step")


def test_tensorboard__nan_and_infinity(save: Save) -> None:
    values = read(save(file_of({"loss": {1: np.nan, 2: np.inf, 3: -np.inf}}))).curves["loss"].values
    assert np.array_equal(values, [np.nan, np.inf, -np.inf], equal_nan=True)


def test_tensorboard__scalars_of_tensorflow_2(save: Save) -> None:
    tensors: list[dict[str, Any]] = [
        {"dtype": 1, "float_val": [1.5]},
        {"dtype": 1, "tensor_content": struct.pack("<f", 2.5)},
        {"dtype": 2, "double_val": [3.5]},
        {"dtype": 2, "tensor_content": struct.pack("<d", 4.5)},
        {"dtype": 1, "float_val": [1.0, 2.0]},
        {"dtype": 7, "tensor_content": b"text"},
    ]
    made = [event(step, summary={"value": [{"tag": b"loss", "tensor": one}]}) for step, one in enumerate(tensors)]
    assert read(save(FIRST + framed(*made))).curves["loss"].values.tolist() == [1.5, 2.5, 3.5, 4.5]


def test_tensorboard__a_restart_that_purges_replaces_what_came_after(save: Save) -> None:
    save(file_of({"loss": {1: 1.0, 2: 2.0, 3: 3.0}}))
    path = save(file_of({"loss": {3: 5.0, 4: 6.0}}, restart=3), "run/events.out.tfevents.2.host0.7.0")
    leg = read(path.parent)
    assert leg.curves["loss"].values.tolist() == [1.0, 2.0, 5.0, 6.0]
    assert leg.curves["loss"].conflicts == ()
    assert notes(leg) == [
        "tensorboard: 2 event files",
        "the run was started again from step 3: 1 earlier values from there on were left out",
    ]


def test_tensorboard__a_restart_without_purging_is_a_conflict(save: Save) -> None:
    save(file_of({"loss": {1: 1.0, 2: 2.0}}))
    path = save(file_of({"loss": {2: 5.0, 3: 6.0}}), "run/events.out.tfevents.2.host0.7.0")
    loss = read(path.parent).curves["loss"]
    assert loss.steps.tolist() == [1, 2, 3]
    assert [(one.step, one.values) for one in loss.conflicts] == [(2, (2.0, 5.0))]


def test_tensorboard__two_runs_in_a_folder_are_asked_about(save: Save) -> None:
    save(file_of({"loss": {1: 1.0}}), "runs/a/events.out.tfevents.1.h")
    save(file_of({"loss": {1: 2.0}}), "runs/b/events.out.tfevents.1.h")
    path = save(FIRST, "runs/c/events.out.tfevents.1.h")
    assert refused(path.parents[1]) == "holds several runs, a, b: name the folder of one"
    assert refused(path.parent) == "holds no scalars: the run logged none, or has not flushed them yet"


def test_tensorboard__folders_without_event_files(tmp_path: Path) -> None:
    assert refused(tmp_path).endswith("name the file in it")
    (tmp_path / "log.txt").write_text("x")
    assert refused(tmp_path).endswith("name the file in it, such as log.txt")
    assert refused(tmp_path, format="tensorboard").startswith("holds no scalars")
    assert "is a folder" in refused(tmp_path, format="jsonl")
    assert refused(tmp_path / "log.txt", format="tensorboard").startswith("holds no scalars")


def test_tensorboard__a_torn_tail_costs_the_last_record(save: Save) -> None:
    whole = file_of({"loss": {1: 1.0, 2: 2.0}})
    for cut in range(1, len(framed(value("loss", 2.0, 2)))):
        leg = read(save(whole[:-cut]))
        assert leg.curves["loss"].values.tolist() == [1.0]
        assert notes(leg)[1] == "the last record is torn, as after a crash, and was ignored"


def test_tensorboard__a_wrong_checksum_is_refused(save: Save) -> None:
    data = bytearray(file_of({"loss": {1: 1.0, 2: 2.0}}))
    data[-8] ^= 1
    assert refused(save(bytes(data))) == "is damaged: the checksum of record 3 is wrong"
    data = bytearray(FIRST + framed(b"\xff\xff"))
    assert refused(save(bytes(data))) == "is damaged: a record is no TensorBoard event"
    data[len(FIRST)] ^= 1
    assert refused(save(bytes(data))).startswith("is damaged, or no event file: the checksum of record 2")


def test_tensorboard__long_records_are_passed_over(save: Save) -> None:
    image = framed(event(1, summary={"value": [{"tag": b"x" * events.LONGEST}]}))
    leg = read(save(FIRST + image + framed(value("loss", 1.0, 1))))
    assert leg.curves["loss"].values.tolist() == [1.0]
    assert notes(leg)[1] == "records longer than 1 MiB were passed over"
    huge = struct.pack("<Q", 1 << 60)
    leg = read(save(FIRST + framed(value("loss", 1.0, 1)) + huge + checksum(huge)))
    assert "is torn" in notes(leg)[1]


def test_tensorboard__bounds(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    data = file_of({"loss": dict.fromkeys(range(20), 1.0)})
    assert "at most 100 bytes is read" in refused(save(data), limits=Limits(size=100))
    two = save(data, "two/events.out.tfevents.1.h")
    save(data, "two/events.out.tfevents.2.h")
    assert refused(two.parent, limits=Limits(size=len(data) + 1)).startswith("holds more than")
    monkeypatch.setattr(events, "MOST_RECORDS", 10)
    assert refused(save(data)) == "holds more than 10 records"
    monkeypatch.setattr(events, "MOST_RECORDS", 1000)
    monkeypatch.setattr(tensorboard, "MOST_SCALARS", 10)
    assert refused(save(data)) == "holds more than 10 values of the metrics asked for"
    monkeypatch.setattr(tensorboard, "MOST_SCALARS", 1000)
    monkeypatch.setattr(tensorboard, "MOST_RESTARTS", 3)
    again = b"".join(framed(value("loss", 1.0, 9), event(9, session_log={"status": 1})) for _ in range(4))
    assert refused(save(FIRST + again)) == "was started again more than 3 times"


def test_tensorboard__within_refuses_links(save: Save, tmp_path: Path) -> None:
    secret = save(file_of({"loss": {1: 1.0}}), "secret/events.out.tfevents.1.h")
    run = tmp_path / "out"
    (run / "tb").mkdir(parents=True)
    (run / "tb" / secret.name).symlink_to(secret)
    (run / "whole").symlink_to(secret.parent)
    for path in (run / "tb", run / "tb" / secret.name, run / "whole", run / "whole" / secret.name, secret):
        assert "links are not followed" in refused(path, within=run)
    assert "links are not followed" in refused(run / "tb")  # in a folder never, whoever wrote it
    assert read(run / "whole").curves["loss"].values.tolist() == [1.0]


def test_tensorboard__its_libraries_are_not_loaded_for_other_formats() -> None:
    code = "import sys, parity.curves as c; c.formats(); print({'google.protobuf', 'google_crc32c'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
PIECES = st.lists(
    st.sampled_from([FIRST, framed(value("loss", 1.0, 1)), framed(event(1, session_log={"status": 1})), framed(b"")])
    | st.binary(max_size=40)
    | st.binary(max_size=40).map(framed),
    max_size=8,
)


@SHARED
@given(PIECES.map(b"".join))
def test_tensorboard__any_bytes_give_curves_or_one_line(save: Save, data: bytes) -> None:
    for name in (None, "tensorboard"):
        try:
            read(save(FIRST + data), format=name)
        except UsageError as error:
            (line,) = error.lines
            assert line.isprintable()


@SHARED
@given(st.dictionaries(st.integers(0, 2**53), st.floats(width=32), min_size=1, max_size=20))
def test_tensorboard__values_come_back(save: Save, values: dict[int, float]) -> None:
    loss = read(save(file_of({"loss": values}))).curves["loss"]
    assert loss.steps.tolist() == sorted(values)
    assert np.array_equal(loss.values, [values[step] for step in sorted(values)], equal_nan=True)
