"""Every real log is read right by its content alone: format, steps, first and last values, and how finely printed."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from parity.curves import Stored, formats, read
from parity.curves.curve import Curve
from parity.curves.notes import Notes
from parity.curves.opening import open_lines
from parity.errors import UsageError

LOGS = Path(__file__).parents[1] / "data" / "logs"


class Printed(NamedTuple):
    """A curve: how many steps, its first and last value, decimals and significant digits."""

    steps: int
    first: float
    last: float
    decimals: int
    significant: int


class Row(NamedTuple):
    """A file, its format, its first and last step, and its curves."""

    path: str
    format: str
    first: int
    last: int
    loss: Printed | None
    grad_norm: Printed | None


READ = [
    Row("deepspeed/stdout_tp3_info.log", "deepspeed", 0, 12, None, None),
    Row("deepspeed/stdout_pipe_pp2.log", "deepspeed", 1, 20, Printed(20, 6.317, 6.3056, 4, 5), None),
    Row(
        "hf_trainer/tr1/stdout.log",
        "trainer",
        1,
        30,
        Printed(30, 5.555, 5.542, 3, 4),
        Printed(30, 1.939, 1.077, 4, 4),
    ),
    Row(
        "hf_trainer/tr_ddp2/stdout.log.gz",
        "trainer",
        1,
        30,
        Printed(30, 5.555, 5.542, 3, 4),
        Printed(30, 1.939, 1.077, 4, 4),
    ),
    Row(
        "hf_trainer/tr_fsdp2/stdout.log.gz",
        "trainer",
        1,
        30,
        Printed(30, 5.555, 5.542, 3, 4),
        Printed(30, 1.939, 1.077, 4, 4),
    ),
    Row(
        "nemo_automodel/qf_base/stdout.log",
        "automodel",
        0,
        19,
        Printed(20, 5.5738, 5.1721, 4, 5),
        Printed(20, 2.0662, 2.6664, 4, 5),
    ),
    Row(
        "nemo_automodel/qf_dp2/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.5738, 5.1721, 4, 5),
        Printed(20, 2.0662, 2.6664, 4, 5),
    ),
    Row(
        "nemo_automodel/qf_pp2/stdout.log",
        "automodel",
        0,
        19,
        Printed(20, 5.5738, 5.1721, 4, 5),
        Printed(20, 2.0662, 2.6664, 4, 5),
    ),
    Row(
        "nemo_automodel/qf_tp2/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.5738, 5.1721, 4, 5),
        Printed(20, 2.0662, 2.6664, 4, 5),
    ),
    Row(
        "nemo_automodel/v4f4_base/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 6.0003, 4.659, 4, 5),
        Printed(20, 0.7497, 0.9087, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f4_pp2/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 6.0, 4.6643, 4, 5),
        Printed(20, 0.7496, 0.9091, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_base/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4253, 4, 5),
        Printed(20, 0.7567, 0.9484, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_ep1/stdout.log",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4247, 4, 5),
        Printed(20, 0.7567, 0.9483, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_ep1_rep/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4247, 4, 5),
        Printed(20, 0.7567, 0.9483, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_ep2/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4253, 4, 5),
        Printed(20, 0.7567, 0.9484, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_nb_base/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4243, 4, 5),
        Printed(20, 0.7567, 0.9483, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_nb_ep1/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4243, 4, 5),
        Printed(20, 0.7567, 0.9483, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_nb_ep2/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4243, 4, 5),
        Printed(20, 0.7567, 0.9483, 4, 4),
    ),
    Row(
        "nemo_automodel/v4f_pp2/stdout.log.gz",
        "automodel",
        0,
        19,
        Printed(20, 5.9998, 4.4253, 4, 5),
        Printed(20, 0.7567, 0.9484, 4, 4),
    ),
    Row(
        "torchtitan/base/stdout.log",
        "torchtitan",
        1,
        20,
        Printed(20, 8.04602, 5.89772, 5, 6),
        Printed(20, 1.0595, 1.4302, 4, 5),
    ),
    Row(
        "torchtitan/fsdp2/stdout.log",
        "torchtitan",
        1,
        20,
        Printed(20, 8.12137, 5.73531, 5, 6),
        Printed(20, 1.0739, 1.4949, 4, 5),
    ),
    Row(
        "torchtitan/pp2/stdout.log",
        "torchtitan",
        1,
        20,
        Printed(20, 8.04602, 5.89742, 5, 6),
        Printed(20, 1.0595, 1.4306, 4, 5),
    ),
    Row(
        "torchtitan/tp2/stdout.log.gz",
        "torchtitan",
        1,
        20,
        Printed(20, 8.04607, 5.89741, 5, 6),
        Printed(20, 1.0596, 1.4302, 4, 5),
    ),
    Row(
        "veomni/f32_fsdp2/stdout.log.gz",
        "veomni",
        1,
        20,
        Printed(14, 6.94, 6.94, 2, 3),
        Printed(14, 1.44, 0.71, 2, 3),
    ),
]

# Saved by trackers and trainers; event files hold float32.
STORED = [
    Row("deepspeed/tb/tp1_z0", "tensorboard", 1, 50, None, None),
    Row("deepspeed/tb/tp3_z0", "tensorboard", 1, 50, None, None),
    Row(
        "hf_trainer/tr1/log_history.json",
        "trainer_state",
        1,
        30,
        Printed(30, 5.555248737335205, 5.541825294494629, 15, 16),
        Printed(30, 1.9390430450439453, 1.0771301984786987, 16, 17),
    ),
    Row(
        "hf_trainer/tr1/trainer_state.json",
        "trainer_state",
        1,
        30,
        Printed(30, 5.555248737335205, 5.541825294494629, 15, 16),
        Printed(30, 1.9390430450439453, 1.0771301984786987, 16, 17),
    ),
    Row(
        "hf_trainer/tr_ddp2/log_history.json",
        "trainer_state",
        1,
        30,
        Printed(30, 5.555248737335205, 5.541825294494629, 16, 17),
        Printed(30, 1.9390430450439453, 1.07712984085083, 16, 17),
    ),
    Row(
        "hf_trainer/tr_ddp2/trainer_state.json",
        "trainer_state",
        1,
        30,
        Printed(30, 5.555248737335205, 5.541825294494629, 16, 17),
        Printed(30, 1.9390430450439453, 1.07712984085083, 16, 17),
    ),
    Row(
        "torchtitan/base/tb",
        "tensorboard",
        1,
        20,
        Printed(20, 8.04602336883545, 5.89771842956543, 15, 16),
        Printed(20, 1.0594769716262817, 1.4301925897598267, 16, 17),
    ),
    Row(
        "torchtitan/pp2/tb",
        "tensorboard",
        1,
        20,
        Printed(20, 8.04602336883545, 5.89742374420166, 16, 17),
        Printed(20, 1.0594578981399536, 1.4305917024612427, 16, 17),
    ),
    Row(
        "torchtitan/tp2/tb",
        "tensorboard",
        1,
        20,
        Printed(20, 8.046070098876953, 5.897411346435547, 16, 17),
        Printed(20, 1.0595600605010986, 1.4301621913909912, 16, 17),
    ),
    Row(
        "veomni/f32_fsdp2/log_dict.json",
        "log_dict",
        0,
        19,
        Printed(20, 6.934426307678223, 6.941951274871826, 16, 17),
        Printed(20, 1.4388898611068726, 0.7142987847328186, 16, 17),
    ),
]

# Runs that broke off, and own loops that print numbers without names.
REFUSED = {
    "deepspeed/stdout_nocxx.log": "the run broke off with subprocess.CalledProcessError: Command '['/bin/false'",
    "deepspeed/stdout_tp1_z0.log": "no known format",
    "deepspeed/stdout_tp3_z0.log": "no known format",
    "deepspeed/stdout_tp4_z0.log": "no known format",
    "hf_transformers/stdout_dx_ep2.log.gz": "the run broke off with ValueError: `tp_size=2` was requested",
    "hf_transformers/stdout_dx_pp2.log.gz": "the run broke off with AttributeError: 'NoneType' object has no",
    "hf_transformers/stdout_tp_h16_3.log.gz": "the run broke off with RuntimeError: shape '[4, 32, -1, 16]' is",
    "hf_transformers/stdout_tp_qwen3_1.log.gz": "no known format",
    "megatron_core/stdout_dp2.log": "no known format",
    "megatron_core/stdout_m1.log": "no known format",
    "megatron_core/stdout_pp2.log": "no known format",
    "megatron_core/stdout_tp2.log": "no known format",
    "megatron_core/stdout_tp2sp.log": "the run broke off with AssertionError: sequence parallel not supported",
    "megatron_core/stdout_tp3.log": "the run broke off with ValueError: num_attention_heads (8) must be a multiple",
}


def printed(curve: Curve | None) -> Printed | None:
    if curve is None:
        return None
    found = curve.resolution
    values = curve.values.tolist()
    return Printed(len(values), values[0], values[-1], found.decimals, found.significant)


@pytest.mark.parametrize("row", [*READ, *STORED], ids=lambda row: row.path)
def test_samples__are_read_right(row: Row) -> None:
    leg = read(LOGS / row.path)
    steps = np.concatenate([curve.steps for curve in leg.curves.values()])
    found = (leg.format, steps.min(), steps.max(), *(printed(leg.curves.get(name)) for name in ("loss", "grad_norm")))
    assert found == row[1:]
    assert all(curve.conflicts == () for curve in leg.curves.values())


@pytest.mark.parametrize(("path", "says"), REFUSED.items(), ids=list(REFUSED))
def test_samples__without_a_curve_cost_one_line_that_helps(path: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(LOGS / path)
    (line,) = caught.value.lines
    assert says in line
    assert "the run broke off" in line or "with a pattern, such as 'step (?P<step>" in line


def test_samples__every_stored_curve_is_in_the_table() -> None:
    documents = {str(path.relative_to(LOGS)) for path in LOGS.rglob("*.json")}
    events = {str(path.relative_to(LOGS)) for path in LOGS.rglob("*.tfevents.*")}
    listed = {row.path for row in STORED}
    assert documents <= listed
    assert all(any(event.startswith(f"{path}/") for path in listed) for event in events)


def test_samples__every_output_is_in_a_table() -> None:
    assert {str(path.relative_to(LOGS)) for path in LOGS.rglob("stdout*")} <= {
        row.path for row in READ
    } | REFUSED.keys()


@pytest.mark.parametrize("path", sorted(LOGS.rglob("*.*")), ids=lambda path: str(path.relative_to(LOGS)))
def test_samples__no_two_formats_claim_one_file(path: Path) -> None:
    if not path.is_file() or ".tfevents." in path.name:
        return
    with open_lines(path, Notes()) as opened:
        texts = [one for one in formats().values() if not isinstance(one, Stored)]
        claim = [(one.generic, one.name) for one in texts if one.matches(opened.head) is not None]
    assert len([name for generic, name in claim if not generic]) <= 1
    assert len([name for generic, name in claim if generic]) <= 1


AUTOMODEL = sorted(path.parent for path in LOGS.glob("nemo_automodel/*/stdout.log*"))


@pytest.mark.parametrize("folder", AUTOMODEL, ids=lambda folder: folder.name)
def test_samples__what_automodel_prints_is_what_it_writes(folder: Path) -> None:
    (path,) = folder.glob("stdout.log*")
    printed, written = read(path).curves, read(folder / "training.jsonl").curves
    for metric in ("loss", "grad_norm"):
        assert printed[metric].steps.tolist() == written[metric].steps.tolist()
        assert printed[metric].values.tolist() == [float(f"{value:.4f}") for value in written[metric].values]


@pytest.mark.parametrize("name", ["tr1", "tr_ddp2"])
def test_samples__what_the_trainer_prints_is_what_it_writes(name: str) -> None:
    (path,) = (LOGS / "hf_trainer" / name).glob("stdout.log*")
    (state,) = (LOGS / "hf_trainer" / name).glob("*state.json")
    history = [one for one in json.loads(state.read_text())["log_history"] if "loss" in one]
    found = read(path).curves
    assert found["loss"].steps.tolist() == [one["step"] for one in history]
    for metric in ("loss", "grad_norm"):
        assert found[metric].values.tolist() == [float(f"{one[metric]:.4g}") for one in history]


def test_samples__what_veomni_s_bar_shows_is_the_step_that_it_names() -> None:
    folder = LOGS / "veomni" / "f32_fsdp2"
    norms = json.loads((folder / "log_dict.json").read_text())["grad_norm"]
    found = read(folder / "stdout.log.gz").curves["grad_norm"]
    assert found.values.tolist() == [float(f"{norms[step - 1]:.2f}") for step in found.steps]


@pytest.mark.parametrize("leg", ["base", "tp2", "pp2"])
def test_samples__what_torchtitan_prints_is_what_its_event_file_holds(leg: str) -> None:
    (path,) = (LOGS / "torchtitan" / leg).glob("stdout.log*")
    printed, stored = read(path).curves, read(LOGS / "torchtitan" / leg / "tb").curves
    for metric, decimals in (("loss", 5), ("grad_norm", 4)):
        assert printed[metric].steps.tolist() == stored[metric].steps.tolist()
        assert printed[metric].values.tolist() == [float(f"{value:.{decimals}f}") for value in stored[metric].values]


def test_samples__deepspeed_s_engine_lines_have_a_learning_rate_and_no_loss() -> None:
    leg = read(LOGS / "deepspeed" / "stdout_tp3_info.log")
    assert leg.curves.keys() == {"lr"}
    assert leg.curves["lr"].values.tolist() == [0.001] * 13
    assert leg.notes[-1].text.startswith("DeepSpeed's engine prints no loss and no gradient norm: have the training")


def test_samples__lines_of_an_own_loop_are_read_by_a_pattern() -> None:
    path = LOGS / "deepspeed" / "stdout_tp3_z0.log"
    leg = read(path, pattern=r"^(?P<step>\d+) (?P<loss>\d\S+) None (?P<grad_norm>\S+) \d")
    assert leg.curves["loss"].steps.tolist() == [0, 10, 20, 30, 40]
    assert leg.curves["loss"].values[-1] == 6.347975730895996
    assert leg.curves["grad_norm"].values[0] == 3.250754358486523
