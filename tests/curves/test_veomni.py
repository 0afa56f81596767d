from parity.curves import read
from tests.curves.conftest import Write

BAR = (
    "\rEpoch {}/3:  50%|█████     | {}/20 [00:03<00:03,  3.20s/it, total_loss: {}, foundation_loss: 9.99, "
    "grad_norm: 1.23, lr: 0.00]"
)
# As in ByteDance-Seed/VeOmni#425.
OLDER = (
    "\rEpoch 1/1:   6%|▋         | 65/1000 [1:36:13<23:01:08, 88.63s/it, loss: 0.7893, grad_norm: 1.5526, "
    "lr: 9.90e-06]"
)


def test_veomni__steps_between_drawings_are_not_there(write: Write) -> None:
    leg = read(write(BAR.format(1, 1, "6.93") + BAR.format(1, 3, "6.92") + BAR.format(1, 3, "6.92") + "\n"))
    assert leg.format == "veomni"
    assert leg.curves["loss"].steps.tolist() == [1, 3]
    assert leg.curves["loss"].values.tolist() == [6.93, 6.92]
    assert leg.curves["loss"].resolution.decimals == 2


def test_veomni__steps_go_on_through_epochs(write: Write) -> None:
    leg = read(write(BAR.format(1, 20, "6.93") + BAR.format(2, 1, "6.92") + BAR.format(3, 20, "6.91")))
    assert leg.curves["loss"].steps.tolist() == [20, 21, 60]


def test_veomni__older_bars(write: Write) -> None:
    leg = read(write(OLDER))
    assert leg.curves["loss"].steps.tolist() == [65]
    assert leg.curves["loss"].values.tolist() == [0.7893]
    assert leg.curves["lr"].values.tolist() == [9.9e-06]


def test_veomni__a_bar_before_the_first_step_is_no_record(write: Write) -> None:
    start = "\rEpoch 1/1:   0%|          | 0/20 [00:00<?, ?it/s]"
    assert read(write(start + BAR.format(1, 1, "inf"))).curves["loss"].steps.tolist() == [1]
