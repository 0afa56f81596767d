from parity.curves import read
from tests.curves.conftest import Write

# As in pytorch/torchtitan#1232; no gradient norm in older versions.
OLDER = (
    "[rank0]:[titan] 2025-05-28 21:13:37,816 - root - INFO - \x1b[31mstep: {:2}  \x1b[32mloss: {}  "
    "\x1b[33mmemory: 36.90GiB(46.63%)  \x1b[34mtps: 85,636  \x1b[36mtflops: 3.21  \x1b[35mmfu: 1.03%\x1b[39m\n"
)
VALIDATION = (
    "[rank0]:[titan] 2025-05-28 21:13:38,000 - root - INFO - \x1b[31mvalidate step: {:2}  loss:  9.9  memory: 1\n"
)


def test_torchtitan__a_loss_of_minus_one_is_none(write: Write) -> None:
    leg = read(write(OLDER.format(1, "-1.0000") + OLDER.format(2, " 7.5000")))
    assert leg.format == "torchtitan"
    assert leg.curves.keys() == {"loss"}
    assert leg.curves["loss"].values.tolist() == [7.5]


def test_torchtitan__validation_is_not_training(write: Write) -> None:
    leg = read(write(OLDER.format(1, " 8.0000") + VALIDATION.format(1) + OLDER.format(2, " 7.5000")))
    assert leg.curves["loss"].values.tolist() == [8.0, 7.5]
    assert leg.notes[1].text == "lines of evaluations were ignored: line 2"


def test_torchtitan__other_steps_are_no_records(write: Write) -> None:
    text = "Training starts at step: 1 \nsave_step: 5  loss: 9.9  x\n" + OLDER.format(1, " 8.0000")
    assert read(write(text)).curves["loss"].steps.tolist() == [1]
