"""The key of a leg: whatever its numbers depend on is in it."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.cache import inputs as module
from parity.cache import machine, python
from parity.cache.inputs import Inputs, cacheable, inherited, key_of
from parity.cache.reasons import NotCacheableError
from parity.schedule import Slots
from parity.suite import Suite

SUITE: dict[str, Any] = {
    "name": "drawn",
    "steps": 6,
    "trainer": {"command": ["python", "train.py", "--lr", "0.1"]},
    "source": "{out}/m.jsonl",
    "legs": {"a": {}, "b": {"layout": {"tp": 2}}},
    "compare": [{"baseline": "a", "candidate": "b"}],
}

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is a value in nested ones that can be taken away or exchanged."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in ((*at, key), *places(one, (*at, key)))]


@given(st.dictionaries(st.text(max_size=6), trees, min_size=1, max_size=4), st.data())
def test_any_change_of_an_input_changes_the_key(told: dict[str, Any], data: st.DataObject) -> None:
    changed = copy.deepcopy(told)
    *parents, last = data.draw(st.sampled_from(places(told)))
    holder = changed
    for key in parents:
        holder = holder[key]
    if data.draw(st.booleans()):
        del holder[last]
    else:
        holder[last] = data.draw(trees.filter(lambda new: repr(new) != repr(holder[last])))
    assert key_of(changed) != key_of(told)
    assert key_of(copy.deepcopy(told)) == key_of(told)
    assert key_of(dict(reversed(told.items()))) == key_of(told)


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The key of leg a under changes of its suite, on a machine that stays the same."""
    monkeypatch.setattr(python, "ask", lambda *_: python.Python(("3.11", "all"), (), None))
    monkeypatch.setattr(module, "machine", lambda *_: {"processor": "one"})
    monkeypatch.setattr(module, "interpreter", lambda *_: "/usr/bin/python3")
    (tmp_path / "train.py").write_text("train")

    def found(leg: str = "a", device: str = "cpu", **changes: Any) -> str:
        suite = Suite.model_validate({**SUITE, **changes})
        inputs = Inputs(suite, device=device, slots=Slots(8), folder=tmp_path, suite_dir=tmp_path, path="/usr/bin")
        return key_of(inputs.of(leg))

    return found


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 7},
        {"seed": 2},
        {"device": "cuda"},
        {"trainer": {"command": ["python", "train.py", "--lr", "0.2"]}},
        {"trainer": {"command": "python train.py --lr 0.1"}},
        {"trainer": {"embedded": "qwen3"}},
        {"source": "{out}/other.jsonl"},
        {"env": {"X": "1"}},
        {"legs": {**SUITE["legs"], "a": {"layout": {"dp": 2}}}},
        {"legs": {**SUITE["legs"], "a": {"nproc": 2}}},
        {"legs": {**SUITE["legs"], "a": {"env": {"PARITY_PERTURB": "1"}}}},
        {"leg": "b"},
    ],
)
def test_what_the_suite_says_of_a_leg_is_in_its_key(key: Callable[..., str], changes: dict[str, Any]) -> None:
    assert key(**changes) != key()


def test_what_it_says_of_others_is_not(key: Callable[..., str]) -> None:
    legs = {**SUITE["legs"], "b": {"layout": {"tp": 4}, "env": {"X": "1"}}}
    assert key(legs=legs, name="renamed", k=3, timeout="1h", require=["layout"], profile="bf16") == key()


def test_what_the_machine_and_the_python_are_is_in_the_key(
    key: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {key()}
    monkeypatch.setattr(module, "machine", lambda *_: {"processor": "other"})
    found.add(key())
    monkeypatch.setattr(python, "ask", lambda *_: python.Python(("3.11", "less"), (), None))
    found.add(key())
    monkeypatch.setenv("PARITY_IMAGE", "sha256:1")
    found.add(key())
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    found.add(key())
    monkeypatch.setattr(module, "package", lambda folder: "other")
    found.add(key())
    assert len(found) == 6


def test_files_elsewhere_that_a_command_names_are_in_the_key(key: Callable[..., str], tmp_path: Path) -> None:
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.mkdir()
    (other / "train.py").write_text("one")
    (other / "model.py").write_text("one")
    (other / "config.yml").write_text("one")
    found = set()
    for name in ("config.yml", "model.py", "train.py"):
        found.add(key(trainer={"command": ["python", f"{other}/train.py", f"--config={other}/config.yml"]}))
        (other / name).write_text("two")
    found.add(key(trainer={"command": ["python", f"{other}/train.py", f"--config={other}/config.yml"]}))
    assert len(found) == 4


def test_other_machines_and_unknown_devices_have_no_key(
    key: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotCacheableError, match="other machines run it"):
        key(launcher="slurm")
    monkeypatch.setattr(module, "machine", machine.machine)
    monkeypatch.setattr(machine, "_said", lambda *_: "GPU 0: A (UUID: GPU-1)\nGPU 1: B (UUID: GPU-2)\n")
    with pytest.raises(NotCacheableError, match="the GPUs are of several models: A, B"):
        key(device="cuda")
    monkeypatch.setattr(machine, "_said", lambda *_: "")
    with pytest.raises(NotCacheableError, match="nvidia-smi does not tell"):
        key(device="cuda")


def test_models_and_driver_tell_gpus_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(listed: str, driver: str) -> object:
        said = {"-L": listed, "--query-gpu=driver_version": driver}
        monkeypatch.setattr(machine, "_said", lambda *words: said[words[1]])
        return machine.machine("cuda", Slots(8, ("0",)))["accelerators"]

    two = "GPU 0: NVIDIA H200 (UUID: GPU-1)\nGPU 1: NVIDIA H200 (UUID: GPU-2)\n"
    assert told(two, "570.1\n570.1\n") == ["NVIDIA H200", "570.1"]
    part = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n  MIG 1g.18gb     Device  0: (UUID: MIG-1)\n"
    assert told(part, "570.1\n") == ["NVIDIA H200", "MIG 1g.18gb", "570.1"]


def test_a_real_python_tells_what_is_installed_and_where_else_it_imports_from(tmp_path: Path) -> None:
    import sys

    (tmp_path / "more").mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "more")}
    found = python.ask(sys.executable, env, tmp_path)
    assert found == python.ask(sys.executable, env, tmp_path)
    assert (tmp_path / "more").resolve() in found.folders
    assert found.parity == Path(module.__file__).parent.parent
    with pytest.raises(NotCacheableError, match="does not tell what is installed there"):
        python.ask("/bin/true", env, tmp_path)


def test_a_session_s_variables_are_not_a_leg_s() -> None:
    environ = {"PWD": "/", "SSH_TTY": "x", "TERM": "dumb", "CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "2"}
    assert inherited(environ, ("CUDA_VISIBLE_DEVICES",)) == {"OMP_NUM_THREADS": "2"}


def test_no_leg_that_is_a_candidate_is_one_of_those_that_may_be_kept() -> None:
    compare = [{"baseline": "a", "candidate": "b", "control": "c"}, {"baseline": "a", "candidate": "c"}]
    legs = {**SUITE["legs"], "c": {"layout": {"tp": 4}}, "d": {}}
    assert cacheable(Suite.model_validate({**SUITE, "legs": legs, "compare": compare})) == ["a"]
