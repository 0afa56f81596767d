"""parity.yml: what it means, and what is said of its mistakes."""

import json
import os
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from parity.checks import CHECKS
from parity.checks.comparison import DEFAULT_K
from parity.errors import UsageError
from parity.layout import AXES
from parity.placeholders import fill
from parity.schemas import FOLDER, generate
from parity.suite import LayoutSizes, Suite, load, train_options

RECIPES = sorted((Path(__file__).parent.parent / "parity" / "recipes").rglob("*.yml"))
EMBEDDED = Path(__file__).parent.parent / "parity" / "recipes" / "embedded" / "tensor-parallel.yml"

GOOD: dict[str, Any] = {
    "name": "x",
    "steps": 20,
    "trainer": {"embedded": "qwen3"},
    "legs": {"tp1": {}, "tp3": {"layout": {"tp": 3}}},
    "compare": [{"baseline": "tp1", "candidate": "tp3"}],
}


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "parity.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    return path


def mistakes(tmp_path: Path, content: object) -> list[str]:
    path = written(tmp_path, content)
    with pytest.raises(UsageError) as caught:
        load(path)
    return [line.removeprefix(f"{path}:") for line in caught.value.lines]


def changed(**changes: object) -> dict[str, Any]:
    return {**GOOD, **changes}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_valid(path: Path) -> None:
    load(path)


def test_the_embedded_suite_reads_as_documented() -> None:
    suite = load(EMBEDDED)
    assert (suite.name, suite.steps) == ("uneven-tensor-parallel", 40)
    assert [leg.ranks for leg in suite.legs.values()] == [1, 3, 4]
    assert suite.compare[0].control == "tp4"


def test_a_leg_s_trainer_options_override_the_suite_s(tmp_path: Path) -> None:
    content = changed(
        trainer={"embedded": "qwen3", "layers": 3, "dtype": "fp64"},
        legs={"tp1": {}, "tp3": {"layout": {"tp": 3}, "trainer": {"dtype": "bf16", "tp_cut": "rows"}}},
    )
    suite = load(written(tmp_path, content))
    options = train_options(suite, suite.legs["tp3"])
    assert (options.layers, options.dtype, options.tp_cut) == (3, "bf16", "rows")


