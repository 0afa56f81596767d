"""`action.yml` says what the programs read and write, and gives the token to none that could lose it."""

import dataclasses
import re
from typing import Any

import pytest

from entrypoint.inputs import CHOICES, Inputs
from parity import __version__

from .files import ACTION, ROOT, load

PROGRAMS = {
    "gate": {"ok", "pr-number", "sha"},
    "plan": {"matrix"},
    "publish": {
        "verdict",
        "report-path",
        "result-path",
        "comment-url",
        "tested-sha",
        "worst-step",
        "first-divergent-step",
    },
}


@pytest.fixture(scope="module")
def action() -> Any:
    return load(ACTION)


@pytest.fixture(scope="module")
def steps(action: Any) -> dict[str, Any]:
    return {step["name"]: step for step in action["runs"]["steps"]}


def test_inputs_are_those_that_are_read(action: Any) -> None:
    assert list(action["inputs"]) != []
    assert set(action["inputs"]) == {field.name.replace("_", "-") for field in dataclasses.fields(Inputs)}


def test_defaults_are_the_same(action: Any) -> None:
    given = {f"INPUT_{name.upper().replace('-', '_')}": one["default"] for name, one in action["inputs"].items()}
    assert given.pop("INPUT_TOKEN") == "${{ github.token }}"
    image = f"ghcr.io/org/parity-action:{__version__}"
    assert Inputs.from_env(given) == dataclasses.replace(Inputs(), image=image)


def test_inputs_say_which_words_they_take(action: Any) -> None:
    for name, words in CHOICES.items():
        missing = [word for word in words if word and f"`{word}`" not in action["inputs"][name]["description"]]
        assert missing == [], name


def test_outputs_are_those_that_are_written(action: Any) -> None:
    written = {name: f"${{{{ steps.{step}.outputs.{name} }}}}" for step, names in PROGRAMS.items() for name in names}
    assert {name: one["value"] for name, one in action["outputs"].items()} == written
    for program, names in PROGRAMS.items():
        source = (ROOT / "entrypoint" / f"{program}.py").read_text()
        assert [name for name in names if f'"{name}"' not in source] == []


def test_everything_is_described(action: Any) -> None:
    assert [
        name for kind in ("inputs", "outputs") for name, one in action[kind].items() if not one["description"]
    ] == []


def test_scripts_hold_no_expressions(steps: dict[str, Any]) -> None:
    for step in steps.values():
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
        # The shell makes way: the runner signals it alone.
        assert re.fullmatch(r'exec python3 (-I )?"\$GITHUB_ACTION_PATH/entrypoint/\w+\.py"( \w+)?', step["run"])


def test_inputs_reach_their_steps(action: Any, steps: dict[str, Any]) -> None:
    given = set()
    for step in steps.values():
        for name, value in step["env"].items():
            if found := re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", value):
                assert name == f"INPUT_{found[1].upper().replace('-', '_')}"
                given.add(found[1])
    assert given == set(action["inputs"])


def test_the_token_is_where_no_code_under_test_is_run(steps: dict[str, Any]) -> None:
    assert [name for name, step in steps.items() if "INPUT_TOKEN" in step["env"]] == ["Gate", "Publish"]
    assert [name for name, step in steps.items() if "token" in str({**step, "env": ""}).lower()] == []
    assert [name for name, step in steps.items() if "trusted.py" in step["run"]] == ["Gate", "Plan", "Publish"]
    # Isolated: the working directory may hold modules of any name.
    assert {"Gate", "Plan", "Publish"} <= {name for name, step in steps.items() if " -I " in step["run"]}


def test_publish_is_told_how_the_legs_ended(steps: dict[str, Any]) -> None:
    # Of the step, where they ran in this job; trusted.py hands on to a container what begins with INPUT_.
    assert steps["Publish"]["env"]["INPUT_RUN_OUTCOME"] == "${{ steps.run.outcome }}"


def test_every_mode_has_its_steps(steps: dict[str, Any]) -> None:
    def run(mode: str, cancelled: bool = False) -> list[str]:
        found = []
        for name, step in steps.items():
            condition = step["if"].replace("!cancelled()", str(not cancelled)).replace("always()", "True")
            condition = re.sub(r"inputs\.mode", repr(mode), condition).replace("&&", "and").replace("||", "or")
            always = "always()" in step["if"]
            if eval(condition) and (always or not cancelled):
                found.append(name)
        return found

    assert run("gate") == ["Gate"]
    assert run("plan") == ["Plan"]
    assert run("run") == ["Run", "Clean up"]
    assert run("publish") == ["Publish"]
    assert run("all") == ["Run", "Clean up", "Publish"]
    assert run("all", cancelled=True) == ["Clean up"]
    # One that is misspelled is refused, and not green.
    assert "Run" in run("pubilsh")
    assert steps["Run"]["continue-on-error"] == "${{ inputs.mode == 'all' }}"
