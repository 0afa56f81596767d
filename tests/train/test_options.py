"""Options that fit, and those that do not."""

import math
import subprocess
import sys
from dataclasses import fields, replace

import pytest

from parity.layout import Layout
from parity.train.arguments import Arguments, parse, to_argv
from parity.train.options import TrainOptions, problems

DEFAULT = TrainOptions()
EXPERTS = TrainOptions(model="deepseek_v4", layers=6, heads=8, kv_heads=1)


@pytest.mark.parametrize("tp", range(1, 9))
def test_every_tp_up_to_the_kv_heads_fits(tp: int) -> None:
    assert problems(DEFAULT, Layout(tp=tp)) == []


def test_more_ranks_than_kv_heads_is_told_with_the_limit() -> None:
    (name, sentence), *others = problems(DEFAULT, Layout(tp=9))
    assert (name, others) == ("layout.tp", [])
    assert sentence == "9 ranks cannot share 8 KV heads: give at most 8, or raise trainer.kv_heads"


def test_query_heads_that_kv_heads_do_not_divide() -> None:
    ((name, sentence),) = problems(replace(DEFAULT, heads=12), Layout())
    assert name == "trainer.heads"
    assert "12 is no multiple of the 8 KV heads" in sentence


def test_sequence_parallel_with_fewer_tokens_than_ranks() -> None:
    short = replace(DEFAULT, seq_len=3, sequence_parallel=True)
    assert problems(short, Layout(tp=3)) == []
    ((name, sentence),) = problems(short, Layout(tp=4))
    assert name == "layout.tp"
    assert "4 ranks cannot share 3 tokens" in sentence
    assert problems(replace(short, sequence_parallel=False), Layout(tp=4)) == []


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp=2),
        Layout(fsdp=2),
        Layout(pp=2),
        Layout(cp=3),
        Layout(dp=2, tp=3),
        Layout(dp=2, cp=2),
        Layout(pp=2, tp=2),
        Layout(pp=2, dp=2, tp=2),
    ],
    ids=str,
)
def test_axes_that_fit(layout: Layout) -> None:
    assert problems(DEFAULT, layout) == []
    assert problems(replace(DEFAULT, micro_batch=4), Layout(dp=2, fsdp=2)) == []


@pytest.mark.parametrize(
    "layout",
    [Layout(pp=2), Layout(dp=2, ep=2), Layout(fsdp=2, ep=2), Layout(cp=2, ep=2), Layout(dp=2, pp=2, ep=2)],
    ids=str,
)
def test_axes_that_fit_a_model_with_experts(layout: Layout) -> None:
    assert problems(EXPERTS, layout) == []


@pytest.mark.parametrize(
    ("layout", "changes", "name", "words"),
    [
        (Layout(dp=3), {}, "trainer.micro_batch", "2 sequences cannot be dealt evenly over 3 data parallel ranks"),
        (Layout(dp=2, fsdp=2), {}, "trainer.micro_batch", "over 4 data parallel ranks (dp 2 × fsdp 2)"),
        (Layout(pp=3), {"accumulate": 3}, "layout.pp", "3 stages cannot share 2 layers"),
        (Layout(pp=2), {"accumulate": 1}, "trainer.accumulate", "1 is too few for 2 stages, as a pipeline needs two"),
        (Layout(pp=3), {"layers": 3}, "trainer.accumulate", "1f1b needs a micro-batch for every stage"),
        (Layout(pp=2), {"first_stage_layers": 2}, "trainer.first_stage_layers", "give at most 1"),
        (Layout(fsdp=2, tp=2), {}, "layout.tp", "cannot be combined with fsdp: leave one of them at 1"),
        (Layout(fsdp=2, pp=2), {}, "layout.pp", "cannot be combined with fsdp"),
        (Layout(cp=5), {"seq_len": 4}, "layout.cp", "5 ranks cannot share 4 tokens: give at most 4"),
        (Layout(dp=2, ep=2), {}, "layout.ep", "qwen3 has no experts to spread"),
    ],
)
def test_what_does_not_fit_is_said_with_the_limit(
    layout: Layout, changes: dict[str, int], name: str, words: str
) -> None:
    ((found, sentence),) = problems(replace(DEFAULT, **changes), layout)
    assert found == name
    assert words in sentence


