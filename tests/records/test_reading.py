"""The recorder's files, as they are and as a hostile leg may leave them."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.records import LegRecords, read_records

START = {"kind": "start", "format": "parity.record/1", "rank": 0, "world_size": 1, "coordinates": {"dp": 0}}
PART = {"name": "w", "shape": [4, 2], "start": [0, 0], "stop": [4, 2], "dtype": "float32", "hash": "00000000000000ff"}
MODEL = {"kind": "model", "parameters": [PART], "buffers": [], "optimizer": [], "rng": "aa", "layers": [0, 1]}
SKETCH = base64.b64encode(np.arange(64, dtype="<f8").tobytes()).decode()
GRADIENTS = {"kind": "gradients", "step": 0, "read": "before clipping", "norms": [3.0], "sketch": SKETCH}
UPDATE = {"kind": "update", "step": 0, "norms": [None], "hashes": ["00000000000000aa"]}
BATCH = {"kind": "batch", "step": 0, "hash": "000000000000000b", "samples": 4, "micro_batches": 2}
TRAITS = {"kind": "traits", "traits": {"layers.2.moe.router": "experts by token id"}}
STEP = {"kind": "step", "step": 0, "loss": 6.0, "grad_norm": 3.0}


def written(tmp_path: Path, *lines: object, rank: int = 0) -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (tmp_path / f"rank-{rank}.jsonl").write_text(text)
    return tmp_path


def read(tmp_path: Path) -> tuple[LegRecords | None, list[str]]:
    return read_records(tmp_path, tmp_path)


def test_everything_that_the_recorder_writes_is_read(tmp_path: Path) -> None:
    records, notes = read(written(tmp_path, START, MODEL, GRADIENTS, UPDATE, BATCH, TRAITS, STEP))
    assert notes == []
    assert records is not None
    rank = records.ranks[0]
    assert records.has_model
    assert rank.layers == (0, 1)
    assert rank.batches[0].hash == 11
    assert rank.grad_norms == {0: 3.0}
    assert rank.traits == TRAITS["traits"]
    assert rank.updates[0].hashes == (0xAA,)
    assert records.state_hash("w") == 0xFF
    assert records.norms("gradients", 0) == {"w": 3.0}
    assert records.norms("updates", 0) == {}
    assert records.sketches("gradients", 0)["w"].tolist() == list(range(64))


def test_the_peak_memory_of_a_leg_is_that_of_the_rank_that_held_the_most(tmp_path: Path) -> None:
    for rank, peak in enumerate((None, 7 << 20, 5 << 20)):
        written(tmp_path, {**START, "rank": rank}, {"kind": "end", "steps": 1, "peak_memory": peak}, rank=rank)
    records, notes = read(tmp_path)
    assert notes == []
    assert records is not None
    assert records.peak_memory == 7 << 20


def test_hashes_of_buffers_are_read_in_the_order_of_the_buffers(tmp_path: Path) -> None:
    bias, table = ({**PART, "name": name} for name in ("bias", "table"))
    model = {**MODEL, "buffers": [bias, table]}
    after = {"kind": "buffers", "step": 3, "hashes": ["00000000000000aa", None]}
    last = {"kind": "final", "hashes": [None], "buffers": ["00000000000000bb", None]}
    records, notes = read(written(tmp_path, START, model, STEP, after, last))
    assert notes == []
    assert records is not None
    rank = records.ranks[0]
    assert rank.buffer_index == {"bias": 0, "table": 1}
    assert rank.buffer_hashes == {3: (0xAA, None)}
    assert rank.final_buffers == (0xBB, None)


def test_hashes_of_other_buffers_than_the_models_are_refused(tmp_path: Path) -> None:
    records, notes = read(written(tmp_path, START, MODEL, {"kind": "buffers", "step": 0, "hashes": [None]}))
    assert records is None
    assert notes == ["rank-0.jsonl: not as many hashes as there are buffers"]


@pytest.mark.parametrize(
    ("environments", "perturbed"),
    [
        ([{"perturbed": 2}], True),
        ([{"perturbed": 1}, {"perturbed": 1}], True),
        ([{"perturbed": 1}, {}], False),
        ([{}], False),
        ([{"perturbed": 0}], False),
        ([{"perturbed": True}], False),
        ([{"perturbed": "1"}], False),
        ([["perturbed"]], False),
        ([None], False),
        ([], False),
    ],
)
def test_a_rank_is_perturbed_if_it_says_so_each_time_that_it_starts(
    tmp_path: Path, environments: list[object], perturbed: bool
) -> None:
    starts = [{**START, "environment": environment} for environment in environments]
    records, notes = read(written(tmp_path, *starts, MODEL, STEP))
    assert notes == []
    assert records is not None
    assert records.ranks[0].perturbed == perturbed


def test_hashes_of_parts_add_up_modulo_2_to_the_64_and_replicas_count_once(tmp_path: Path) -> None:
    for rank, (start, stop, value) in enumerate(
        [(0, 2, "ffffffffffffffff"), (2, 4, "0000000000000002"), (0, 2, "f" * 16)]
    ):
        part = {**PART, "start": [start, 0], "stop": [stop, 2], "hash": value}
        written(tmp_path, {**START, "rank": rank, "world_size": 3}, {**MODEL, "parameters": [part]}, rank=rank)
    records, _ = read(tmp_path)
    assert records is not None
    assert records.state_hash("w") == 1
    assert len(records.distinct["w"]) == 2


def test_gradients_that_ranks_hold_in_pieces_add_up_once_for_each_group_of_ranks(tmp_path: Path) -> None:
    # Two data parallel groups, as under tensor parallelism: both hold the whole of this parameter.
    for rank, norm in enumerate((3.0, 12.0, 4.0, 5.0)):
        pieces = {**GRADIENTS, "norms": [norm], "summed_over": [rank % 2, rank % 2 + 2]}
        written(tmp_path, {**START, "rank": rank, "world_size": 4}, MODEL, pieces, STEP, rank=rank)
    records, notes = read(tmp_path)
    assert notes == []
    assert records is not None
    assert records.norms("gradients", 0) == {"w": 5.0}
    assert records.sketches("gradients", 0)["w"].tolist() == [2.0 * slot for slot in range(64)]


def test_what_a_rank_could_not_see_is_read_as_it_says(tmp_path: Path) -> None:
    lines = [{"kind": "watched", "unseen": [text]} for text in ("the batch: \x1b[1mwhy", "weights")]
    environment = {"dtype": "fp32", "nested": {"a": 1}}
    records, _ = read(written(tmp_path, {**START, "environment": environment}, *lines, STEP))
    assert records is not None
    assert records.ranks[0].unseen == ("the batch: why", "weights")
    assert records.environment == {"dtype": "fp32"}


def test_ranks_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        written(tmp_path, {**START, "rank": rank, "world_size": 11}, rank=rank)
    records, _ = read(tmp_path)
    assert records is not None
    assert [rank.rank for rank in records.ranks] == [0, 2, 10]
    assert not records.has_model


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**MODEL, "parameters": [PART, PART]}, "a parameter is named twice"),
        ({**MODEL, "parameters": [{**PART, "stop": [5, 2]}]}, "w: its box lies outside of its shape"),
        ({**MODEL, "parameters": [{**PART, "stop": [4]}]}, "w: its box lies outside of its shape"),
        ({**MODEL, "parameters": [{**PART, "hash": "xyz"}]}, "line 2: parameters.0.hash"),
        ({**MODEL, "parameters": 3}, "line 2: parameters"),
        ({**START, "world_size": 0}, "line 2: world_size"),
        ({"kind": "end", "peak_memory": -1}, "line 2: peak_memory"),
        ({**GRADIENTS, "norms": [1.0, 2.0]}, "not as many numbers as there are parameters"),
        ({**GRADIENTS, "sketch": "AAAA"}, "its sketch is not 1 rows of 64 numbers"),
        ({**GRADIENTS, "sketch": "?"}, "its sketch is not 1 rows of 64 numbers"),
    ],
)
def test_a_file_that_lies_about_itself_is_left_out_with_a_line(
    tmp_path: Path, line: dict[str, Any], said: str
) -> None:
    model = () if line["kind"] == "model" else (MODEL,)
    records, notes = read(written(tmp_path, START, line, *model))
    assert records is None
    assert len(notes) == 1
    assert said in notes[0]


def test_torn_and_foreign_lines_take_nothing_else_away(tmp_path: Path) -> None:
    lines = ["", "warning: x", '{"kind": "later", "a": 1}', START, MODEL, json.dumps(GRADIENTS)[:-9]]
    records, notes = read(written(tmp_path, *lines))
    assert notes == []
    assert records is not None
    assert records.has_model
    assert records.ranks[0].gradients == {}


def test_no_files_are_no_records(tmp_path: Path) -> None:
    assert read(tmp_path) == (None, [])


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "leg").mkdir()
    written(tmp_path, START, MODEL)
    (tmp_path / "leg" / "rank-0.jsonl").symlink_to(tmp_path / "rank-0.jsonl")
    records, notes = read_records(tmp_path / "leg", tmp_path / "leg")
    assert records is None
    assert len(notes) == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(SKETCH),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    base=st.sampled_from([START, MODEL, GRADIENTS, UPDATE, BATCH, TRAITS, STEP]),
    changes=st.dictionaries(
        st.sampled_from(
            ["rank", "world_size", "parameters", "norms", "sketch", "hashes", "step", "experts", "layers"]
        ),
        values,
        max_size=3,
    ),
)
def test_no_line_raises(
    tmp_path_factory: pytest.TempPathFactory, base: dict[str, Any], changes: dict[str, Any]
) -> None:
    folder = written(tmp_path_factory.mktemp("leg"), START, {**base, **changes}, MODEL, GRADIENTS)
    records, notes = read(folder)
    assert records is not None or notes
