"""What a person sees while legs run, at terminals of every kind and in a log."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from parity.launch import (
    DevicesHeld,
    Event,
    Interrupted,
    LegEnd,
    LegEnding,
    LegFinished,
    LegProgress,
    LegStarted,
    Tick,
)
from parity.progress import show_progress

CURSOR = re.compile(r"\x1b\[\??\d*[A-HJKhl]")
COLOUR = re.compile(r"\x1b\[[\d;]*m")


class Terminal(io.StringIO):
    """A file that says it is a terminal, with a clock that stands still until it is moved."""

    def __init__(self, width: int = 80, height: int = 24, **environ: str) -> None:
        super().__init__()
        self.now = 100.0
        self.console = Console(
            file=self, width=width, height=height, highlight=False, _environ={"TERM": "xterm-256color", **environ}
        )

    def isatty(self) -> bool:
        return True

    def frame(self) -> list[str]:
        """The lines that were drawn last."""
        drawn = re.split(r"(?:\x1b\[2K|\x1b\[1A|\r)+", self.getvalue())[-1]
        return [line for line in COLOUR.sub("", CURSOR.sub("", drawn)).split("\n") if line.strip()]

    @contextmanager
    def watching(self, *legs: str, steps: int = 10) -> Iterator[Callable[[Event], None]]:
        with show_progress(self.console, dict.fromkeys(legs, "tp=2"), steps, lambda: self.now) as take:
            yield take


class Log(Terminal):
    """A file that is no terminal."""

    def isatty(self) -> bool:
        return False


def started(*names: str) -> list[Event]:
    return [LegStarted(name, 2, (), 29500) for name in names]


def ended(name: str, status: str = "finished", error: str | None = None, rank: int | None = None) -> LegFinished:
    return LegFinished(LegEnd(name, status, 0, 4.0, 8.0, rank, error))  # type: ignore[arg-type]


def test_a_line_tells_state_step_loss_rate_and_time_left() -> None:
    terminal = Terminal(120)
    with terminal.watching("tp1", "tp2", steps=21) as take:
        for event in started("tp1"):
            take(event)
        for step in range(11):
            terminal.now += 0.5
            take(LegProgress("tp1", step, 7.0 - step / 4))
        first, second = terminal.frame()
    assert first.split() == [
        "tp1",
        "tp=2",
        "running",
        "11/21",
        "━" * 20,
        "loss",
        "4.5",
        "2",
        "steps/s",
        "5.0",
        "s",
        "left",
    ]
    assert second.split() == ["tp2", "tp=2", "waiting", "–/21", "━" * 20]


def test_before_any_leg_runs_a_tick_shows_that_something_goes_on() -> None:
    terminal = Terminal()
    with terminal.watching("tp1", "tp2") as take:
        terminal.now += 9
        take(Tick())
        assert terminal.frame()[2:] == ["starting, 9.0 s"]
        take(started("tp1")[0])
        assert len(terminal.frame()) == 2


def test_which_devices_a_run_waits_for_and_whose_they_are_is_said_until_a_leg_has_them() -> None:
    said = "waiting for devices that another run of parity holds: 0 (process 41), 3"
    held = DevicesHeld({"0": 41, "3": None})
    terminal, log = Terminal(), Log()
    with terminal.watching("tp1") as take:
        take(held)
        assert terminal.frame()[1:] == [said]
        take(started("tp1")[0])
        assert len(terminal.frame()) == 1
    with log.watching("tp1") as take:
        take(held)
    assert log.getvalue().splitlines() == [said]


def test_a_tick_shows_the_time_of_a_leg_that_has_not_made_a_step() -> None:
    terminal = Terminal()
    with terminal.watching("tp1") as take:
        take(started("tp1")[0])
        terminal.now += 7
        take(Tick())
        (line,) = terminal.frame()
    assert "7.0 s" in line
    assert "–/10" in line


def test_steps_that_come_faster_than_a_screen_are_drawn_now_and_then() -> None:
    terminal = Terminal()
    with terminal.watching("tp1", steps=1000) as take:
        take(started("tp1")[0])
        before = len(terminal.getvalue())
        for step in range(1000):
            take(LegProgress("tp1", step, 1.0))
        assert len(terminal.getvalue()) == before
        take(ended("tp1"))
        assert "1000/1000" in terminal.frame()[0]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
@pytest.mark.parametrize("name", ["tp1", "a" * 64, "长名字的并行布局", "👩‍👩‍👧‍👦-family", "e\u0301" * 30])
def test_no_line_is_wider_than_the_terminal_and_each_says_state_and_step(width: int, name: str) -> None:
    terminal = Terminal(width)
    with terminal.watching(name, "other") as take:
        for event in started(name, "other"):
            take(event)
        for step in range(5):
            terminal.now += 0.5
            take(LegProgress(name, step, -1.23456789e-05))
        take(ended("other", "failed", "RuntimeError: 大きな誤り " * 20, 1))
        frame = terminal.frame()
    assert len(frame) == 2
    assert all(cell_len(line) <= width for line in frame)
    assert "running" in frame[0]
    assert "5/10" in frame[0]
    assert "failed" in frame[1]
    assert width < 40 or "rank 1 first" in frame[1]


def test_of_more_legs_than_lines_those_that_run_or_failed_are_shown_and_the_rest_is_counted() -> None:
    names = [f"leg-{at}" for at in range(40)]
    terminal = Terminal(80, 8)
    with terminal.watching(*names) as take:
        for event in started(*names[:20]):
            take(event)
        for name in names[:17]:
            take(ended(name))
        take(ended("leg-17", "timed out", "after 600 s"))
        frame = terminal.frame()
    assert len(frame) == 6
    assert [line.split()[0] for line in frame[:3]] == ["leg-17", "leg-18", "leg-19"]
    assert frame[-1] == "and 17 finished, 18 waiting"


@pytest.mark.parametrize("status", ["finished", "failed", "timed out", "interrupted", "not started"])
def test_how_a_leg_ended_stays_on_the_screen(status: str) -> None:
    terminal = Terminal(120)
    with terminal.watching("tp1") as take:
        take(started("tp1")[0])
        take(LegProgress("tp1", 3, float("nan")))
        take(LegEnding("tp1", "took more than 4 s"))
        assert "ending" in terminal.frame()[0]
        take(ended("tp1", status, "ValueError: x"))
        (line,) = terminal.frame()
    assert f" {status} " in line
    assert "4/10" in line
    assert "loss NaN" in line
    assert "in 4.0 s" in line
    assert line.endswith("ValueError: x")


def test_what_was_never_started_has_no_time() -> None:
    terminal = Terminal()
    with terminal.watching("tp1", "tp2") as take:
        take(started("tp1")[0])
        take(Interrupted(2))
        take(LegFinished(LegEnd("tp2", "not started")))
        assert terminal.frame()[1].split() == ["tp2", "tp=2", "not", "started", "–/10", "━" * 20]


def test_the_cursor_is_there_again_however_the_run_ends() -> None:
    terminal = Terminal()
    with suppress(KeyboardInterrupt), terminal.watching("tp1") as take:
        take(started("tp1")[0])
        raise KeyboardInterrupt
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_no_color_leaves_no_colour() -> None:
    terminal = Terminal(NO_COLOR="1")
    with terminal.watching("tp1") as take:
        take(started("tp1")[0])
        take(ended("tp1", "failed", "x"))
    codes = {code for found in COLOUR.findall(terminal.getvalue()) for code in found[2:-1].split(";")}
    assert codes <= {"0", "1", "2"}  # none, bold and dim


@pytest.mark.parametrize(
    "out", [Log(), Log(FORCE_COLOR="1"), Terminal(TERM="dumb")], ids=["log", "forced colour", "dumb"]
)
def test_where_no_cursor_moves_there_are_a_few_plain_lines(out: Terminal) -> None:
    with out.watching("tp1", steps=1000) as take:
        take(LegStarted("tp1", 2, ("0", "1"), 29500))
        for step in range(1000):
            out.now += 0.1
            take(LegProgress("tp1", step, 2.5))
            take(Tick())
        take(ended("tp1"))
    lines = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert lines[:3] == [
        "tp1: started, 2 ranks on GPU 0,1",
        "tp1: step 0 loss 2.5",
        "tp1: step 100 loss 2.5, 10 steps/s, 90.0 s left",
    ]
    assert lines[-1] == "tp1: finished in 4.0 s"
    assert len(lines) == 12


@pytest.mark.parametrize("steps", [1, 7, 19, 100])
def test_a_leg_that_makes_more_steps_than_it_should_fills_no_log(steps: int) -> None:
    log = Log()
    with log.watching("tp1", steps=steps) as take:
        for step in [-5, *range(1, 5000), 0, 10**300]:
            take(LegProgress("tp1", step, None))
    assert 1 <= len(log.getvalue().splitlines()) <= 11


HOSTILE = "\x1b[2J\x1b]0;x\x07[red]\r\n\u202e::error::\u200b"


@settings(max_examples=50, deadline=None)
@given(name=st.one_of(st.just(HOSTILE), st.text(min_size=1)), why=st.one_of(st.just(HOSTILE), st.text()))
def test_no_text_of_a_leg_moves_the_cursor_or_adds_a_line(name: str, why: str) -> None:
    for out in (Terminal(40), Log()):
        with out.watching(name) as take:
            take(started(name)[0])
            calm = out.getvalue()
            take(LegEnding(name, why))
            take(ended(name, "failed", why, 0))
            told = out.getvalue()[len(calm) :]
        assert "\x1b]" not in told
        assert "\x1b[2J" not in told
        assert "\x07" not in told
        if isinstance(out, Log):
            assert told.count("\n") == 2
        else:
            assert len(out.frame()) == 1
