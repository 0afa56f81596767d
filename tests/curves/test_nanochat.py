from parity.curves import read
from tests.curves.conftest import Write


def test_nanochat__the_loss_is_a_running_mean_and_the_norm_not_always_there(write: Write) -> None:
    line = "step {:05d}/21400 (0.00%) | loss: {} |{} lrm: 1.00 | dt: 800.00ms | tok/sec: 655,360 | mfu: 47.1\n"
    leg = read(write(line.format(0, "11.090355", "") + line.format(1, "11.000000", " grad norm: 1.2345 |")))
    assert leg.format == "nanochat"
    assert leg.curves["loss"].values.tolist() == [11.090355, 11.0]
    assert leg.curves["grad_norm"].steps.tolist() == [1]
    assert leg.notes[-1].text.startswith("nanochat prints a running mean of the loss")
