"""The grammar of a command, for any text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from entrypoint.gate import Refusal, parse

SHAS = st.text("0123456789abcdef", min_size=7, max_size=40)
LINES = st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=30), max_size=5)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def is_command(line: str) -> bool:
    return re.match(r"/ok to test([ \t]|$)", line.replace("\n", "")) is not None and "\n" not in line


@given(SHAS, LINES, LINES, ENDS, st.sampled_from(["", " ", "\t  "]), st.booleans())
def test_a_command_on_a_line_of_its_own_is_found(
    sha: str, before: list[str], after: list[str], end: str, blanks: str, upper: bool
) -> None:
    given_sha = sha.upper() if upper else sha
    others = [line for line in before + after if is_command(line)]
    body = end.join([*before, f"/ok to test {given_sha}{blanks}", *after])
    if not others:
        assert parse(body) == sha


@given(st.text(st.sampled_from("/ok to test\r\n\tabcdef0123456789> `*"), max_size=120))
def test_nothing_is_approved_but_by_a_whole_line(body: str) -> None:
    try:
        sha = parse(body)
    except Refusal:
        return
    lines = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    commands = [line for line in lines if line == "/ok to test" or line.startswith(("/ok to test ", "/ok to test\t"))]
    assert len(commands) == (sha is not None)
    if sha is not None:
        assert commands[0].split() == ["/ok", "to", "test", sha]
        assert 7 <= len(sha) <= 40


@given(st.text(max_size=60), SHAS)
def test_what_stands_before_a_command_on_its_line_disarms_it(before: str, sha: str) -> None:
    if before and not before.endswith(("\r", "\n")):
        assert parse(f"x{before}/ok to test {sha}".replace("\n", "").replace("\r", "")) is None
