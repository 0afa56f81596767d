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
    return [note.text for note in leg.notes]


def test_wandb__history_with_gaps_texts_and_no_order(write: Write) -> None:
    leg = read(
        write(
            text(
                {"_step": 1, "_runtime": 0.5, "train/loss": 2.5, "train/grad_norm": "Infinity"},
                {"_step": 4, "train/loss": "NaN", "train/grad_norm": 1.5},
                {"_step": 2, "train/loss": 2.25, "train/grad_norm": None},
                {"_step": 5, "eval/loss": 9.0},
            )
        )
    )
    assert leg.format == "wandb"
    assert notes(leg)[0] == "wandb: 4 records with _step"
    assert leg.curves["loss"].steps.tolist() == [1, 2, 4]
    assert math.isnan(leg.curves["loss"].values[2])
    assert leg.curves["grad_norm"].values.tolist() == [math.inf, 1.5]
    assert leg.curves["grad_norm"].missing == (2,)


@pytest.mark.parametrize("own", ["train/global_step", "trainer/global_step"])
def test_wandb__the_trainers_own_step_goes_before_the_number_of_calls(write: Write, own: str) -> None:
    records = [{"_step": 2 * step, own: step, "loss": 1.5} for step in range(3)]
    leg = read(write(text(*records, {"_step": 6, "system.cpu": 0.5})))
    assert leg.curves["loss"].steps.tolist() == [0, 1, 2]
    assert notes(leg)[1] == f"the step is {own}, not _step, which counts calls of log"
    assert read(write(text(*records)), keys={"step": "_step"}).curves["loss"].steps.tolist() == [0, 2, 4]


def test_wandb__the_offline_store_says_what_to_export(write: Write) -> None:
    with pytest.raises(UsageError, match="is W&B's offline store: export the run's history as JSON lines"):
        read(write(b":W&B\xbe\xe1\x00" + bytes(100)))


def test_jsonl__torchtitans_structured_log_has_no_loss(write: Write) -> None:
    record = {"rank": 0, "log_type_name": "step_start", "step": 1, "logger_name": "torchtitan.structured_logger"}
    with pytest.raises(
        UsageError, match="torchtitan's structured log, which has times and no loss: give its tb folder"
    ):
        read(write(text(record)))
