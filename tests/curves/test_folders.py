"""A folder that a framework left: its one log is the leg's."""

from pathlib import Path

import pytest

from parity.curves import read
from parity.errors import UsageError

RECORDS = '{"step": 0, "loss": 2.5}\n{"step": 1, "loss": 2.25}\n'
LOGS = {
    "training.jsonl": RECORDS,
    "metrics.csv": "step,loss\n0,2.5\n1,2.25\n",
    "log_dict.json": '{"loss": [2.5, 2.25], "grad_norm": [1.0, 1.5]}',
}


@pytest.mark.parametrize("name", LOGS)
def test_the_log_of_a_run_s_folder_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LOGS[name])
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "metrics.csv").write_text("step,loss\n0,9.0\n")
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    (tmp_path / "validation.jsonl").write_text(RECORDS.replace("2.", "7."))
    leg = read(tmp_path)
    assert leg.source == str(tmp_path / name)
    assert leg.curves["loss"].values.tolist() == [2.5, 2.25]


def test_of_two_logs_in_a_folder_none_is_guessed(tmp_path: Path) -> None:
    for name in ("training.jsonl", "metrics.csv"):
        (tmp_path / name).write_text(LOGS[name])
    (tmp_path / "config.yaml").touch()
    with pytest.raises(UsageError, match=r"is a folder, .*: name the file in it, such as metrics.csv"):
        read(tmp_path)


def test_a_link_in_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(RECORDS)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "training.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="links are not followed"):
        read(tmp_path / "run")
