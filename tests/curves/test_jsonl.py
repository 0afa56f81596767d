import json
import math
from typing import Any

import pytest

from parity.curves import LegCurves, read
from parity.errors import UsageError
from tests.curves.conftest import Write


def text(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def notes(leg: LegCurves) -> list[str]:
    return [note.text for note in leg.notes[1:]]


def refused(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as error:
        read(*args, **kwargs)
    (line,) = error.value.lines
    return line.split(": ", 1)[1]


def test_jsonl__evidence(write: Write) -> None:
    leg = read(write(text({"step": 0, "loss": 1.0, "lr": 0.1})))
    assert leg.format == "jsonl"
    assert leg.notes[0].text == "jsonl: 1 of the first 1 lines are JSON objects, with loss, lr, step"
    assert leg.finished is None


def test_jsonl__null_throughout_is_absent_and_names_what_looks_like_it(write: Write) -> None:
    leg = read(write(text(*({"step": i, "loss": 1.5, "grad_norm": None, "grad_norm_own": 2.5} for i in range(3)))))
    assert list(leg.curves) == ["loss"]
    assert notes(leg) == [
        "grad_norm has no number at any step, so it is absent; looks like it: grad_norm_own (choose with --key)"
    ]


def test_jsonl__null_at_some_steps_is_missing(write: Write) -> None:
    leg = read(write(text({"step": 0, "loss": 1.5}, {"step": 1, "loss": None}, {"step": 2, "loss": 1.5})))
    assert leg.curves["loss"].missing == (1,)


def test_jsonl__keys(write: Write) -> None:
    path = write(text(*({"it": i, "a": {"loss": 1.5, "x.y": 3}, "norm": 2.5, "x.y": 4.5} for i in range(3))))
    leg = read(path, keys={"step": "it", "loss": "a.loss", "grad_norm": ["nope", "norm"], "aux": "x.y"})
    assert {metric: curve.values[0] for metric, curve in leg.curves.items()} == {
        "loss": 1.5,
        "grad_norm": 2.5,
        "aux": 4.5,
    }


def test_jsonl__a_key_that_no_line_has(write: Write) -> None:
    path = write(text({"step": 0, "loss": 1.0, "train": {"grad_norm": 2.0}}))
    assert refused(path, keys={"grad_norm": "grad_nrm"}) == (
        "keys.grad_norm: no record has grad_nrm, did you mean train.grad_norm? the keys are: loss, step, train, "
        "train.grad_norm"
    )
    assert refused(path, keys={"step": "iter"}) == (
        "keys.step: no record has iter, did you mean step? the keys are: loss, step, train, train.grad_norm"
    )


@pytest.mark.parametrize("keys", [{"loss": ""}, {"loss": []}, {"loss": 3}, {"loss": ["a", 3]}])
def test_jsonl__keys_that_are_no_names(write: Write, keys: Any) -> None:
    with pytest.raises(UsageError, match=r"^keys.loss: give the key's name, or a list of names$"):
        read(write(text({"step": 0, "loss": 1.0})), keys=keys)


def test_jsonl__no_step_or_no_metric(write: Write) -> None:
    assert refused(write(text({"time": 0, "loss": 1.0}))).startswith("no record has a step; the keys are: loss, time")
    assert refused(write(text({"step": 0, "value": 1.0}))).startswith("no record has a loss, grad_norm, lr; the keys")
    assert refused(write(text({"type": "meta", "lr": 0.1}))).startswith("no record has a step")
    told = '"step" is no whole number in any record: name the step, keys: {step: …} (--key step=…)'
    assert refused(write(text({"step": 0.5, "loss": 1.0}, {"step": 1.5, "loss": 1.0}))) == told
    assert refused(write(text({"step": "one", "value": 1.0}))) == told
    assert refused(write("text\n"), format="jsonl") == "no line is a JSON object"
    assert refused(write('{"step": 0'), format="jsonl") == "no line is a JSON object"


def test_jsonl__two_names_in_one_record_are_asked_about(write: Write) -> None:
    path = write(text({"step": 0, "loss": 1.0, "train_loss": 2.0}))
    assert (
        refused(path) == "loss and train_loss could each be the loss: say which, keys: {loss: loss} (--key loss=loss)"
    )
    assert read(path, keys={"loss": "train_loss"}).curves["loss"].values[0] == 2.0
    path = write(text({"step": 0, "global_step": 8, "loss": 1.0}))
    assert (
        refused(path)
        == "step and global_step could each be the step: say which, keys: {step: step} (--key step=step)"
    )
    assert read(path, keys={"step": "global_step"}).curves["loss"].steps[0] == 8


def test_jsonl__a_summary_record_does_not_disturb(write: Write) -> None:
    leg = read(write(text({"step": 1, "loss": 1.0}, {"step": 2, "loss": 1.5}, {"step": 2, "train_loss": 1.25})))
    assert leg.curves["loss"].values.tolist() == [1.0, 1.5]
    assert leg.curves["loss"].conflicts == ()


def test_jsonl__evaluation_is_not_training(write: Write) -> None:
    leg = read(
        write(
            text(
                {"step": 0, "loss": 1.0},
                {"step": 0, "val_loss": 9.0},
                {"step": 0, "loss": 9.0, "split": "Valid"},
                {"step": 1, "loss": 1.0, "split": "train"},
            )
        )
    )
    assert leg.curves["loss"].conflicts == ()
    assert leg.curves["loss"].missing == ()
    assert notes(leg) == [
        "records marked as evaluation were ignored: line 3",
        "records with a step and no metric, as of evaluations, were ignored: line 2",
    ]


def test_jsonl__bare_nan_and_infinity_and_overflow(write: Write) -> None:
    lines = [f'{{"step": {i}, "loss": {value}}}' for i, value in enumerate(("NaN", "Infinity", "-Infinity", "1e400"))]
    values = read(write("\n".join(lines))).curves["loss"].values.tolist()
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, math.inf]


def test_jsonl__numbers_as_strings(write: Write) -> None:
    leg = read(write(text({"step": "794", "loss": "2.1048"}, {"step": 795.0, "loss": "nan"})))
    assert leg.curves["loss"].steps.tolist() == [794, 795]
    assert leg.curves["loss"].values[0] == 2.1048
    assert math.isnan(leg.curves["loss"].values[1])
    assert leg.curves["loss"].resolution.significant == 5


def test_jsonl__a_repeated_key_in_one_line(write: Write) -> None:
    leg = read(write('{"step": 0, "loss": 1.0, "loss": 2.0}\n{"step": 1, "loss": 1.5, "loss": 1.5}'))
    assert [conflict.values for conflict in leg.curves["loss"].conflicts] == [(1.0, 2.0)]
    assert any("written again with the same value" in note for note in notes(leg))


def test_jsonl__text_between(write: Write) -> None:
    leg = read(write('Loading\n{"step": 0, "loss": 1.0}\nWARNING x\n{"step": 1, "loss": 2.0}\n'))
    assert leg.curves["loss"].values.tolist() == [1.0, 2.0]
    assert notes(leg) == ["lines of other text were ignored: lines 1, 3"]


def test_jsonl__what_a_hostile_log_says_is_made_plain(write: Write) -> None:
    key = "loss\x1b]0;title\x07\u202e" + "x" * 10_000
    line = refused(write(json.dumps({"step": 0, key: 1.0})))
    assert line.isprintable()
    assert len(line) < 500


@pytest.mark.parametrize(
    ("spelled", "number"),
    [
        *((one, math.nan) for one in ("nan", "-nan", "NAN", "nan(ind)", "-nan(ind)", "1.#QNAN", "-1.#IND")),
        *((one, math.inf) for one in ("inf", "+inf", "INF", "infinity", "1.#INF")),
        ("-inf", -math.inf),
    ],
)
def test_jsonl__a_loss_that_a_format_string_spelled_as_no_json_is_not_lost_with_its_line(
    spelled: str, number: float, write: Write
) -> None:
    log = f'{{"step": 0, "loss": 1.5}}\n{{"step": 1, "loss": {spelled}, "note": "nan, {{}}"}}\n'
    curve = read(write(log + '{"step": 2, "loss":1.25}\n')).curves["loss"]
    assert curve.steps.tolist() == [0, 1, 2]
    assert curve.values[1] == number or (math.isnan(number) and math.isnan(curve.values[1]))
