"""Bounds that are measured: from which legs, up to where, and when there are none."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from parity.calibrate import bounds_of, with_runs
from parity.checks.comparison import Comparison
from parity.checks.profiles import PROFILES
from parity.suite import load
from tests.drawing import LOSS, NORM, leg, noisy

STEPS = np.arange(20)


def measured(*perturbed: np.ndarray, k: float = 8.0) -> Comparison:
    base = leg("tp1", loss=LOSS, grad_norm=NORM)
    legs = tuple(leg(f"p{at}", loss=one, grad_norm=NORM) for at, one in enumerate(perturbed))
    return Comparison(base, base, PROFILES["fp32-cpu"], perturbed=legs, k=k)


def test_bounds_are_k_times_the_most_that_any_leg_showed() -> None:
    far = LOSS.copy()
    far[12] *= 1 + 3e-5
    loss, norm = bounds_of(measured(noisy(LOSS, 1e-6), far))
    assert (loss.metric, norm.metric) == ("loss", "grad_norm")
    assert loss.first_rtol == pytest.approx(8 * 2 * 2.0**-23, rel=0.06)  # the least that a floor is
    assert loss.rtol == pytest.approx(2.4e-4, rel=0.02)
    assert loss.worst == pytest.approx(3e-5, rel=0.02)
    assert not loss.cut
    assert norm.rtol == norm.first_rtol


def test_a_number_is_rounded_up_and_k_counts() -> None:
    far = LOSS.copy()
    far[12] *= 1 + 3.01e-5
    (loss, _), (twice, _) = bounds_of(measured(far)), bounds_of(measured(far, k=16.0))
    assert loss.rtol == 2.5e-4
    assert twice.rtol == pytest.approx(2 * 2.41e-4, rel=0.03)


def test_bounds_hold_up_to_the_evidence_horizon() -> None:
    (loss, _) = bounds_of(measured(LOSS * (1 + 1e-8 * 2.0**STEPS * (STEPS > 0))))
    assert loss.cut
    assert loss.until < 12
    assert (loss.rtol or 0) <= 1.1e-3


def test_every_comparison_gets_so_many_legs_whatever_its_own_floor_is(tmp_path: Path) -> None:
    path = tmp_path / "parity.yml"
    suite = {
        "name": "s",
        "steps": 4,
        "trainer": {"embedded": "qwen3"},
        "legs": {"a": {}, "b": {"layout": {"tp": 2}}},
        "compare": [{"baseline": "a", "candidate": "b", "floor": []}],
    }
    path.write_text(yaml.safe_dump(suite))
    made = with_runs(load(path), 3)
    assert made.compare[0].perturbed == ("a.perturbed", "a.perturbed-2", "a.perturbed-3")
    assert made.compare[0].repeat == ("a.repeat",)


@pytest.mark.slow
def test_a_suite_with_the_bounds_that_were_written_passes(tmp_path: Path) -> None:
    def parity(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "parity", *map(str, arguments)]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, cwd=tmp_path)

    suite = {
        "name": "s",
        "steps": 8,
        "device": "cpu",
        "trainer": {"embedded": "qwen3"},
        "legs": {"a": {}, "b": {"layout": {"tp": 2}}},
        "compare": [{"baseline": "a", "candidate": "b"}],
    }
    (tmp_path / "parity.yml").write_text(yaml.safe_dump(suite))
    ended = parity("calibrate", "--runs", 2)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("# parity calibrate parity.yml --runs 2 --k 8\n# 20")
    assert (tmp_path / "parity-calibration" / "bounds.yml").read_text() == ended.stdout
    (tmp_path / "parity.yml").write_text(yaml.safe_dump(suite) + ended.stdout)
    again = parity("run")
    assert again.returncode == 0, again.stdout
    # No leg of the candidate's layout was needed to measure noise.
    assert not (tmp_path / "parity-calibration" / "legs" / "b").exists()
