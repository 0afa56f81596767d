"""The grammar of a command, for any text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from entrypoint.gate import Refusal, parse

SHAS = st.text("0123456789abcdef", min_size=7, max_size=40)
LINES = st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=30), max_size=5)
BLANK = st.lists(st.text(" \t", max_size=3), max_size=3)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@given(SHAS, BLANK, LINES, ENDS, st.sampled_from(["", " ", "\t  "]), st.booleans())
def test_a_command_on_the_first_line_is_found(
    sha: str, before: list[str], after: list[str], end: str, blanks: str, upper: bool
) -> None:
    given_sha = sha.upper() if upper else sha
    body = end.join([*before, f"/ok to test {given_sha}{blanks}", *after])
    if not any("/ok" in line.lower() for line in after):
        assert parse(body) == sha


@given(st.text(st.sampled_from("/ok to test\r\n\tabcdef0123456789> `*<!-\u00a0"), max_size=120))
def test_nothing_is_approved_but_by_a_whole_first_line(body: str) -> None:
    held_to_its_first_line(body)


@given(LINES, SHAS, LINES)
def test_nothing_is_approved_by_a_later_line(before: list[str], sha: str, after: list[str]) -> None:
    held_to_its_first_line("\n".join([*before, f"/ok to test {sha}", *after]))


def held_to_its_first_line(body: str) -> None:
    try:
        sha = parse(body)
    except Refusal:
        return
    if sha is not None:
        lines = body.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        first = next(line for line in lines if line.strip(" \t"))
        assert re.fullmatch(r"/ok to test[ \t]+[0-9A-Fa-f]{7,40}[ \t]*", first)
        assert first.split()[3].lower() == sha


@given(st.text(max_size=60), SHAS)
def test_what_stands_before_a_command_on_its_line_disarms_it(before: str, sha: str) -> None:
    if before and not before.endswith(("\r", "\n")):
        assert parse(f"x{before}/ok to test {sha}".replace("\n", "").replace("\r", "")) is None
