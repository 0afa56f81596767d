"""What starts a leg's ranks: how many nodes that takes, and mistakes in saying so."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from parity.errors import DeviceError, UsageError
from parity.rundir import placeholders
from parity.schedule import Slots
from parity.suite import Suite, load
from parity.suite.launcher import Launcher


def suite(
    folder: Path, launcher: Any, /, device: str = "cpu", command: str = "torchrun train.py {nproc} {tp}", **leg: Any
) -> Suite:
    content = {
        "name": "s",
        "steps": 5,
        "device": device,
        "launcher": launcher,
        "trainer": {"command": command},
        "legs": {"one": {}, "tp4": {"layout": {"tp": 4}, **leg}},
        "compare": [{"baseline": "one", "candidate": "tp4"}],
    }
    path = folder / "parity.yml"
    path.write_text(yaml.safe_dump(content))
    return load(path)


def nproc(loaded: Suite, name: str) -> object:
    return placeholders(loaded, name, loaded.legs[name], Path("out"), "id", Path("."))["nproc"]


@pytest.mark.parametrize(
    ("ranks", "per_node", "nodes"), [(1, 8, 1), (4, None, 1), (4, 2, 2), (6, 4, 2), (3, 2, 3), (8, 8, 1), (16, 8, 2)]
)
def test_every_node_of_slurm_s_gets_the_same_ranks(ranks: int, per_node: int | None, nodes: int) -> None:
    launcher = Launcher.model_validate({"slurm": {"ranks_per_node": per_node}})
    assert launcher.nodes(ranks) == nodes
    assert launcher.slots(ranks) == 0


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 1), (6, 3), (8, 4)])
def test_every_machine_of_torchrun_s_gets_the_same_ranks(ranks: int, nodes: int) -> None:
    launcher = Launcher.model_validate({"torchrun": {"nnodes": 4, "rdzv_endpoint": "host:29400"}})
    assert launcher.nodes(ranks) == nodes
    assert launcher.slots(ranks) == ranks // nodes


def test_nproc_is_the_ranks_of_one_node(tmp_path: Path) -> None:
    assert nproc(suite(tmp_path, {"slurm": {"ranks_per_node": 2}}), "tp4") == 2
    assert nproc(suite(tmp_path, "slurm"), "tp4") == 4
    assert nproc(suite(tmp_path, "local"), "tp4") == 4


def test_a_leg_may_have_a_launcher_of_its_own(tmp_path: Path) -> None:
    loaded = suite(tmp_path, {"slurm": {"ranks_per_node": 2}}, launcher="local")
    assert [loaded.launcher_of(leg).slurm is not None for leg in loaded.legs.values()] == [True, False]
    assert nproc(loaded, "tp4") == 4


def test_a_suite_with_a_launcher_is_read_back_as_it_was(tmp_path: Path) -> None:
    loaded = suite(tmp_path, {"slurm": {"options": ["--partition=gpu"]}}, launcher="local")
    assert Suite.model_validate_json(loaded.model_dump_json()) == loaded


@pytest.mark.parametrize(
    ("launcher", "more", "said"),
    [
        ("slurm", {"device": "auto"}, "must say what Slurm's nodes have, cpu or cuda"),
        ("slrum", {}, "launcher"),
        ({"slurm": {"nodes": 2}}, {}, "nodes"),
        ({"slurm": {}, "torchrun": {"nnodes": 2, "rdzv_endpoint": "h"}}, {}, "must name one launcher"),
        ({"torchrun": {"nnodes": 2, "rdzv_endpoint": "http://h:1/"}}, {}, "rdzv_endpoint"),
        (
            {"slurm": {"ranks_per_node": 2}},
            {"command": "torchrun --standalone --nproc-per-node {nproc} t.py"},
            "legs.tp4: takes 2 nodes, so torchrun must not be --standalone",
        ),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    tmp_path: Path, launcher: Any, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        suite(tmp_path, launcher, **more)
    assert said in "\n".join(error.value.lines)


def test_a_repetition_on_more_nodes_than_its_baseline_is_told(tmp_path: Path) -> None:
    content = {
        "name": "s",
        "steps": 5,
        "device": "cpu",
        "launcher": {"slurm": {"ranks_per_node": 1}},
        "trainer": {"command": "torchrun train.py {nproc} {tp}"},
        "legs": {"one": {}, "two": {"layout": {"tp": 2}}, "again": {"layout": {"tp": 2}}},
        "compare": [{"baseline": "one", "candidate": "two", "repeat": "again"}],
    }
    (tmp_path / "parity.yml").write_text(yaml.safe_dump(content))
    with pytest.raises(UsageError, match="again is not one again: its layout, ranks, nodes differ"):
        load(tmp_path / "parity.yml")


def test_legs_of_slurm_s_take_no_slots_here(tmp_path: Path) -> None:
    from parity.prepare import choose_device

    loaded = suite(tmp_path, "slurm", device="cuda")
    assert choose_device(loaded, ["one", "tp4"], Slots(1)) == ("cuda", "")
    with pytest.raises(DeviceError, match="tp4"):
        choose_device(suite(tmp_path, "slurm", device="cuda", launcher="local"), ["one", "tp4"], Slots(1))