def test_all_mistakes_are_told_at_once_with_line_path_and_remedy(tmp_path: Path) -> None:
    text = """\
name: x
steps: 0
sed: 3
trainer: {embedded: qwen3, lrr: 3}
legs:
  tp1: {layout: {tp: 1}}
  tp9: {layout: {tp: 9}}
  cmd: {command: "torchrun --nproc-per-node {nprocs} x.py", timeout: 10x}
compare:
  - {baseline: tp1, candidate: tp1}
  - {baseline: tp1, candidate: tp99}
"""
    assert mistakes(tmp_path, text) == [
        "2: steps: must be greater than or equal to 1, not 0",
        "3: sed: unknown key; did you mean 'seed'?",
        "4: trainer.lrr: unknown key; did you mean 'lr'?",
        "7: legs.tp9.layout.tp: 9 ranks cannot share 8 KV heads: give at most 8, or raise trainer.kv_heads",
        "8: legs.cmd.timeout: must be a valid number, unable to parse string as a number, not '10x'",
        "8: legs.cmd.command: nothing fills {nprocs}; did you mean 'nproc'?; for braces write {{nprocs}}",
        "10: compare[0]: compares a leg with itself: baseline, candidate and control must be different legs",
        "11: compare[1].candidate: no leg is named 'tp99'; did you mean 'tp9'?",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"trainer": None}, "nothing says what to run"),
        ({"trainer": {"embedded": "qwen3", "command": "x"}}, "has both `embedded` and `command`"),
        ({"trainer": {"command": "x", "layers": 2}}, "is an option of the embedded trainer"),
        ({"trainer": {"embedded": "gpt2"}}, "trainer.embedded: must be 'qwen3' or 'deepseek_v4', not 'gpt2'"),
        ({"trainer": {"embedded": "qwen3", "heads": 15}}, "trainer.heads: 15 is no multiple of the 8 KV heads"),
        ({"compare": []}, "compare: must not be empty"),
        ({"legs": {}}, "legs: must not be empty"),
        ({"legs": 3}, "legs: must be a mapping"),
        ({"legs": {"a b": {}}}, "'a b' must be letters"),
        ({"legs": {"../x": {}}}, "'../x' must be letters"),
        (
            {"legs": {"tp1": {}, "tp3": {"layout": {"tp": 0}}}},
            "legs.tp3.layout.tp: must be greater than or equal to 1",
        ),
        (
            {"legs": {"tp1": {}, "tp3": {"layout": {"ep": 2}}}},
            "legs.tp3.layout.ep: experts are spread over the 1 ranks",
        ),
        (
            {"legs": {"tp1": {}, "tp3": {"layout": {"tp": 3}, "nproc": 4}}},
            "legs.tp3.nproc: the embedded trainer runs",
        ),
        ({"legs": {"tp1": {"command": "x", "trainer": {"embedded": "qwen3"}}, "tp3": {}}}, "has both"),
        ({"compare": [GOOD["compare"][0], GOOD["compare"][0]]}, "the same comparison stands above"),
        ({"compare": [{"baseline": "tp1", "candidate": "tp3", "control": "tp3"}]}, "compares a leg with itself"),
        ({"bounds": {"loss": {"rtol": -1}}}, "bounds.loss.rtol: must be greater than or equal to 0"),
        ({"bounds": {"los": {}}}, "bounds.los: unknown key; did you mean 'loss'?"),
        ({"profile": "fp8"}, "profile: must be 'auto', 'fp32-cpu', 'fp32-gpu' or 'bf16', not 'fp8'"),
        ({"timeout": 0}, "timeout: must be greater than 0"),
        ({"env": {"A=B": 1}}, "env.A=B: "),
        ({"env": {"A": None}}, "env.A: must be a valid string, not None"),
        ({"env": {"A": "x\0y"}}, "must not hold a NUL character"),
        ({"source": {"file": "x", "format": "nope"}}, "source.format: "),
        ({"trainer": {"command": "train.py"}}, "tp1 and tp3 claim different layouts and run the same command"),
        (
            {"trainer": {"command": "train.py {tp}"}, "source": "metrics.jsonl"},
            "legs.tp3: its metrics are in the same file as those of tp1",
        ),
        (
            {"trainer": {"command": "t {tp}"}, "legs": {"tp1": {}, "tp3": {"trainer": {"lr": 5}}}},
            "legs.tp3.trainer.lr: is an option of the embedded trainer",
        ),
        ({"legs": {"tp1": {}, "tp3": {"evidence": {"must_match": ["("]}}}}, "must be a regular expression"),
        ({"steps": "many"}, "steps: must be a valid integer"),
        ({"name": ""}, "name: "),
    ],
)
def test_a_mistake_costs_one_line(tmp_path: Path, changes: dict[str, object], expected: str) -> None:
    assert any(expected in line for line in mistakes(tmp_path, changed(**changes))), mistakes(
        tmp_path, changed(**changes)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty; `parity init` writes a suite"),
        ("- 1\n- 2\n", "a suite is a mapping"),
        ("name: [\n", "not YAML"),
        ("name: x\nname: y\n", "name: given twice"),
        ("name: !!python/object/apply:os.system [ls]\n", "not YAML"),
        ("a: &a [*a]\n", "nested"),
        ("x: " + "[" * 2000 + "]" * 2000, "nested too deeply"),
        ("name: \x00\n", "not YAML"),
    ],
)
def test_a_file_that_is_no_suite_costs_one_line(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(path)
    assert expected in str(caught.value)
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
def test_a_device_or_a_pipe_is_no_suite_and_is_not_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a file"):
        load(tmp_path / name)


def test_files_that_cannot_be_read_cost_one_line(tmp_path: Path) -> None:
    (tmp_path / "latin.yml").write_bytes(b"name: \xe9\n")
    (tmp_path / "huge.yml").write_bytes(b"#" * (2 << 20))
    for name, expected in {
        "none.yml": "no such file",
        "latin.yml": "not UTF-8",
        "huge.yml": "bytes large",
        ".": "folder",
    }.items():
        with pytest.raises(UsageError, match=expected):
            load(tmp_path / name)


def test_a_bound_in_the_exponent_form_that_yaml_takes_for_text_is_a_number(tmp_path: Path) -> None:
    suite = load(written(tmp_path, yaml.safe_dump(GOOD) + "bounds: {loss: {rtol: 1e-4}}\n"))
    assert suite.bounds.loss is not None
    assert suite.bounds.loss.rtol == 1e-4


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_lengths_of_time(tmp_path: Path, text: str, seconds: float) -> None:
    assert load(written(tmp_path, changed(timeout=text))).timeout == seconds


def test_braces_that_are_no_placeholder_stay_as_they_are() -> None:
    line = """train --json '{"a": {"b": 1}}' ${HOME} {} {steps} {out} | awk '{{print}}'"""
    assert fill(line, {"steps": 3, "out": "/a b"}, quote=True) == (
        """train --json '{"a": {"b": 1}}' ${HOME} {} 3 '/a b' | awk '{print}'"""
    )


def test_what_is_said_twice_is_said_alike() -> None:
    assert tuple(LayoutSizes.model_fields) == AXES
    assert Suite.model_fields["k"].default == DEFAULT_K
    required = get_args(get_args(Suite.model_fields["require"].annotation)[0])
    assert set(required) <= set(CHECKS)


def test_the_committed_schemas_are_those_of_the_models() -> None:
    for name, text in generate().items():
        assert (FOLDER / name).read_text() == text, f"{name}: run `make schemas`"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_fulfil_the_committed_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads((FOLDER / "suite.schema.json").read_text()))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
keys = ["name", "steps", "seed", "trainer", "legs", "compare", "bounds", "env", "timeout", "source", "cwd", "profile"]


@given(changes=st.dictionaries(st.sampled_from(keys), anything, max_size=4))
def test_no_content_raises_anything_but_a_usage_error(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, object]
) -> None:
    path = written(tmp_path_factory.mktemp("suite"), changed(**changes))
    try:
        load(path)
    except UsageError as error:
        lines = error.lines
    else:
        return
    assert lines
    assert all(line.startswith(str(path)) and "\n" not in line for line in lines)
