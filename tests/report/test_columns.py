"""Tables that fit the terminal."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from parity.report.columns import Columns

CELLS = st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=12)


def shown(table: Columns, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def made() -> Columns:
    table = Columns("parameter", "group", "gap", "allowed", "ratio", left=2, spare=("group",))
    table.add("layers.0.q", "attention", "0.5", "0.001", "–")
    table.add("embed", "embeddings", "1.25e-06", "0.001", "–")
    return table


def test_columns_of_nothing_are_left_out_and_numbers_stand_to_the_right() -> None:
    assert shown(made(), 80) == [
        "parameter   group            gap  allowed",
        "layers.0.q  attention        0.5    0.001",
        "embed       embeddings  1.25e-06    0.001",
    ]


def test_columns_that_are_spare_go_first_then_the_last_and_a_line_says_which() -> None:
    assert shown(made(), 40)[0::3] == ["parameter        gap  allowed", "a wider terminal also shows: group"]
    assert shown(made(), 22)[0] == "parameter        gap"
    assert shown(made(), 5)[0] == "para…"


def test_text_is_no_markup() -> None:
    table = Columns("a")
    table.add("[red]x[/red] :tada:")
    assert shown(table, 40) == ["a", "[red]x[/red] :tada:"]


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4), width=st.integers(1, 60))
def test_no_row_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    table = Columns("first", "second", "third")
    for row in rows:
        table.add(*row)
    assert all(cell_len(line) <= width for line in shown(table, width))
