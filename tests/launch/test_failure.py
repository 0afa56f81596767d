"""Which rank is named, from what the ranks left."""

import json
from pathlib import Path

import pytest

from parity.launch.failure import Symptom, describe_exit, first_failure, log_error, symptom

PEER = "RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:40721"
TRACEBACK = """\
step 3
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
{error}
"""


def ended(rank: int, time: float, error: str, echo: bool = False) -> Symptom:
    return Symptom(rank, 1, time, error, echo)


def test_first_failure__an_echo_that_came_earlier_is_not_the_cause() -> None:
    cause = ended(2, 10.0, "ValueError: x")
    assert first_failure([ended(0, 9.0, PEER, echo=True), cause, ended(1, 11.0, "KeyError: 1")]) == cause


def test_first_failure__only_echoes() -> None:
    assert first_failure([ended(1, 9.0, PEER, echo=True), ended(0, 8.0, PEER, echo=True)]) == ended(
        0, 8.0, PEER, True
    )
    assert first_failure([]) is None


@pytest.mark.parametrize(
    "error",
    [
        PEER,
        "RuntimeError: [tcp/pair.cc:598] Connection reset by peer",
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:94, remote process exited or there was an error",
        "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_symptom__what_another_ranks_end_does(tmp_path: Path, error: str) -> None:
    log = tmp_path / "rank-0.log"
    log.write_text(TRACEBACK.format(error=error))
    found = symptom(0, 1, 1.0, log)
    assert found is not None
    assert found.error == error
    assert found.echo


def test_symptom__the_record_is_the_best_witness(tmp_path: Path) -> None:
    log, record = tmp_path / "rank-0.log", tmp_path / "rank-0.jsonl"
    log.write_text(TRACEBACK.format(error="RuntimeError: aborted while tearing down"))
    lines = [{"kind": "step", "step": 0}, {"kind": "error", "type": "ValueError", "message": "bad\nlr", "time": 5.0}]
    record.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    assert symptom(0, -6, 9.0, log, record) == Symptom(0, -6, 5.0, "ValueError: bad", echo=False)


def test_symptom__what_we_ended_is_an_echo(tmp_path: Path) -> None:
    for code, ended_by_us in ((-15, False), (-9, True), (1, True)):
        found = symptom(0, code, 9.0, tmp_path / "none.log", ended_by_us=ended_by_us)
        assert found is not None
        assert found.echo


def test_symptom__no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(TRACEBACK.format(error="KeyError: 'token'"))
    (tmp_path / "rank-0.log").symlink_to(tmp_path / "secret")
    found = symptom(0, 1, 1.0, tmp_path / "rank-0.log")
    assert found is not None
    assert found.error == "exit code 1"


def test_log_error__the_last_of_a_chain_with_torchs_prefix() -> None:
    first = TRACEBACK.format(error="KeyError: 'a'")
    text = first + "\nDuring handling of the above exception:\n\n" + TRACEBACK.format(error="ValueError: b")
    text = (
        "".join(f"[rank1]: {line}\n" for line in text.splitlines()) + "[W11] destroy_process_group() was not called\n"
    )
    found = log_error(text)
    assert found is not None
    assert found[0] == "ValueError: b"


def test_log_error__an_abort_of_cpp() -> None:
    text = "terminate called after throwing an instance of 'c10::Error'\n  what():  out of range\nmore\n"
    assert log_error(text) == ("out of range", "out of range")


def test_log_error__empty_lines_take_no_minutes() -> None:
    assert log_error("\n" * (1 << 18)) is None  # in square time it would be past the test's limit


def test_symptom__an_error_line_of_odd_types(tmp_path: Path) -> None:
    log, record = tmp_path / "rank-0.log", tmp_path / "rank-0.jsonl"
    record.write_text('{"kind": "error", "type": {"a": [1]}, "message": null, "time": NaN}\n')
    assert symptom(0, 1, 9.0, log, record) == Symptom(0, 1, 9.0, "error:", echo=False)


def test_symptom__an_error_that_no_file_or_terminal_could_take(tmp_path: Path) -> None:
    log, record = tmp_path / "rank-0.log", tmp_path / "rank-0.jsonl"
    record.write_text('{"kind": "error", "type": "ValueError", "message": "a\\ud800\\u001b[31mb"}\n')
    found = symptom(0, 1, 9.0, log, record)
    assert found is not None
    assert found.error == "ValueError: ab"


def test_log_error__none() -> None:
    assert log_error("all is well\nno traceback here\n") is None


def test_describe_exit() -> None:
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-9) == "killed by signal 9 (SIGKILL)"
    assert describe_exit(-11) == "killed by signal 11 (SIGSEGV)"
    assert describe_exit(-99) == "killed by signal 99 (unknown)"


def test_describe_exit__a_signal_that_a_shell_reports_is_named() -> None:
    assert describe_exit(134) == "exit code 134 (SIGABRT)"
    assert describe_exit(137) == "exit code 137 (SIGKILL)"
    assert [describe_exit(code) for code in (128, 255)] == ["exit code 128", "exit code 255"]
