"""Formats that are one JSON document: trainer_state, log_dict, megatron_golden, json."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import LegCurves, opening, read
from parity.errors import UsageError
from tests.curves.conftest import Write

LOGS = Path(__file__).parents[1] / "data" / "logs"
DOCUMENTS = ("trainer_state", "log_dict", "megatron_golden", "json")


def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(*args, **kwargs)
    (line,) = error.value.lines
    return line.split(": ", 1)[1]


def notes(leg: LegCurves) -> list[str]:
    return [note.text for note in leg.notes]


def state(*entries: dict[str, Any], **more: Any) -> str:
    return json.dumps({"best_metric": None, "log_history": entries, **more}, indent=2)


ENTRY = {"epoch": 0.5, "grad_norm": 2.5, "learning_rate": 0.001, "loss": 5.5552, "step": 1}
EVAL = {"epoch": 0.5, "eval_loss": 9.0, "eval_runtime": 0.1, "step": 1}
SUMMARY = {"epoch": 1.0, "train_loss": 5.0, "train_runtime": 0.6, "step": 1}


@pytest.mark.parametrize("name", ["trainer_state.json", "log_history.json"])
def test_trainer_state__real(name: str) -> None:
    leg = read(LOGS / "hf_trainer/tr1" / name)
    assert leg.format == "trainer_state"
    assert leg.curves["loss"].steps.tolist() == list(range(1, 31))
    assert leg.curves["loss"].values[[0, -1]].tolist() == [5.555248737335205, 5.541825294494629]
    assert leg.curves["grad_norm"].values[-1] == 1.0771301984786987
    assert leg.curves["lr"].values[0] == 0.001
    assert leg.base == 1
    assert notes(leg)[1:] == ["records with a step and no metric, as of evaluations, were ignored: record 31"]


def test_trainer_state__evaluations_and_the_summary_are_not_training(write: Write) -> None:
    leg = read(write(state(ENTRY, EVAL, SUMMARY)))
    assert notes(leg)[0] == "trainer_state: it has log_history"
    assert leg.curves["loss"].values.tolist() == [5.5552]
    assert leg.curves["loss"].resolution.decimals == 4
    assert (leg.curves["loss"].conflicts, leg.curves["loss"].missing) == ((), ())
    assert notes(leg)[1:] == ["records with a step and no metric, as of evaluations, were ignored: records 2, 3"]
    assert refused(write(state(EVAL, SUMMARY))).startswith("no record has a loss, grad_norm, lr; the keys are")


def test_trainer_state__a_mean_over_steps_is_said_to_be_one(write: Write) -> None:
    assert "logging_steps is 10: each loss is a mean" in notes(read(write(state(ENTRY, logging_steps=10))))[1]
    assert len(notes(read(write(state(ENTRY, logging_steps=1))))) == 1


def test_trainer_state__nothing_logged(write: Write) -> None:
    assert refused(write(state(x=1))) == "holds no log_history; it has best_metric, log_history, x"
    assert refused(write("[]"), format="trainer_state") == "holds no log_history; it is a list of 0"


def test_trainer_state__bare_nan_texts_and_repeated_keys(write: Write) -> None:
    entries = '{"epoch": 0, "step": 1, "loss": NaN}, {"epoch": 0, "step": "2", "loss": "2.5"}'
    loss = read(write(f'[{entries}, {{"step": 3, "loss": 1.0, "loss": 2.0}}]')).curves["loss"]
    assert math.isnan(loss.values[0])
    assert loss.values[1:].tolist() == [2.5, 1.0]
    assert [one.values for one in loss.conflicts] == [(1.0, 2.0)]


def test_log_dict__veomni() -> None:
    leg = read(LOGS / "veomni/f32_fsdp2/log_dict.json")
    assert notes(leg) == [
        "log_dict: loss is a list of values",
        "there are no steps in it: values were counted from 0",
    ]
    assert leg.curves["loss"].steps.tolist() == list(range(20))
    assert leg.base == 0
    assert leg.curves["loss"].values[[0, -1]].tolist() == [6.934426307678223, 6.941951274871826]
    assert leg.curves["grad_norm"].values[-1] == 0.7142987847328186


def test_log_dict__lists_of_other_lengths_and_steps_of_their_own(write: Write) -> None:
    leg = read(
        write('{"global_step": [5, 6, 7], "loss": [1.5, null, "nan"], "grad_norm": [2.5, 3.5], "val_loss": [9]}')
    )
    assert leg.curves["loss"].steps.tolist() == [5, 7]
    assert leg.curves["loss"].missing == (6,)
    assert leg.curves["grad_norm"].missing == (7,)
    assert leg.base is None
    assert notes(leg) == ["log_dict: loss is a list of values"]


def test_log_dict__lines_with_lists_are_json_lines(write: Write) -> None:
    leg = read(write('{"step": 0, "loss": 1.5, "grad_norm": [1, 2]}\n{"step": 1, "loss": 2.5}\n'))
    assert leg.format == "jsonl"


def test_log_dict__two_losses_are_asked_about(write: Write) -> None:
    path = write('{"loss": [1.0], "train_loss": [2.0]}')
    assert (
        refused(path) == "loss and train_loss could each be the loss: say which, keys: {loss: loss} (--key loss=loss)"
    )


GOLDEN = {
    "lm loss": {"start_step": 1, "end_step": 3, "step_interval": 1, "values": {"1": 10.60965, "2": "nan", "3": 10.5}},
    "num-zeros": {"start_step": 1, "end_step": 3, "step_interval": 1, "values": {"1": 4.0}},
}


def test_megatron_golden__values_by_step(write: Write) -> None:
    leg = read(write(json.dumps(GOLDEN, indent=4)))
    assert notes(leg)[0] == "megatron_golden: lm loss has values by step"
    loss = leg.curves["loss"]
    assert loss.steps.tolist() == [1, 2, 3]
    assert np.array_equal(loss.values, [10.60965, np.nan, 10.5], equal_nan=True)
    assert loss.resolution.decimals == 5


def test_megatron_golden__a_list_every_few_steps(write: Write) -> None:
    old = {"lm loss": {"start_step": 0, "end_step": 15, "step_interval": 5, "values": [3.5, 2.5, 1.5]}, "avg": 0.1}
    assert read(write(json.dumps(old))).curves["loss"].steps.tolist() == [0, 5, 10]


def test_megatron_golden__without_a_loss(write: Write) -> None:
    path = write(json.dumps({"num-zeros": GOLDEN["num-zeros"]}))
    assert refused(path).startswith("no record has a loss, grad_norm, lr; the keys are: num-zeros, step")


def test_json__a_trl_reference(write: Write) -> None:
    steps = [{"step": 1, "loss": 2.5, "grad_norm": 3.5}, {"step": 2, "loss": 2.25, "grad_norm": 3.25}]
    for indent in (None, 2):
        leg = read(write(json.dumps({"config": {"a": 1}, "env": {"trl": "1.0"}, "steps": steps}, indent=indent)))
        assert notes(leg) == ["json: steps is a list of records"]
        assert leg.curves["grad_norm"].values.tolist() == [3.5, 3.25]


def test_json__a_list_of_records_longer_than_the_beginning(write: Write) -> None:
    records = [{"step": step, "loss": 1.0 / (step + 1), "text": "x" * 50} for step in range(10_000)]
    for indent in (None, 1):
        leg = read(write(json.dumps(records, indent=indent)))
        assert leg.format == "json"
        assert leg.curves["loss"].values[-1] == 1e-4


def test_json__a_configuration_is_no_log(write: Write) -> None:
    path = write(json.dumps({"model_type": "qwen3", "layers": [1, 2], "loss": {"a": 1}}, indent=2))
    assert (
        refused(path)
        == "holds no list, or several, of records with a step and a loss; it has model_type, layers, loss"
    )
    path = write(json.dumps({"a": [{"step": 1}], "b": [{"step": 1}]}))
    assert refused(path) == "holds no list, or several, of records with a step and a loss; it has a, b"


def test_json__a_banner_before_printed_lines_is_no_document(write: Write) -> None:
    line = " iteration 3/ 100 | elapsed time per iteration (ms): 1.5 | lm loss: 6.612992E+00 |\n"
    for banner in ({"steps": [{"a": 1}]}, {"log": 1}):
        assert read(write(json.dumps(banner, indent=2) + "\n" + line)).format == "megatron"


@pytest.mark.parametrize("format_name", DOCUMENTS)
def test_documents__cut_short_is_refused_at_every_place(write: Write, format_name: str) -> None:
    text = state(ENTRY | {"a": "\\u00e9", "b": True, "c": -1.5})
    for cut in range(1, len(text)):
        why = refused(write(text[:cut]), format=format_name)
        assert why.startswith(("is cut short, as after a crash", "is not JSON"))
    assert refused(write(text[:-40])).startswith("is cut short")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "is nested too deeply to be a log"),
        ('{"a": ' * 100_000, "is nested too deeply to be a log"),
        ("[" + "9" * 5000 + "]", "is not JSON: it holds a number of thousands of digits"),
        ('{"a": 1}\n{"a": 2}', "is not one JSON document: after it comes '{\"a\": 2}'"),
        ('{\n "a": True}', "is not JSON: Expecting value at line 2"),
        ("3", "holds no log_history; it is 3"),
    ],
)
def test_documents__what_is_none(write: Write, text: str, why: str) -> None:
    assert refused(write(text), format="trainer_state") == why


def test_documents__too_long_for_memory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "DOCUMENT", 100)
    assert refused(write(state(ENTRY))).startswith("is one document of more than 32 MiB")


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
KEY = st.sampled_from(["step", "loss", "train_loss", "epoch", "values", "lm loss", "log_history", "start_step", "1"])
JSON = st.recursive(VALUE, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEY, inner, max_size=4))
PIECES = st.sampled_from(
    ['{"log_history": [', '{"epoch": 1, "step": 1', '"loss": [1', "[", "{", "}", "]", ",", ":", '"']
)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@SHARED
@given(
    JSON.map(json.dumps) | st.lists(PIECES, max_size=10).map("".join) | st.text(max_size=20),
    st.sampled_from([None, *DOCUMENTS]),
)
def test_documents__any_text_gives_curves_or_one_line(write: Write, text: str, format_name: str | None) -> None:
    try:
        read(write(text.encode(errors="replace")), format=format_name)
    except UsageError as error:
        (line,) = error.lines
        assert line.isprintable()


@SHARED
@given(st.dictionaries(st.integers(0, 2**53), st.floats(), min_size=1, max_size=20))
def test_documents__values_come_back_bit_for_bit(write: Write, values: dict[int, float]) -> None:
    steps = sorted(values)
    records = [{"step": step, "epoch": 0, "loss": values[step]} for step in steps]
    losses = [values[step] for step in steps]
    as_lists = {"step": steps, "loss": losses}
    golden = {"lm loss": {"values": {str(step): values[step] for step in steps}}}
    for document in (records, {"log_history": records}, {"steps": records}, as_lists, golden):
        loss = read(write(json.dumps(document))).curves["loss"]
        assert loss.steps.tolist() == steps
        assert np.array_equal(loss.values, losses, equal_nan=True)
