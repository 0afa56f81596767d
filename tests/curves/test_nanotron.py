from parity.curves import read
from tests.curves.conftest import Write

# As in huggingface/nanotron#390.
LINE = (
    "01/02/2025 03:04:05 [INFO|DP={rank}|PP=0|TP=0|ip-26-0-161-78]: iteration: {step} / 378950 | "
    "consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 7.55K | global_batch_size: 262K | lm_loss: {loss} | "
    "lr: 3.06e-05 | grad_norm: {norm}"
)


def line(step: int, loss: str, norm: str = "0.4", rank: int = 0) -> str:
    return LINE.format(step=step, loss=loss, norm=norm, rank=rank)


def test_nanotron__suffixes_make_the_resolution_coarser(write: Write) -> None:
    leg = read(write(f"{line(1, '1.21K', '85.8G')}\n{line(2, '2.38')}\n"))
    assert leg.format == "nanotron"
    loss, norm = leg.curves["loss"], leg.curves["grad_norm"]
    assert loss.values.tolist() == [1210.0, 2.38]
    assert loss.resolution.at(loss.values).tolist() == [10.0, 0.01]
    assert norm.values.tolist() == [85.8e9, 0.4]
    assert norm.resolution.at(norm.values)[0] == 1e8


def test_nanotron__a_torn_line_glued_to_the_next(write: Write) -> None:
    text = line(327281, "2.38")
    leg = read(write(text[: text.index("lm_loss") + 12] + line(327282, "2.39") + "\n"))
    assert leg.curves["loss"].steps.tolist() == [327282]
    assert leg.curves["loss"].values.tolist() == [2.39]


def test_nanotron__ranks_are_named_by_their_axes(write: Write) -> None:
    leg = read(write(f"{line(1, '2.38')}\n{line(1, '2.39', rank=1)}\n"))
    assert leg.curves["loss"].conflicts[0].values == (2.38, 2.39)
    said = [note.text for note in leg.notes]
    assert "DP=1|PP=0|TP=0 prints another lm_loss than DP=0|PP=0|TP=0: line 2" in said
