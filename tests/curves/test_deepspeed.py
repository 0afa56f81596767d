from parity.curves import read
from tests.curves.conftest import Write

ENGINE = (
    "[2026-08-22 12:00:00,123] [INFO] [logging.py:123:log_dist] [Rank 0] step={}, skipped=2, lr=[{}], "
    "mom=[(0.9, 0.999)]\n"
)
PIPELINE = "steps: {} loss: {} iter time (s): 0.512 samples/sec: 31.250\n"


def test_deepspeed__pipeline_lines_have_the_loss(write: Write) -> None:
    leg = read(write(PIPELINE.format(10, "2.3456") + ENGINE.format(20, "1e-05") + PIPELINE.format(20, "nan")))
    assert leg.format == "deepspeed"
    assert leg.curves["loss"].steps.tolist() == [10, 20]
    assert repr(leg.curves["loss"].values.tolist()) == "[2.3456, nan]"
    assert leg.curves["lr"].values.tolist() == [1e-05]
    assert not any("prints no loss" in note.text for note in leg.notes)


def test_deepspeed__engine_lines_say_what_is_missing(write: Write) -> None:
    leg = read(write("<IPython.core.display.HTML object>\n" + ENGINE.format(40, "1e-05, 1e-05")))
    assert leg.curves.keys() == {"lr"}
    assert leg.notes[-1].text.startswith("DeepSpeed's engine prints no loss and no gradient norm: have the training")


def test_deepspeed__parameter_groups_at_different_rates_have_no_single_one(write: Write) -> None:
    text = PIPELINE.format(1, "2.0") + ENGINE.format(1, "1e-05, 2e-05")
    assert read(write(text)).curves.keys() == {"loss"}
    assert read(write(text), keys={"lr": "lr1"}).curves["lr"].values.tolist() == [2e-05]


def test_deepspeed__a_framework_that_runs_on_it_has_the_loss(write: Write) -> None:
    text = ENGINE.format(1, "1e-05") + "{'loss': '5.555', 'grad_norm': '1.939', 'epoch': '0.01562'}\n"
    assert read(write(text)).format == "trainer"
