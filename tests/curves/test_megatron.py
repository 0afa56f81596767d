import math

import numpy as np
import pytest

from parity.curves import read
from tests.curves.conftest import Write

# As in NVIDIA/Megatron-LM#673.
LINE = (
    " iteration {step:8d}/250000000 | consumed samples:            4 | elapsed time per iteration (ms): 10585.1 | "
    "throughput per GPU (TFLOP/s/GPU): 0.0 | learning rate: 1.000000E-05 | global batch size:     4 |{loss} "
    "loss scale: 1.0 | grad norm: {norm} | number of skipped iterations:   0 | number of nan iterations:   {nan} |\n"
)
OLD = (
    " iteration        2/ 1000 | elapsed time per iteration (ms): 1.5 | learning rate: 1.0E-05 | lm loss: 6.5E+00 | "
    "grad norm: 1.000 |\n"
)


def line(step: int = 1, loss: str = " lm loss: 6.612992E+00 |", norm: str = "111.173", nan: int = 0) -> str:
    return LINE.format(step=step, loss=loss, norm=norm, nan=nan)


@pytest.mark.parametrize("time", ["", " [2025-02-20 11:18:36]", " [2026-08-21 11:18:36.123456]", "[default7]:"])
def test_megatron__older_and_newer_times(write: Write, time: str) -> None:
    leg = read(write(time + line(1) + time + OLD))
    assert leg.format == "megatron"
    assert leg.curves["loss"].steps.tolist() == [1, 2]
    assert leg.curves["loss"].values.tolist() == [6.612992, 6.5]
    assert leg.curves["grad_norm"].values.tolist() == [111.173, 1.0]
    assert leg.curves["lr"].values.tolist() == [1e-05, 1e-05]
    found = leg.curves["loss"].resolution
    assert (found.decimals, found.significant) == (6, 7)
    assert leg.curves["grad_norm"].resolution.decimals == 3


@pytest.mark.parametrize(("norm", "nan"), [("nan", 0), ("nan", 1), ("0.000", 1)])
def test_megatron__a_loss_that_vanished_is_nan(write: Write, norm: str, nan: int) -> None:
    leg = read(write(line(1) + line(2, "", norm, nan) + line(3)))
    assert np.isnan(leg.curves["loss"].values).tolist() == [False, True, False]


def test_megatron__a_skipped_iteration_has_no_loss_and_is_missing(write: Write) -> None:
    leg = read(write(line(1) + line(2, "", "0.000") + line(3)))
    assert leg.curves["loss"].steps.tolist() == [1, 3]
    assert leg.curves["loss"].missing == (2,)


def test_megatron__several_losses_are_not_mixed_up(write: Write) -> None:
    several = " lm loss: 6.612992E+00 | seq_load_balancing_loss: 1.0E+00 | mtp_1 loss: 6.9E+00 |"
    text = line(1, several)
    assert read(write(text)).curves["loss"].values.tolist() == [6.612992]
    assert read(write(text), keys={"loss": "mtp_1 loss"}).curves["loss"].values.tolist() == [6.9]


def test_megatron__no_lm_loss_among_other_losses_is_not_nan(write: Write) -> None:
    leg = read(write(line(1, " vlm loss: 6.5E+00 |", "nan")))
    assert "loss" not in leg.curves
    assert any("there is no loss; looks like it: " in note.text and "vlm loss" in note.text for note in leg.notes)


def test_megatron__validation_is_not_training(write: Write) -> None:
    other = (
        " validation loss at iteration 1 | lm loss value: 9.9E+00 | lm loss PPL: 1.0E+02 | \n"
        "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0 |\n"
    )
    leg = read(write(line(1) + other + line(2)))
    assert leg.curves["loss"].values.tolist() == [6.612992, 6.612992]


def test_megatron__a_number_without_its_bar_is_torn(write: Write) -> None:
    torn = line(2)[: line(2).index("6.61") + 4]
    leg = read(write(line(1) + torn + "\n"))
    assert leg.curves["loss"].steps.tolist() == [1]


def test_megatron__infinite_norm(write: Write) -> None:
    assert read(write(line(1, norm="inf"))).curves["grad_norm"].values.tolist() == [math.inf]
