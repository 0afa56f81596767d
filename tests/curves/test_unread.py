import pytest

from parity.curves.unread import unread

TRACE = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"x\n{TRACE}  File 'a', line 1\n    f()\nValueError: no\n\n{TRACE}  File\nRuntimeError: late\n",
            "ValueError: no",
        ),
        (
            f"[rank1]: {TRACE}[rank1]:   File 'a'\n[rank1]: torch.cuda.OutOfMemoryError: CUDA\n",
            "torch.cuda.OutOfMemory",
        ),
        (f"[default0]:{TRACE}[default0]:KeyboardInterrupt\n", "KeyboardInterrupt"),
    ],
)
def test_unread__a_run_that_broke_off(text: str, says: str) -> None:
    told = unread(text, ["a", "b"])
    assert told.startswith(f"no training record in any known format: the run broke off with {says}")


@pytest.mark.parametrize(
    "text", ["epoch 1 done\n", f"{TRACE}  File 'a', line 1\n", f"{TRACE}indeed: Errors are good\n"]
)
def test_unread__says_what_to_do(text: str) -> None:
    told = unread(text, ["a", "b"])
    assert told.startswith("no known format (a, b); it begins '")
    assert told.endswith(r"such as 'step (?P<step>\d+).*loss (?P<loss>\S+)'")
