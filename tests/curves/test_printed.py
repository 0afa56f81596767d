"""Printed lines among all else that a log holds: escapes, bars, prefixes, ranks that run together, restarts."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import LegCurves, formats, read
from parity.curves.printed import Printed, named, plain_text
from parity.curves.records import Repeated
from parity.errors import UsageError
from tests.curves.conftest import Write

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
PRINTED = {name: one for name, one in formats().items() if isinstance(one, Printed)}


def titan(step: object, loss: object, norm: object = "1.0000", prefix: str = "") -> str:
    head = f"{prefix}[titan] 2026-08-21 21:30:01,123 - root - INFO - step: {step:>2}  loss: {loss:>8}  "
    return f"{head}grad_norm: {norm:>7}  memory:  1.23GiB(1.55%)  tps: 12,345  tflops: 3.21  mfu: 1.03%\n"


def notes(leg: LegCurves) -> list[str]:
    return [note.text for note in leg.notes[1:]]


def values(leg: LegCurves, metric: str = "loss") -> dict[int, float]:
    curve = leg.curves[metric]
    return dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


@pytest.mark.parametrize(
    "escape",
    [
        "\x1b[31m",
        "\x1b[38;2;180;60;0m",
        "\x1b[0m\x1b[K",
        "\x9b1m",
        "\x1b]8;;https://example.org\x1b\\",
        "\x1b]0;title: loss 9.9\x07",
        "\x1b=",
    ],
)
def test_printed__escapes_between_and_around_fields(write: Write, escape: str) -> None:
    text = titan(1, "8.04910", "1.3412") + titan(2, "7.90000", "1.2000")
    leg = read(write(re.sub(r"(?<=\S)  (?=\S)|(?<= - )", lambda gap: gap[0] + escape, text)))
    assert values(leg) == {1: 8.0491, 2: 7.9}
    assert values(leg, "grad_norm") == {1: 1.3412, 2: 1.2}


def test_plain_text__an_open_link_takes_no_more_than_its_bound() -> None:
    assert plain_text("\x1b]8;;" + "x" * 5000 + " loss") == "\x1b]8;;" + "x" * 5000 + " loss"


def test_printed__bars_glued_to_records(write: Write) -> None:
    bar = "\rTraining:  10%|█         | 2/20 [00:00<00:01, 16.51step/s, loss=5.4953, lr=1.00e-03]"
    leg = read(write(f"{bar}{bar}{titan(1, '8.04910')}{bar}\r\n{bar}{titan(2, '7.90000')}{bar}"))
    assert values(leg) == {1: 8.0491, 2: 7.9}
    assert notes(leg) == []


PREFIXES = ["[rank0]:", "[default0]:", "[0]:", "0: ", " 0: ", "[INFO|DP=0|PP=0|TP=0]: ", "[rank0]:[rank0]: "]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_printed__prefixes_of_launchers(write: Write, prefix: str) -> None:
    leg = read(write(titan(1, "8.04910", prefix=prefix) + titan(2, "7.90000", prefix=prefix)))
    assert values(leg) == {1: 8.0491, 2: 7.9}
    assert notes(leg) == []


def test_printed__ranks_that_print_the_same_are_one_note(write: Write) -> None:
    lines = [titan(step, f"{9 - step}.00000", prefix=f"[rank{rank}]:") for step in range(3) for rank in range(4)]
    leg = read(write("".join(lines)))
    assert values(leg) == {0: 9.0, 1: 8.0, 2: 7.0}
    assert leg.curves["loss"].conflicts == ()
    assert notes(leg) == ["loss, grad_norm: 3 steps written again with the same value, first step 0"]


def test_printed__ranks_that_differ_are_a_conflict_and_are_named(write: Write) -> None:
    lines = [
        titan(step, "8.00000", "1.0000" if rank < 2 else "4.0000", prefix=f"[rank{rank}]:")
        for step in (1, 2)
        for rank in (0, 1, 2)
    ]
    leg = read(write("".join(lines)))
    assert [(one.step, one.values) for one in leg.curves["grad_norm"].conflicts] == [(1, (1, 4)), (2, (1, 4))]
    assert leg.curves["loss"].conflicts == ()
    assert "rank 2 prints another grad_norm than rank 0: lines 3, 6" in notes(leg)


def test_printed__a_thousand_ranks_that_differ_are_few_notes(write: Write) -> None:
    leg = read(write("".join(titan(1, f"{rank}.00000", prefix=f"{rank}: ") for rank in range(1000))))
    assert len([note for note in notes(leg) if "prints another" in note]) == 3
    assert len(leg.curves["loss"].conflicts) == 1


def test_printed__a_rank_without_a_loss_has_none(write: Write) -> None:
    text = titan(1, "-1.00000", "1.0595", "[rank0]:") + titan(1, "8.04602", "1.0595", "[rank1]:")
    leg = read(write(text))
    assert values(leg) == {1: 8.04602}
    assert "a loss of -1 stands for none here, ignored: line 1" in notes(leg)


def test_printed__ranks_cut_within_a_line(write: Write) -> None:
    whole = titan(1, "8.04610", "1.0595", "[rank1]:")
    for cut in range(20, len(whole) - 2):
        text = titan(1, "8.04610", "1.0595", "[rank0]:")[:cut] + whole + titan(2, "7.90000")
        leg = read(write(text))
        assert values(leg) == {1: 8.0461, 2: 7.9}
        assert values(leg, "grad_norm") == {1: 1.0595, 2: 1.0}
        assert leg.curves["loss"].conflicts == leg.curves["grad_norm"].conflicts == ()


def test_printed__what_follows_another_rank_s_record_may_be_anybody_s(write: Write) -> None:
    one, other = titan(1, "8.04610", "1.0000", "[rank0]:"), titan(1, "8.04610", "2.0000", "[rank1]:").rstrip()
    at = one.index("grad_norm")
    leg = read(write(one[:at] + other + "  " + one[at:]))
    assert leg.curves["grad_norm"].conflicts[0].values == (2.0, 1.0)


def test_printed__a_torn_record_with_the_next_run_s_glued_to_it(write: Write) -> None:
    leg = read(write(titan(1, "8.00000") + titan(2, "7.90000")[:62] + titan(1, "8.00000") + titan(2, "7.80000")))
    assert values(leg) == {1: 8.0, 2: 7.8}
    assert leg.curves["loss"].conflicts == ()


@pytest.mark.parametrize("name", ["automodel", "maxtext", "nemo", "nanotron", "nanochat"])
def test_printed__a_number_at_the_end_of_a_cut_file_may_be_half_of_one(write: Write, name: str) -> None:
    lines = {
        "automodel": "step {} | epoch 0 | loss 2.6695",
        "maxtext": "completed step: {}, seconds: 1.0, loss: 12.979",
        "nemo": "Training epoch 0, iteration {}/149 | global_step: {} | reduced_train_loss: 1.233",
        "nanotron": "iteration: {} / 15 | consumed_tokens: 85.8G | lm_loss: 2.38",
        "nanochat": "step {}/21400 (0.05%) | loss: 9.123456",
    }
    text = "\n".join(lines[name].format(step, step) for step in (1, 2))
    whole = read(write(text + "\n"))
    assert whole.format == name
    assert values(whole).keys() == {1, 2}
    leg = read(write(text[:-1]))
    assert values(leg).keys() == {1}
    assert notes(leg)[0].startswith("the last line has no end, as after a crash")


def test_printed__a_restart_in_an_appended_file_is_a_note_and_a_conflict(write: Write) -> None:
    again = [titan(step, f"{9 - step}.50000") for step in range(1, 4)]
    leg = read(write("".join(titan(step, f"{9 - step}.00000") for step in range(1, 6)) + "".join(again)))
    assert notes(leg)[0] == "steps go back, as where a run was started again or a log was added to: line 6"
    assert [one.step for one in leg.curves["loss"].conflicts] == [1, 2, 3]
    assert leg.curves["loss"].conflicts[0].values == (8.0, 8.5)


def test_printed__a_resumed_run_that_repeats_its_steps_is_no_conflict(write: Write) -> None:
    steps = [1, 2, 3, 4, 3, 4, 5]
    leg = read(write("".join(titan(step, f"{9 - step}.00000") for step in steps)))
    assert values(leg) == {1: 8.0, 2: 7.0, 3: 6.0, 4: 5.0, 5: 4.0}
    assert leg.curves["loss"].conflicts == ()
    assert "loss, grad_norm: 2 steps written again with the same value, first step 3" in notes(leg)


@pytest.mark.parametrize("first", [0, 1])
def test_printed__steps_keep_the_base_and_the_gaps_that_they_have(write: Write, first: int) -> None:
    steps = [first, first + 1, first + 5, first + 9]
    assert list(values(read(write("".join(titan(step, "8.00000") for step in steps))))) == steps


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-08", 1e-08),
        ("1.0e-05", 1e-05),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("1,234.5", 1234.5),
        ("5", 5.0),
        ("2.61e+02", 261.0),
    ],
)
def test_printed__numbers_of_every_kind(write: Write, text: str, value: float) -> None:
    assert values(read(write(titan(1, text)))) == {1: value}


def test_printed__nan_is_kept(write: Write) -> None:
    leg = read(write(titan(1, "8.00000") + titan(2, "nan", "nan")))
    assert np.isnan(leg.curves["loss"].values).tolist() == [False, True]
    assert leg.curves["loss"].missing == ()


def test_printed__bytes_that_are_no_text(write: Write) -> None:
    data = titan(1, "8.00000").encode() + b"\xff\xfe\x80 loss \xc3\n" + titan(2, "7.\ufffd0000").encode()
    leg = read(write(data + titan(3, "6.00000").encode()))
    assert values(leg) == {1: 8.0, 3: 6.0}
    assert leg.curves["loss"].missing == (2,)
    assert "loss is not a number, ignored: line 3" in notes(leg)


@pytest.mark.parametrize("codec", ["utf-16", "utf-8-sig"])
def test_printed__powershell_s_encodings(write: Write, codec: str) -> None:
    assert values(read(write(titan(1, "8.00000").replace("\n", "\r\n").encode(codec)))) == {1: 8.0}


def test_printed__zeros_at_the_end_count_as_printed(write: Write) -> None:
    found = read(write(titan(1, "8.00000") + titan(2, "7.50000"))).curves["loss"].resolution
    assert (found.decimals, found.significant) == (5, 6)


def test_printed__one_of_several_losses_can_be_chosen(write: Write) -> None:
    line = "step 1 | epoch 0 | loss 2.6695 | dllm_loss 1.5000 | grad_norm 10.8750 | lr 1.00e-05 | mem 11.54 GiB\n"
    assert values(read(write(line))) == {1: 2.6695}
    assert values(read(write(line), keys={"loss": "dllm_loss"})) == {1: 1.5}
    with pytest.raises(
        UsageError, match=r"keys\.loss: no record has dlm_loss, did you mean dllm_loss\? the keys are"
    ):
        read(write(line), keys={"loss": "dlm_loss"})


def test_printed__an_explicit_format_that_finds_nothing(write: Write) -> None:
    with pytest.raises(UsageError, match=r"no line is a line of megatron$"):
        read(write(titan(1, "8.00000")), format="megatron")


def test_named__several_values_of_a_name() -> None:
    field = re.compile(r"(?P<name>\w)=(?P<value>\w)")
    assert named(field.finditer("a=1 b=2 a=3 a=1 b=2")) == {"a": Repeated(("1", "3")), "b": "2"}


LINES = {
    "automodel": "2025-10-06 14:43:56 | INFO | root | step {s} | epoch 0 | loss {a} | grad_norm {b} | lr 1.00e-05 | "
    "mem 11.54 GiB | tps 2122.13(2122.13/gpu) | num_label_tokens 2123",
    "deepspeed": "steps: {s} loss: {a} iter time (s): 0.512 samples/sec: 31.250",
    "maxtext": "completed step: {s}, seconds: 1.2, TFLOP/s/device: 3.4, total_weights: 512, loss: {a}",
    "megatron": " [2025-02-20 11:18:36] iteration {s:8d}/     100 | elapsed time per iteration (ms): 1.5 | "
    "lm loss: {a} | loss scale: 1.0 | grad norm: {b} | number of nan iterations:   0 |",
    "nanochat": "step {s:05d}/21400 (0.05%) | loss: {a} | grad norm: {b} | lrm: 1.00 | dt: 800.00ms",
    "nanotron": "[INFO|DP=0|PP=0|TP=0]: iteration: {s} / 378950 | consumed_tokens: 85.8G | lm_loss: {a} | "
    "lr: 3e-05 | grad_norm: {b}",
    "nemo": "Training epoch 0, iteration {s}/149 | lr: 3e-05 | global_step: {s} | reduced_train_loss: {a} | "
    "grad_norm: {b}",
    "torchtitan": "[titan] 2026-08-21 21:30:01,123 - root - INFO - step: {s:2}  loss: {a}  grad_norm: {b}  "
    "memory:  1.23GiB(1.55%)  tps: 12,345",
    "trainer": "{{'loss': {a}, 'grad_norm': {b}, 'learning_rate': 4.9e-05, 'epoch': 0.01, 'step': {s}}}",
    "veomni": "Epoch 1/1:  50%|█████     | {s}/100000000 [00:03<00:03,  3.20s/it, total_loss: {a}, "
    "foundation_loss: 9.99, grad_norm: {b}, lr: 0.00]",
}
GAPS = re.compile(r"(?<=[|,]) (?!epoch|skipped)|(?<=\d)  (?=\w)")
NUMBER = st.one_of(
    st.floats(0.0001, 1e5).map("{:.4f}".format),
    st.floats(1e-6, 1e6).map("{:.6E}".format),
    st.sampled_from(["nan", "inf", "0.0000"]),
)
NOISE = st.sampled_from(
    ["", "\x1b[31m", "\x1b[38;2;1;2;3m\x1b[K", "\x1b]8;;http://x/loss: 1\x1b\\", "\x1b]0;grad_norm\x07", "\x9b0m"]
)
BEFORE = st.sampled_from(
    ["", "[rank3]:", "[default3]:", "[3]:", "3: ", "\r 10%|█ | 1/9 [00:01<00:02, 1.1it/s]\r", "x\n\n"]
)


def test_printed__every_format_is_here() -> None:
    assert LINES.keys() == PRINTED.keys()


@pytest.mark.parametrize("name", list(LINES))
@SHARED
@given(data=st.data())
def test_printed__values_come_back_whatever_stands_between(write: Write, name: str, data: st.DataObject) -> None:
    records = data.draw(st.dictionaries(st.integers(1, 10**6), st.tuples(NUMBER, NUMBER), min_size=1, max_size=4))
    text = ""
    for step, (a, b) in records.items():
        line = LINES[name].format(s=step, a=a, b=b)
        noisy = GAPS.sub(lambda gap: gap[0] + data.draw(NOISE), line)
        text += (
            data.draw(BEFORE)
            + data.draw(NOISE)
            + noisy
            + data.draw(NOISE)
            + data.draw(st.sampled_from(["\n", "\r\n"]))
        )
    leg = read(write(text))
    assert leg.format == name
    for at, metric in enumerate(["loss", "grad_norm"]):
        if metric == "grad_norm" and "{b}" not in LINES[name]:
            continue
        expected = {step: float(record[at]) for step, record in sorted(records.items())}
        assert repr(values(leg, metric)) == repr(expected)


TEXTS = st.sampled_from(
    [
        *(piece for line in LINES.values() for piece in re.split(r"(?<= )", line.format(s=3, a="1.5", b="2.5"))),
        *(
            "\n",
            "\r",
            "\x1b[",
            "\x1b]8;;",
            "[rank1]:",
            "[INFO|DP=",
            "{'",
            "'}",
            "…",
            "\x00",
            "9" * 70,
            "step: ",
            "loss: ",
        ),
        *(line.format(s=1, a="nan", b="-1") + "\n" for line in LINES.values()),
    ]
)


def attempt(path: Path, name: str | None) -> None:
    try:
        leg = read(path, format=name)
    except UsageError as error:
        lines = error.lines
    else:
        lines = ()
        assert len(leg.notes) < 40
        for one in leg.curves.values():
            assert one.steps.size == one.values.size > 0
            assert np.all(np.diff(one.steps) > 0)
    assert all(line.isprintable() for line in lines)


@SHARED
@given(pieces=st.lists(TEXTS | st.text(max_size=8), max_size=40), name=st.sampled_from([None, *PRINTED]))
def test_printed__any_text_gives_curves_or_one_line(write: Write, pieces: list[str], name: str | None) -> None:
    attempt(write("".join(pieces).encode("utf-8", "surrogatepass")), name)


@pytest.mark.parametrize("name", list(LINES))
def test_printed__a_long_hostile_line_is_read_in_time(write: Write, name: str) -> None:
    line = LINES[name].format(s=1, a="1.5", b="2.5")
    for part in (line, line[: len(line) // 2], line[-20:], " | ", "[", "{'a': ", "step", ": 1", "| 1/2 [", "[val] "):
        attempt(write((part * (1_000_000 // len(part))) + "\n" + line + "\n"), name)
