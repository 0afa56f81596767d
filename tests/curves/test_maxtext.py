from parity.curves import read
from tests.curves.conftest import Write


def test_maxtext(write: Write) -> None:
    # As in AI-Hypercomputer/maxtext#4847.
    line = "completed step: {}, seconds: 2.345, TFLOP/s/device: 3.4, Tokens/s/device: 1,234.5, loss: {}\n"
    leg = read(write("Per train step: 1\n" + line.format(0, "12.979") + line.format(1, "12.900")))
    assert leg.format == "maxtext"
    assert leg.curves["loss"].steps.tolist() == [0, 1]
    assert leg.curves["loss"].values.tolist() == [12.979, 12.9]
    assert leg.curves["loss"].resolution.decimals == 3
