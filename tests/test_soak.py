"""A short soak; `make soak` runs a long one."""

import random
from pathlib import Path

import pytest

from tests import soak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "victim"),
    [
        ("tensor-parallel", soak.Victim("tp3", 1, 7)),
        ("deepseek-v4-pp2", soak.Victim("pp2", 1, -1)),
    ],
)
def test_a_killed_rank_on_a_busy_machine_is_named_and_takes_nothing_with_it(
    tmp_path: Path, suite: str, victim: soak.Victim
) -> None:
    with soak.busy(2):
        wrong = None
        for attempt in range(3):  # a rank may have ended before it is found
            wrong = soak.run(suite, victim, tmp_path / f"out-{attempt}")
            if wrong is not None:
                break
    assert wrong == []


def test_choose__every_rank_of_every_suite_can_be_hit() -> None:
    for suite in soak.SUITES:
        chosen = {soak.choose(suite, random.Random(seed)).leg for seed in range(60)}
        assert len(chosen) >= 3
