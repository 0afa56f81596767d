from parity.curves import read
from tests.curves.conftest import Write

# As in NVIDIA-NeMo/Automodel#587.
LINE = (
    "2025-10-06 14:43:56 | INFO | root | step {} | epoch 0 | loss {} | grad_norm 10.8750 | lr 1.00e-05 | "
    "mem 11.54 GiB | tps 2122.13(2122.13/gpu) | num_label_tokens 2123\n"
)
VALIDATION = (
    '2025-10-06 14:44:00 | INFO | root | [val] name "default" | step {} | epoch 0 | loss 2.1000 | lr 1.00e-05\n'
)


def test_automodel__validation_is_not_training(write: Write) -> None:
    text = LINE.format(0, "2.6695") + VALIDATION.format(0) + VALIDATION.format(1).replace('name "default" | ', "")
    leg = read(write(text + LINE.format(1, "2.5000")))
    assert leg.format == "automodel"
    assert leg.curves["loss"].steps.tolist() == [0, 1]
    assert leg.curves["loss"].values.tolist() == [2.6695, 2.5]
    assert leg.curves["loss"].conflicts == ()
    assert [note.text for note in leg.notes[1:]] == ["lines of evaluations were ignored: lines 2, 3"]


def test_automodel__colours_on_the_level(write: Write) -> None:
    leg = read(write(LINE.format(0, "nan").replace("INFO", "\x1b[32mINFO\x1b[0m")))
    assert repr(leg.curves["loss"].values.tolist()) == "[nan]"


def test_automodel__the_bar_s_loss_is_the_step_before_s_and_not_taken(write: Write) -> None:
    bar = "\rTraining:   5%|▌         | 1/20 [00:00<00:01, 11.71step/s, loss=9.9999, lr=1.00e-03, tps=3517]"
    leg = read(write(bar + LINE.format(2, "2.6695")))
    assert leg.curves["loss"].values.tolist() == [2.6695]
    assert leg.curves["lr"].resolution.significant == 3