@pytest.mark.parametrize(
    ("layout", "changes", "name", "words"),
    [
        (Layout(tp=2), {}, "layout.tp", "deepseek_v4 is not split by tensor parallelism"),
        (Layout(dp=2, ep=2), {"experts": 1, "top_k": 1}, "layout.ep", "2 ranks cannot share 1 experts"),
        (Layout(), {"kv_heads": 8}, "trainer.kv_heads", "deepseek_v4 has one KV head"),
        (Layout(), {"layers": 2}, "trainer.hash_layers", "3 of 2 layers cannot be routed by token id: give 0 to 2"),
        (Layout(), {"top_k": 9}, "trainer.top_k", "9 experts cannot be chosen from 8"),
        (Layout(), {"o_groups": 3}, "trainer.o_groups", "3 groups cannot share 8 heads evenly"),
        (Layout(), {"rope_dim": 3}, "trainer.rope_dim", "give an even number up to the head_dim, 16"),
        (Layout(), {"streams": 0}, "trainer.streams", "0 is too few"),
        (Layout(), {"aux_loss": -1.0}, "trainer.aux_loss", "give 0 (off)"),
    ],
)
def test_what_a_model_with_experts_cannot_be_is_said_with_the_limit(
    layout: Layout, changes: dict[str, int], name: str, words: str
) -> None:
    ((found, sentence),) = problems(replace(EXPERTS, **changes), layout)
    assert found == name
    assert words in sentence


def test_gpipe_needs_two_micro_batches_for_any_number_of_stages() -> None:
    assert problems(replace(DEFAULT, layers=3, schedule="gpipe"), Layout(pp=3)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 0) for name in ("layers", "hidden", "kv_heads", "ffn", "seq_len", "micro_batch", "threads")),
        ("accumulate", -1),
        ("first_stage_layers", -1),
        ("head_dim", 15),
        ("vocab", 1),
        ("lr", 0.0),
        ("lr", math.nan),
        ("lr", math.inf),
        ("rope_theta", -1.0),
        ("weight_decay", -0.1),
        ("clip", math.nan),
    ],
)
def test_a_bad_number_is_named(name: str, value: float) -> None:
    assert f"trainer.{name}" in [found for found, _ in problems(replace(DEFAULT, **{name: value}), Layout())]


def test_all_mistakes_come_at_once() -> None:
    found = problems(replace(DEFAULT, lr=-1.0, heads=12), Layout(tp=16, pp=3, fsdp=2))
    names = ["trainer.heads", "trainer.lr", "layout.tp", "layout.pp", "layout.pp", "trainer.accumulate", "layout.tp"]
    assert [name for name, _ in found] == names


def test_every_field_says_what_it_means() -> None:
    assert all(field.metadata["help"] for field in fields(TrainOptions))


def test_a_command_line_reads_back_as_what_wrote_it() -> None:
    options = replace(
        DEFAULT, bias=True, lr=3e-4, dtype="fp64", fault="heads-cut-through", sequence_parallel=True, kv_heads=4
    )
    arguments = Arguments(options, Layout(tp=3), 7, 5, "cpu")
    assert parse(to_argv(arguments)) == arguments


def test_the_default_command_line_names_no_option() -> None:
    argv = to_argv(Arguments(DEFAULT, Layout(), 40, 0, "cpu"))
    assert argv == ["--steps", "40", "--seed", "0", "--device", "cpu"]
    assert parse([]) == Arguments(DEFAULT, Layout(), 40, 0, "cpu")


def test_a_switch_that_is_on_by_default_could_be_turned_off() -> None:
    assert parse(["--bias", "--no-bias"]).options == DEFAULT


@pytest.mark.parametrize(
    "argv", [["--steps", "0"], ["--seed", "-1"], ["--dtype", "fp8"], ["--tp", "x"], ["--laye", "2"]]
)
def test_a_malformed_command_line_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(argv)
    assert exit_.value.code == 2
    assert argv[0] in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--help"], ["--tp", "99"]])
def test_help_and_mistakes_do_not_wait_for_torch(argv: list[str]) -> None:
    code = (
        "import sys\n"
        "from parity.train.__main__ import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv], check=False, capture_output=True)
    assert done.returncode == 0
