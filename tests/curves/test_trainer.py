import json
import math
from pathlib import Path

import pytest

from parity.curves import read
from parity.errors import UsageError
from tests.curves.conftest import Write

# As in huggingface/transformers#33336 and unslothai/unsloth#4982.
V4 = "{'loss': 2.1048, 'grad_norm': 2.1312345678, 'learning_rate': 4.99e-05, 'epoch': 0.0}"
V5 = "{'loss': '5.555', 'grad_norm': '430', 'learning_rate': '4.9e-05', 'epoch': '0.01562'}"
EVALUATION = "{'eval_loss': '5.1', 'eval_runtime': '1.2', 'epoch': '0.5'}"
SUMMARY = "{'train_runtime': '0.66', 'train_samples_per_second': '181.7', 'train_loss': '5.563', 'epoch': '0.4688'}"
COUNTED = "the lines hold no step: counted from 1, as with logging_steps: 1"


@pytest.mark.parametrize(("line", "loss", "digits"), [(V4, 2.1048, (4, 5)), (V5, 5.555, (3, 4))])
def test_trainer__without_a_step_lines_are_counted(
    write: Write, line: str, loss: float, digits: tuple[int, int]
) -> None:
    leg = read(write("\n".join([line, EVALUATION, line, SUMMARY, ""])))
    assert leg.format == "trainer"
    assert leg.curves["loss"].steps.tolist() == [1, 2]
    assert leg.curves["loss"].values.tolist() == [loss, loss]
    assert (leg.curves["loss"].resolution.decimals, leg.curves["loss"].resolution.significant) == digits
    assert [note.text for note in leg.notes[1:]] == [COUNTED]


def test_trainer__the_bar_before_the_dict(write: Write) -> None:
    bar = "\r  7%|▋         | 2/30 [00:00<00:10,  2.71it/s]"
    leg = read(write(f"{bar}{V5}{bar}{EVALUATION}\r\n{bar}\n{V5}\n"))
    assert leg.curves["loss"].steps.tolist() == [1, 2]


def test_trainer__each_rank_counts_its_own(write: Write) -> None:
    leg = read(write("".join(f"[rank{rank}]:{V5}\n" for _ in range(3) for rank in (0, 1))))
    assert leg.curves["loss"].steps.tolist() == [1, 2, 3]
    assert leg.curves["loss"].conflicts == ()


def test_trainer__a_step_that_is_there_is_taken(write: Write) -> None:
    # As in awslabs/fast-differential-privacy#48.
    leg = read(write("{'loss': 1257.61, 'grad_norm': 1.5, 'step': 7}\n{'step': '8/4389', 'loss': 1e-08}\n"))
    assert leg.curves["loss"].steps.tolist() == [7, 8]
    assert leg.curves["loss"].values.tolist() == [1257.61, 1e-08]
    assert COUNTED not in [note.text for note in leg.notes]


def test_trainer__some_lines_with_a_step_and_some_without(write: Write) -> None:
    with pytest.raises(UsageError, match="line 2 holds a step and lines before it hold none: keep one kind"):
        read(write(f"{V5}\n{{'loss': 1257.61, 'step': 1}}\n"))


def test_trainer__a_torn_dict_counts_as_the_step_that_it_was(write: Write) -> None:
    leg = read(write(f"{V5}\n{V5[:20]}{V5}\n{V5[:-9]}"))
    assert leg.curves["loss"].steps.tolist() == [1, 3]
    assert "torn records were ignored: lines 2, 3" in [note.text for note in leg.notes]


@pytest.mark.parametrize(
    ("text", "value"),
    [("nan", math.nan), ("inf", math.inf), ("np.float64(2.5)", 2.5), ("tensor(2.5000, device='cuda:0')", 2.5)],
)
def test_trainer__numbers_as_python_shows_them(write: Write, text: str, value: float) -> None:
    found = read(write(f"{{'loss': 2.5, 'grad_norm': {text}, 'epoch': 0.0}}\n")).curves["grad_norm"].values
    assert repr(found.tolist()) == repr([value])


def test_trainer__a_missing_norm_is_missing(write: Write) -> None:
    # As with DeepSpeed's stage 0, microsoft/DeepSpeed#7255.
    leg = read(write(f"{V5}\n{{'loss': '5.5', 'learning_rate': '4.9e-05', 'epoch': '0.03'}}\n"))
    assert leg.curves["grad_norm"].missing == (2,)


@pytest.mark.parametrize("more", ["'x': {'a': 1, 'b': {'loss': 9.9}}, ", "'logs': [1, 2], ", "'y': None, "])
def test_trainer__what_is_nested_is_no_metric(write: Write, more: str) -> None:
    leg = read(write("{'a': 1} INFO: {'loss': 2.5, " + more + "'grad_norm': 3.0}\n"))
    assert leg.curves["loss"].values.tolist() == [2.5]
    assert leg.curves["grad_norm"].values.tolist() == [3.0]


def test_trainer__a_torn_dict_first(write: Write) -> None:
    leg = read(write(f"{V5[:20]}\n{V5}\n"))
    assert leg.curves["loss"].steps.tolist() == [2]


def test_trainer_s_output_folder__the_last_checkpoint_holds_the_whole_log(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        rows = [{"step": at, "epoch": 0.5, "loss": 6 / at, "learning_rate": 1e-3} for at in range(1, step + 1)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
        (folder / "model.safetensors").write_bytes(b"\0" * 16)
    leg = read(tmp_path)
    assert leg.format == "trainer_state"
    assert leg.source.endswith("checkpoint-100/trainer_state.json")
    assert leg.curves["loss"].steps.tolist() == list(range(1, 101))
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": rows[:5]}))
    assert read(tmp_path).curves["loss"].steps.tolist() == list(range(1, 6))
