"""What the README says is true."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from parity.checks.profiles import PROFILES
from parity.checks.run import CHECKS
from parity.cli import main
from parity.commands.suites import RECIPES, recipes
from parity.curves import formats
from parity.layout import AXES
from parity.placeholders import PLACEHOLDERS
from parity.rundir import REPORTS
from parity.suite import Leg, Suite

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def table(heading: str) -> list[list[str]]:
    """The rows of the table whose first heading cell is `heading`."""
    lines = README[README.index(f"\n| {heading} |") :].lstrip().split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def frameworks() -> list[tuple[str, list[str], str]]:
    """Of each framework that the README names its folder, the recipes, and what they run on."""
    rows = table("framework")
    return [(re.findall(r"recipes/([a-z]+)/README", row[0])[0], ticked(row[1]), row[2]) for row in rows]


def ticked(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_every_command_is_made_by_ci_or_is_one_of_ours() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    for words in commands():
        if words[0] == "make":
            assert " ".join(words) in ci, words
        else:
            assert words[0] == "parity", words
            assert isinstance(main, click.Group)
            command = main.commands[words[1]]
            known = {name for parameter in command.params for name in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known, words


def test_every_question_of_show_is_asked_once() -> None:
    assert isinstance(main, click.Group)
    known = {name for parameter in main.commands["show"].params for name in parameter.opts if name.startswith("--")}
    asked = [words for words in commands() if words[:2] == ["parity", "show"]]
    assert {word for words in asked for word in words if word.startswith("--")} == known


def test_what_a_run_leaves_is_listed() -> None:
    listed = README[README.index("\nparity-out/\n") :].split("```")[0].split()
    assert {*REPORTS} <= {*listed}


def test_make_targets_that_are_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"`make ([a-z-]+)`", README + (ROOT / "CONTRIBUTING.md").read_text()))
    assert {"bench", "run", "test", "help"} - named <= {"test"}
    for target in named:
        assert re.search(rf"^{target}:.*##", makefile, re.MULTILINE), target


def test_files_that_are_named_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for schema in re.findall(r"parity/schemas/[\w.]+", README):
        assert (ROOT / schema).exists(), schema


def test_checks_are_those_that_there_are() -> None:
    assert [name for row in table("check") for name in ticked(row[0])] == list(CHECKS)


def test_profiles_have_the_numbers_that_are_told() -> None:
    for name, first, later, first_norm, later_norm, grows in table("profile"):
        profile = PROFILES[ticked(name)[0]]
        loss, norm = profile.bounds["loss"], profile.bounds["grad_norm"]
        told = [float(cell) for cell in (first, later, first_norm, later_norm)]
        assert told == [loss.first_rtol, loss.rtol, norm.first_rtol, norm.rtol]
        assert grows == f"{loss.steady_steps} steps"
    assert len(table("profile")) == len(PROFILES)


def test_every_key_of_a_suite_and_of_a_leg_is_told() -> None:
    told = {key for row in table("key") for key in ticked(row[0])}
    assert told == set(Suite.model_fields)
    sentence = README[README.index("A leg has a `layout`") :].split("Commands, folders")[0]
    assert set(Leg.model_fields) <= set(ticked(sentence))


def test_every_recipe_is_told() -> None:
    embedded = {name for name in recipes() if name.startswith("embedded/")}
    assert {name for row in table("recipe") for name in ticked(row[0])} == embedded - {"embedded/tensor-parallel"}
    told = [(folder, name) for folder, names, _ in frameworks() for name in names]
    assert all(name.startswith(f"{folder}/") for folder, name in told)
    assert sorted(name for _, name in told) == sorted(set(recipes()) - embedded)


def test_a_framework_runs_on_what_its_page_says() -> None:
    for folder, _, runs_on in frameworks():
        top = "\n".join((RECIPES / folder / "README.md").read_text().splitlines()[:12]).lower()
        assert runs_on in ("CPU", "GPU"), folder
        assert ("runs on cpu" if runs_on == "CPU" else "gpu only") in top, folder


def test_a_commented_suite_says_which_placeholders_there_are() -> None:
    (line,) = [line for line in (RECIPES / "init.yml").read_text().splitlines() if "Placeholders:" in line]
    assert re.findall(r"\{(\w+)\}", line) == list(PLACEHOLDERS)
    sentence = README[README.index("Commands, folders and sources may name") :].split("in a command line")[0]
    assert {word for word in PLACEHOLDERS if word not in AXES} <= set(re.findall(r"`\{(\w+)\}`", sentence))


def test_exit_codes_are_told() -> None:
    assert [row[1] for row in table("verdict")] == ["0", "1", "2", "3", "4"]


@pytest.mark.slow
def test_the_trainer_of_the_quick_start_runs_as_the_suite_of_the_quick_start(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks("python")[0])
    (tmp_path / "parity.yml").write_text(blocks("yaml")[0])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for words in (["validate"], ["run"]):
        done = subprocess.run(
            [sys.executable, "-m", "parity", *words],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "parity: pass · my-data-parallel" in done.stdout
    logs = {str(path.relative_to(tmp_path / "parity-out" / "legs")) for path in tmp_path.rglob("rank-*.log")}
    assert {"dp1/rank-0.log", "dp2/rank-1.log", "dp4/rank-3.log"} <= logs


def action() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "action.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def test_the_action_s_inputs_and_outputs_are_those_that_it_has() -> None:
    inputs = [
        [
            f"`{name}`",
            f"`{one['default']}`" if str(one.get("default", "")) else "",
            " ".join(one["description"].split()),
        ]
        for name, one in action()["inputs"].items()
    ]
    assert table("input") == inputs
    outputs = [[f"`{name}`", " ".join(one["description"].split())] for name, one in action()["outputs"].items()]
    assert table("output") == outputs


def test_starters_have_the_events_and_permissions_that_are_named() -> None:
    rows = {ticked(row[0])[0]: row for row in table("starter")}
    assert set(rows) == {path.name for path in (ROOT / "workflows").glob("*.yml")}
    for name, row in rows.items():
        workflow = yaml.safe_load((ROOT / "workflows" / name).read_text())
        events = workflow.get("on", workflow.get(True))
        assert ticked(row[1])[0] in ([events] if isinstance(events, str) else events)
        jobs = {key: dict(job["permissions"]) for key, job in workflow["jobs"].items()}
        legs = jobs.pop("run", None) or jobs.pop("parity")
        told = [dict([one.split(": ")]) for one in ticked(row[2])]
        assert {key: value for one in told for key, value in one.items()} == legs
        others = {
            part.split(":")[0].strip(): dict(one.split(": ") for one in ticked(part))
            for part in row[3].split(";")
            if part
        }
        assert others == jobs


def test_every_format_of_logs_is_told() -> None:
    assert sorted(name for row in table("format") for name in ticked(row[0])) == list(formats())


def test_error_texts_that_are_explained_are_printed_by_something() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "entrypoint").rglob("*.py"))
    flat = re.sub(r'"\s*\n\s*f?"', "", sources)
    for row in table("the log says"):
        text = ticked(row[0])[0]
        assert text in flat or text == "Resource not accessible by integration", text


def test_the_quick_start_is_the_starter_for_branches_of_one_s_own() -> None:
    (text,) = [block for block in blocks("yaml") if "org/parity-action" in block]
    assert len(text.splitlines()) <= 16
    mine, starter = yaml.safe_load(text), yaml.safe_load((ROOT / "workflows" / "parity-same-repo.yml").read_text())
    assert mine["jobs"]["parity"]["permissions"] == starter["jobs"]["parity"]["permissions"]
    assert mine["jobs"]["parity"]["runs-on"] == starter["jobs"]["parity"]["runs-on"]
