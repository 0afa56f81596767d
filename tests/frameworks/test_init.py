"""A framework's recipe, written into somebody's repository, runs there as it does by its name."""

from collections.abc import Callable
from pathlib import Path

from tests.frameworks.environments import Framework


def test_a_recipe_that_was_written_runs_as_the_recipe_does(
    framework: Callable[[str], Framework], tmp_path: Path
) -> None:
    deepspeed = framework("deepspeed")
    done = deepspeed.parity("init", "--recipe", "deepspeed/autotp-uneven", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    ran = deepspeed.run(tmp_path / "parity-recipes" / "deepspeed" / "autotp-uneven.yml", out=tmp_path / "parity-out")
    assert ran.exit_code == 0, ran.text
    assert ran.result.verdict == "pass"
    assert str(tmp_path / "parity-recipes" / "deepspeed" / "train.py") in (ran.result.legs[0].command or "")
