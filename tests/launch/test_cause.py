"""What a leg's last words come to, and where its ranks hung."""

import pytest

from parity.launch.cause import cause_of, oom_kills
from parity.launch.stacks import Place, describe, last_place

# As torch words it, with another process's share and its own.
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.11 GiB"
    " of which 17.94 MiB is free. {others}Including non-PyTorch memory, this process has {own} memory in use."
)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("ValueError: heads 16 do not divide by 3", "crashed"),
        ("MemoryError", "out of memory"),
        ("std::bad_alloc", "out of memory"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory",
            "out of memory",
        ),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", "out of memory"),
        (FULL.format(others="", own="78.00 GiB"), "out of memory"),
        (FULL.format(others="Process 7 has 500.00 MiB memory in use. ", own="77.50 GiB"), "out of memory"),
        (FULL.format(others="Process 7 has 40.00 GiB memory in use. ", own="512.00 MiB"), "device busy"),
        ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "device busy"),
        ("OSError: [Errno 16] Device or resource busy: '/dev/davinci0'", "device busy"),
        ("RuntimeError: Timed out waiting 120000ms for recv operation to complete", "hung in a collective"),
        ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", "hung in a collective"),
        ("RuntimeError: Connection closed by peer [127.0.0.1]:40721", "crashed"),
        ("FileNotFoundError: no memory of this file", "crashed"),
    ],
)
def test_cause_of_what_was_said(said: str, cause: str) -> None:
    assert cause_of(said) == cause


def test_oom_kills__linux_counts_them() -> None:
    count = oom_kills()
    assert count is not None
    assert count >= 0


IN_COLLECTIVE = """\
step 4
Thread 0x00007f1b2a7fc640 (most recent call first):
  File "/usr/lib/python3.13/threading.py", line 363 in wait
  File "/usr/lib/python3.13/threading.py", line 1044 in _bootstrap

Current thread 0x00007f1b9a3f7740 (most recent call first):
  File "/venv/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "/venv/torch/distributed/distributed_c10d.py", line 3011 in all_reduce
  File "/venv/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/work/train.py", line 30 in train
"""
ELSEWHERE = """\
Current thread 0x00007f1b9a3f7740 (most recent call first):
  File "/work/data \x1b[31m.py", line 12 in next_batch
  File "/work/train.py", line 28 in train
said after the stack
"""


def test_last_place__the_collective_and_not_what_is_around_it() -> None:
    assert last_place(IN_COLLECTIVE) == Place("all_reduce", collective=True)


def test_last_place__a_later_stack_counts() -> None:
    found = last_place(IN_COLLECTIVE + ELSEWHERE.replace(" \x1b[31m", ""))
    assert found == Place("next_batch (data.py:12)", collective=False)


def test_last_place__function_and_line_of_what_is_no_collective() -> None:
    found = last_place("x\n" + ELSEWHERE.replace(" \x1b[31m", ""))
    assert found == Place("next_batch (data.py:12)", collective=False)


def test_last_place__a_thread_of_autograd_waits_in_a_hook() -> None:
    hook, current = IN_COLLECTIVE.replace("Current thread", "Thread"), ELSEWHERE
    assert last_place(hook + "\n" + current) == Place("all_reduce", collective=True)


def test_last_place__none() -> None:
    assert last_place("") is None
    assert last_place("Current thread 0x0 (most recent call first):\n  <no Python frame>\n") is None
    assert last_place('  File "/venv/torch/distributed/c10d.py", line 1 in all_reduce\n') is None


def test_describe__ranks_that_are_alike_are_told_once() -> None:
    waits, loads = Place("all_reduce", True), Place("next_batch (data.py:12)", False)
    places = {0: loads, 1: waits, 2: waits, 3: waits, 5: waits, 6: waits}
    assert describe(places, {0: 5, 1: 4, 2: 4, 3: 4, 5: 4}) == (
        "rank 6 in all_reduce, ranks 1-3, 5 in all_reduce after step 4,"
        " rank 0 in next_batch (data.py:12) after step 5"
    )
    assert describe({}, {}) == ""
