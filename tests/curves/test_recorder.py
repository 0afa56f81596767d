import json
from typing import Any

import pytest

from parity.curves import read
from parity.errors import UsageError
from tests.curves.conftest import Write

START = {
    "kind": "start",
    "format": "parity.record/1",
    "run_id": "r1",
    "leg": "tp3",
    "rank": 0,
    "world_size": 3,
    "time": 1.0,
    "environment": {"torch": "2.13.0", "gpus": ["a", "b"]},
}
STEPS = [{"kind": "step", "step": i, "loss": 6.28 - i, "grad_norm": 3.2, "time": 2.0 + i} for i in range(3)]
END = {"kind": "end", "steps": 3, "time": 9.0}


def text(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_recorder__whole_file(write: Write) -> None:
    leg = read(write(text(START, *STEPS, END)))
    assert leg.format == "recorder"
    assert leg.notes[0].text == "recorder: the first line says parity.record/1"
    assert len(leg.notes) == 1
    assert sorted(leg.curves) == ["grad_norm", "loss"]
    assert leg.curves["loss"].values.tolist() == [6.28, 6.28 - 1, 6.28 - 2]
    assert leg.environment == START["environment"]
    assert leg.start == {"run_id": "r1", "leg": "tp3", "rank": 0, "world_size": 3, "time": 1.0}
    assert leg.finished is True


def test_recorder__without_an_end_line_is_not_finished(write: Write) -> None:
    assert read(write(text(START, *STEPS))).finished is False


def test_recorder__torn_last_line(write: Write) -> None:
    leg = read(write(text(START, *STEPS)[:-20]))
    assert leg.curves["loss"].steps.tolist() == [0, 1]
    assert "torn" in leg.notes[-1].text
    assert leg.finished is False


def test_recorder__error_line(write: Write) -> None:
    error = {"kind": "error", "type": "ValueError", "message": "bad\n\x1b[31mshape", "time": 3.0}
    leg = read(write(text(START, STEPS[0], error)))
    assert leg.notes[-1].text == "the leg recorded an error, ValueError: bad shape"
    assert leg.finished is False


def test_recorder__error_before_the_start_line(write: Write) -> None:
    leg = read(write(text({"kind": "error", "type": "ImportError", "message": "no torch"})))
    assert leg.format == "recorder"
    assert leg.curves == {}
    assert leg.finished is False
    assert "the leg recorded an error, ImportError: no torch" in [note.text for note in leg.notes]


def test_recorder__no_step_is_no_mistake_of_the_user(write: Write) -> None:
    leg = read(write(text(START)), keys={"grad_norm": "my_norm"})
    assert leg.curves == {}
    assert leg.notes[-1].text == "no step was recorded: the leg ended before its first"


def test_recorder__started_again(write: Write) -> None:
    leg = read(write(text(START, *STEPS, END, {**START, "run_id": "r2"}, {**STEPS[0], "loss": 1.0})))
    assert leg.finished is False
    assert leg.start["run_id"] == "r2"
    assert leg.curves["loss"].conflicts[0].step == 0
    assert "the leg was started again: line 6" in [note.text for note in leg.notes]


def test_recorder__end_line_disagrees_with_the_steps(write: Write) -> None:
    leg = read(write(text(START, *STEPS, {**END, "steps": 5})))
    assert leg.notes[-1].text == "the end line says 5 steps, the file has 3"


def test_recorder__unknown_kinds_are_ignored(write: Write) -> None:
    later: list[dict[str, Any]] = [
        {"kind": "fingerprint", "step": 0, "loss": 9.0},
        {"kind": ["x"]},
        {"step": 0, "loss": 9.0},
    ]
    leg = read(write(text(START, *later, *STEPS, END)))
    assert leg.curves["loss"].values[0] == 6.28
    assert len(leg.notes) == 1


def test_recorder__a_later_version_is_refused(write: Write) -> None:
    with pytest.raises(UsageError, match=r"says parity.record/2; this version of parity reads parity.record/1"):
        read(write(text({**START, "format": "parity.record/2"}, *STEPS)))


def test_recorder__keys_rename(write: Write) -> None:
    leg = read(write(text(START, *STEPS)), keys={"norm": ["absent", "grad_norm"]})
    assert sorted(leg.curves) == ["loss", "norm"]


def test_recorder__keys_that_are_nowhere(write: Write) -> None:
    path = write(text(START, *STEPS))
    with pytest.raises(UsageError, match=r"keys.grad_norm: no step has gradnorm, did you mean grad_norm\?"):
        read(path, keys={"grad_norm": "gradnorm"})
    with pytest.raises(UsageError, match=r"^.*keys\.step: the recorder names its own steps"):
        read(path, keys={"step": "step"})


def test_recorder__another_file_under_this_name(write: Write) -> None:
    with pytest.raises(UsageError, match="is not a recorder's file"):
        read(write('{"step": 0, "loss": 1.0}\n'), format="recorder")


def test_recorder__late_metric_is_missing_before(write: Write) -> None:
    leg = read(write(text(START, *STEPS, {"kind": "step", "step": 3, "loss": 1.0, "aux": 0.5})))
    assert leg.curves["aux"].missing == (0, 1, 2)
    assert leg.curves["grad_norm"].missing == (3,)


def test_recorder__a_new_field_in_every_line_is_bounded(write: Write) -> None:
    steps = [{"kind": "step", "step": i, f"m{i}": 1.0} for i in range(1000)]
    assert len(read(write(text(START, *steps))).curves) == 256


def test_recorder__deep_environment_is_cut(write: Write) -> None:
    deep = text(START).replace('"2.13.0"', "[" * 500 + "]" * 500)
    assert len(json.dumps(read(write(deep)).environment)) < 200
