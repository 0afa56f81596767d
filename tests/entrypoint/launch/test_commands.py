"""Workflow commands: written as the runner reads them, and none by what others print."""

import io
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint import commands
from tests.entrypoint.launch.bench import ROOT


def is_command(line: str) -> bool:
    """What actions/runner takes for a command: `::` after white space at a line's start, `##[` anywhere in it."""
    return any(part.lstrip().startswith("::") or "##[" in part for part in re.split(r"[\r\n]", line))


def test_escape_data_and_property() -> None:
    assert commands.escape_data("50%\r\n a:b,c") == "50%25%0D%0A a:b,c"
    assert commands.escape_property("50%\r\n a:b,c") == "50%25%0D%0A a%3Ab%2Cc"


def test_error_leaves_out_empty_properties() -> None:
    stream = io.StringIO()
    commands.error("two\nlines", stream=stream, title="a, b", file="x.yml", line=3, col=None)
    assert stream.getvalue() == "::error title=a%2C b,file=x.yml,line=3::two%0Alines\n"


def test_group_ends_though_the_block_fails() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="no"), commands.group("legs", stream=stream):
        raise ValueError("no")
    assert stream.getvalue() == "::group::legs\n::endgroup::\n"


def test_stop_commands_ends_with_a_new_word_each_time() -> None:
    stream = io.StringIO()
    for _ in range(2):
        with commands.stop_commands(stream=stream):
            print("::error::not one", file=stream)
    first, second = re.findall(r"::stop-commands::(\w{32})\n::error::not one\n::\1::\n", stream.getvalue())
    assert first != second


@pytest.mark.parametrize(
    "line",
    ["::error::x", "  ::set-output name=a::b", "a\r::error::x", ":::error::x", "::::", "##[error]x", "a ###[group]b"],
)
def test_defuse_breaks_every_command(line: str) -> None:
    assert is_command(line)
    assert not is_command(commands.defuse(line))
    assert commands.defuse(line).replace("\u200b", "") == line


@given(st.text(alphabet=":#[]\r\n\t\u200bae ", max_size=30))
def test_defuse_leaves_no_command(text: str) -> None:
    assert not is_command(commands.defuse(text))


def test_importing_it_needs_nothing_but_the_standard_library() -> None:
    code = "import entrypoint.commands, sys; sys.exit(bool({'pydantic', 'parity', 'click'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
