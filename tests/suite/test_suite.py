"""parity.yml: what it means, and what is said of its mistakes."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from parity.checks.defaults import DEFAULT_K
from parity.checks.run import CHECKS
from parity.errors import UsageError
from parity.launch import marker
from parity.layout import AXES
from parity.placeholders import fill
from parity.schemas import FOLDER, generate
from parity.suite import LayoutSizes, Suite, digest, load, train_options
from parity.suite.rules import LAUNCHERS

HOME = Path(__file__).parents[2] / "parity" / "recipes"
RECIPES = [HOME / "init.yml", *sorted(HOME.glob("*/*.yml"))]
EMBEDDED = HOME / "embedded" / "tensor-parallel.yml"

GOOD: dict[str, Any] = {
    "name": "x",
    "steps": 20,
    "trainer": {"embedded": "qwen3"},
    "legs": {"tp1": {}, "tp3": {"layout": {"tp": 3}}},
    "compare": [{"baseline": "tp1", "candidate": "tp3"}],
}

PAIR: dict[str, Any] = GOOD["compare"][0]
THREE: dict[str, Any] = {**GOOD["legs"], "a": {}}
OTHERS = ("control", "repeat", "perturbed", "reference")
LONG = "tp1" + "x" * 61


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


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_is_valid(path: Path) -> None:
    load(path)


def test_the_embedded_suite_reads_as_documented() -> None:
    suite = load(EMBEDDED)
    assert (suite.name, suite.steps) == ("uneven-tensor-parallel", 40)
    assert {name: leg.ranks for name, leg in suite.legs.items()} == {"tp1": 1, "tp3": 3, "tp4": 4, "tp1.perturbed": 1}
    assert (suite.compare[0].control, suite.compare[0].perturbed) == (("tp4",), ("tp1.perturbed",))


def test_a_leg_s_trainer_options_override_the_suite_s(tmp_path: Path) -> None:
    content = changed(
        trainer={"embedded": "qwen3", "layers": 3, "dtype": "fp64"},
        legs={"tp1": {}, "tp3": {"layout": {"tp": 3}, "trainer": {"dtype": "bf16", "sequence_parallel": True}}},
    )
    suite = load(written(tmp_path, content))
    options = train_options(suite, suite.legs["tp3"])
    assert (options.layers, options.dtype, options.sequence_parallel) == (3, "bf16", True)


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
        "10: compare[0]: compares a leg with itself: every role takes another leg",
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
        ({"steps": True}, "steps: must be a number, not True"),  # which is 1, to Python
        ({"timeout": True}, "timeout: must be a number, not True"),
        ({"trainer": {"embedded": "qwen3", "layers": True}}, "trainer.layers: must be a number, not True"),
        ({"legs": {"tp1": {}, "tp3": {"layout": {"tp": True}}}}, "legs.tp3.layout.tp: must be a number, not True"),
        ({"floor": {"repeat": True}}, "floor.repeat: must be a number, not True"),
        ({"launcher": {"slurm": {"max_jobs": True}}}, "launcher.slurm.max_jobs: must be a number, not True"),
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
        ({"source": {"file": "{out}/x", "pattern": "("}}, "source.pattern: must be a regular expression of RE2"),
        (
            {"source": {"file": "{out}/x", "pattern": "loss (?P<loss>.*)"}},
            "source.pattern: must have groups named step and",
        ),
        (
            {"source": {"file": "{out}/x", "format": "pattern"}},
            "source: must have a pattern, as its format is pattern",
        ),
        (
            {"source": {"file": "{out}/x", "format": "jsonl", "pattern": "(?P<step>1)(?P<loss>2)"}},
            "source: must have no pattern, as its format is another",
        ),
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
        ({"bounds": {"loss": {"resolve": -1}}}, "bounds.loss.resolve: must be greater than or equal to 0"),
        ({"compare": [{**PAIR, "control": 3}]}, "compare[0].control: must be a leg's name or a list of names, not 3"),
        ({"compare": [{**PAIR, "control": ["tp4"]}]}, "compare[0].control[0]: no leg is named 'tp4'"),
        ({"compare": [{**PAIR, "repeat": "tp4"}]}, "compare[0].repeat: no leg is named 'tp4'; did you mean"),
        ({"compare": [{**PAIR, "reference": "tp4"}]}, "compare[0].reference: no leg is named 'tp4'"),
        *(({"compare": [{**PAIR, role: "tp1"}]}, "compares a leg with itself") for role in OTHERS),
        ({"compare": [{**PAIR, "control": "a", "repeat": ["a"]}], "legs": THREE}, "compares a leg with itself"),
        ({"compare": [{**PAIR, "control": "a"}, {**PAIR, "control": ["a"]}], "legs": THREE}, "stands above"),
        (
            {"compare": [{**PAIR, "perturbed": "a"}], "legs": THREE},
            "compare[0].perturbed: a moves no weights: give it",
        ),
        ({"floor": "pertubed"}, "floor.pertubed: unknown key; did you mean 'perturbed'?"),
        ({"floor": ["repeat", "control"]}, "floor.control: unknown key; there is repeat, perturbed, reference"),
        ({"floor": {"reference": 2}}, "floor.reference: must be less than or equal to 1, not 2"),
        ({"floor": {"perturbed": -1}}, "floor.perturbed: must be greater than or equal to 0"),
        ({"floor": 3}, "floor: must be a mapping of keys to values, not 3"),
        (
            {"compare": [{**PAIR, "repeat": "a", "floor": "repeat"}], "legs": THREE},
            "compare[0].floor: makes repeat legs, and `repeat:` names one: give one of the two",
        ),
        (
            {"trainer": {"command": "t {tp}"}, "floor": ["repeat", "reference"]},
            "compare[0]: no reference can be made of tp1, which does not run the embedded trainer: add a leg",
        ),
        (
            {"trainer": {"command": "t {tp}"}, "source": "m.{tp}", "floor": "repeat"},
            "compare[0]: the metrics of tp1.repeat would be in the baseline's file: let `source` name {out} or {leg}",
        ),
        (
            {"floor": "repeat", "legs": {**GOOD["legs"], "tp1.repeat": {"timeout": 9}}},
            "legs.tp1.repeat: is another leg",
        ),
        (
            {"floor": "perturbed", "legs": {LONG: {}, "tp3": {}}, "compare": [{**PAIR, "baseline": LONG}]},
            f"a leg would be made with the name {LONG}.perturbed, of more than 64 letters",
        ),
        ({"env": {"PARITY_PERTURB": 1}}, "env.PARITY_PERTURB: would move the weights of every leg"),
        ({"env": {"PARITY_LEG": "x"}}, "env.PARITY_LEG: is set by the launcher"),
        ({"legs": {"tp1": {"env": {"PARITY_RUN_ID": "x"}}, "tp3": {}}}, "legs.tp1.env.PARITY_RUN_ID: is set by"),
        (
            {"legs": {"tp1": {}, "tp3": {"env": {"PARITY_PERTURB": 1}}}},
            "legs.tp3.env.PARITY_PERTURB: moves the weights of tp3, which is a candidate",
        ),
        (
            {"legs": {**THREE, "a": {"env": {"PARITY_PERTURB": "no"}}}, "compare": [{**PAIR, "perturbed": "a"}]},
            "legs.a.env.PARITY_PERTURB: must be a whole number from 1, not 'no'",
        ),
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


def roles_of(suite: Suite, index: int = 0) -> dict[str, object]:
    return {role: getattr(suite.compare[index], role) for role in OTHERS}


@pytest.mark.parametrize("one", [True, False])
def test_a_comparison_names_legs_by_role(tmp_path: Path, one: bool) -> None:
    legs = {**THREE, "r": {}, "p": {"env": {"PARITY_PERTURB": True}}, "x": {"trainer": {"dtype": "fp64"}}}
    roles = {"control": "a", "repeat": "r", "perturbed": "p"}
    named = roles if one else {role: [name] for role, name in roles.items()}
    suite = load(written(tmp_path, changed(legs=legs, compare=[{**PAIR, **named, "reference": "x"}])))
    assert roles_of(suite) == {"control": ("a",), "repeat": ("r",), "perturbed": ("p",), "reference": "x"}
    assert suite.compare[0].legs() == ["tp1", "tp3", "a", "r", "p", "x"]
    assert list(suite.legs) == list(legs)


@pytest.mark.parametrize(
    ("floor", "made"),
    [
        ("perturbed", {"tp1.perturbed": "1"}),
        (["repeat", "perturbed"], {"tp1.repeat": None, "tp1.perturbed": "1"}),
        (["perturbed", "perturbed"], {"tp1.perturbed": "1", "tp1.perturbed-2": "2"}),
        (
            {"perturbed": 3, "repeat": 2},
            {
                "tp1.repeat": None,
                "tp1.repeat-2": None,
                "tp1.perturbed": "1",
                "tp1.perturbed-2": "2",
                "tp1.perturbed-3": "3",
            },
        ),
        ({"repeat": 0}, {}),
        ([], {}),
        (None, {}),
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_floor_legs_are_copies_of_the_baseline_s(
    tmp_path: Path, floor: object, made: dict[str, str | None], own: bool
) -> None:
    legs = {"tp1": {"timeout": 77, "env": {"A": "b"}, "trainer": {"lr": 0.002}}, "tp3": {"layout": {"tp": 3}}}
    where = {"compare": [{**PAIR, "floor": floor}]} if own else {"floor": floor}
    suite = load(written(tmp_path, changed(legs=legs, **where)))
    assert list(suite.legs) == ["tp1", "tp3", *made]
    for name, number in made.items():
        moved = {} if number is None else {"PARITY_PERTURB": number}
        baseline = suite.legs["tp1"].model_dump()
        assert suite.legs[name].model_dump() == {**baseline, "env": {"A": "b", **moved}}
        assert (digest(suite, name, "cpu") == digest(suite, "tp1", "cpu")) == (number is None)
    by_role = roles_of(suite)
    assert by_role["repeat"] == tuple(name for name, number in made.items() if number is None)
    assert by_role["perturbed"] == tuple(name for name, number in made.items() if number is not None)
    assert Suite.model_validate_json(suite.model_dump_json()) == suite


def test_a_reference_is_the_baseline_in_float64(tmp_path: Path) -> None:
    legs = {"tp1": {"trainer": {"lr": 0.002}}, "tp3": {"layout": {"tp": 3}}}
    suite = load(written(tmp_path, changed(legs=legs, floor="reference", trainer={"embedded": "qwen3", "layers": 3})))
    assert roles_of(suite) == {"control": (), "repeat": (), "perturbed": (), "reference": "tp1.reference"}
    baseline, reference = (train_options(suite, suite.legs[name]) for name in ("tp1", "tp1.reference"))
    assert (baseline.dtype, reference.dtype) == ("fp32", "fp64")
    assert replace(reference, dtype="fp32") == baseline
    again = Suite.model_validate_json(suite.model_dump_json())
    assert digest(again, "tp1.reference", "cpu") == digest(suite, "tp1.reference", "cpu")


def test_comparisons_share_legs_and_what_they_say_themselves_wins(tmp_path: Path) -> None:
    legs = {**THREE, "p": {"env": {"PARITY_PERTURB": 5}}}
    compare = [
        PAIR,
        {**PAIR, "candidate": "a", "floor": {"perturbed": 2}},
        {"baseline": "tp3", "candidate": "a", "floor": []},
        {**PAIR, "control": "a", "perturbed": "p"},
        {"baseline": "a", "candidate": "tp3"},
    ]
    suite = load(written(tmp_path, changed(legs=legs, compare=compare, floor=["perturbed", "repeat"])))
    assert [item.perturbed for item in suite.compare] == [
        ("tp1.perturbed",),
        ("tp1.perturbed", "tp1.perturbed-2"),
        (),
        ("p",),
        ("a.perturbed",),
    ]
    assert [item.repeat for item in suite.compare] == [("tp1.repeat",), (), (), ("tp1.repeat",), ("a.repeat",)]
    assert set(suite.legs) == {
        *legs, "tp1.perturbed", "tp1.perturbed-2", "tp1.repeat", "a.perturbed", "a.repeat",
    }  # fmt: skip


def test_a_leg_written_as_it_would_be_made_is_that_leg(tmp_path: Path) -> None:
    legs = {"tp1.perturbed": {"env": {"PARITY_PERTURB": 1}}, **GOOD["legs"]}
    suite = load(written(tmp_path, changed(legs=legs, floor="perturbed")))
    assert list(suite.legs) == list(legs)
    assert suite.compare[0].perturbed == ("tp1.perturbed",)


def test_what_a_floor_cannot_make_is_told_with_the_other_mistakes(tmp_path: Path) -> None:
    content = changed(trainer={"command": "t {tpp}"}, floor=["reference"])
    told = " ".join(mistakes(tmp_path, content))
    assert "nothing fills {tpp}" in told
    assert "no reference can be made" in told


def test_the_launcher_s_variables_are_those_that_it_sets(tmp_path: Path) -> None:
    own = {marker.NODE, "PARITY_STORE_FD"}
    assert {*marker.environment("run", "leg", tmp_path), *own} == set(LAUNCHERS)


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


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_recipes_fulfil_the_committed_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads((FOLDER / "suite.schema.json").read_text()))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
keys = [
    "name", "steps", "seed", "trainer", "legs", "compare", "bounds", "env", "timeout", "source", "cwd", "profile",
    "floor",
]  # fmt: skip


@example({"cwd": [], "source": "m.jsonl"})
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
