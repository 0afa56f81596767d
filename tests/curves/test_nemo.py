from parity.curves import read
from tests.curves.conftest import Write

# As in NVIDIA/bionemo-framework#740.
LINE = (
    "Training epoch {}, iteration {}/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | "
    "global_step: {} | reduced_train_loss: {} | train_step_timing in s: 0.03146 | val_loss: 4.106\n"
)
# As in NVIDIA/NeMo-Framework-Launcher#55.
BAR = (
    "\rEpoch 0:  79%|███████▉  | 794/1000 [10:00<02:00,  1.32it/s, loss=3.1, v_num=, reduced_train_loss={}, "
    "global_step={}, consumed_samples=2e+3]"
)


def test_nemo__the_step_goes_on_through_epochs(write: Write) -> None:
    leg = read(write(LINE.format(0, 149, 149, "1.233") + LINE.format(1, 0, 150, "1.2")))
    assert leg.format == "nemo"
    assert leg.curves["loss"].steps.tolist() == [149, 150]
    assert leg.curves["loss"].values.tolist() == [1.233, 1.2]
    assert leg.curves["loss"].resolution.significant == 4


def test_nemo__lines_without_a_global_step(write: Write) -> None:
    text = "".join(f"Training epoch 0, iteration {at}/99 | reduced_train_loss: 1.5\n" for at in (9, 19, 29, 80, 90))
    assert read(write(text)).curves["loss"].steps.tolist() == [9, 19, 29, 80, 90]


def test_nemo__the_bar_s_step_is_a_float_and_its_loss_a_mean(write: Write) -> None:
    leg = read(write(BAR.format("3.090", "794.0") + BAR.format("3.080", "795.0") + "\n"))
    assert leg.curves["loss"].steps.tolist() == [794, 795]
    assert leg.curves["loss"].values.tolist() == [3.09, 3.08]
    assert leg.curves["loss"].resolution.decimals == 3


def test_nemo__a_cut_bar(write: Write) -> None:
    leg = read(write(BAR.format("3.090", "794.0") + BAR.format("3.080", "79")[:-30]))
    assert leg.curves["loss"].steps.tolist() == [794]
