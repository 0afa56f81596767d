import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parity.curves import LegCurves, curve, formats, read
from parity.errors import UsageError
from tests.curves.conftest import Write

LOGS = Path(__file__).parents[1] / "data" / "logs"
OWN = {"grad_norm": "grad_norm_own"}

# Steps, first loss, last loss and last gradient norm, as the files have them.
REAL: list[tuple[str, int, float, float, float]] = [
    ("deepspeed/tp1_z0.jsonl", 50, 6.283836841583252, 6.305881500244141, 0.9776608703870466),
    ("deepspeed/tp3_z0.jsonl", 50, 6.283836841583252, 6.305880069732666, 0.9776610152651876),
    ("nemo_automodel/v4f_base/training.jsonl", 20, 5.999796390533447, 4.425273895263672, 0.9483704852829967),
    ("nemo_automodel/qf_pp2/training.jsonl", 20, 5.573814392089844, 5.172077178955078, 2.666406899549786),
    ("hf_transformers/tp_qwen3_2.jsonl", 20, 5.555248737335205, 5.559292793273926, 0.9091068506240845),
    ("megatron_core/m1.jsonl", 20, 5.539804458618164, 5.571462631225586, 0.7924973368644714),
    ("megatron_core/halfloss/pp2.jsonl", 20, 2.769902229309082, 2.785731315612793, 0.7924973368644714),
    ("pytorch/base.jsonl", 40, 4.019568920135498, 3.9827139377593994, 0.6080707311630249),
]

STEPS = {"deepspeed": 50, "pytorch": 40, "recorded": 40}


@pytest.mark.parametrize(("name", "steps", "first", "last", "norm"), REAL)
def test_read__real_logs(name: str, steps: int, first: float, last: float, norm: float) -> None:
    leg = read(LOGS / name, keys=OWN if "deepspeed" in name else None)
    assert leg.curves["loss"].steps.tolist() == list(range(steps))
    assert leg.curves["loss"].values[[0, -1]].tolist() == [first, last]
    assert leg.curves["grad_norm"].values[-1] == norm


@pytest.mark.parametrize("path", sorted(LOGS.rglob("*.jsonl")), ids=lambda path: str(path.relative_to(LOGS)))
def test_read__every_real_log_is_whole(path: Path) -> None:
    leg = read(path)
    steps = next((steps for part, steps in STEPS.items() if part in path.relative_to(LOGS).parts), 20)
    expected = {"loss"} if "deepspeed" in path.parts else {"loss", "grad_norm"}
    assert expected == leg.curves.keys() - {"lr"}
    for metric, one in leg.curves.items():
        assert one.steps.tolist() == list(range(steps))
        assert one.missing == ()
        assert one.conflicts == ()
        # A loss computed in bf16 has few digits, and they are all there.
        assert one.resolution.significant >= (7 if "bf16" in path.stem and metric == "loss" else 15)


def test_read__formats_are_found_by_their_modules() -> None:
    assert {"jsonl", "megatron", "recorder"} <= formats().keys()
    assert list(formats()) == sorted(formats())


def test_read__unknown_format(write: Write) -> None:
    with pytest.raises(
        UsageError,
        match=r"^format 'recoder' is unknown, did you mean recorder\?; the formats are: .*jsonl, .*recorder",
    ):
        read(write("x"), format="recoder")


def test_read__a_format_in_capitals_is_known_by_its_name(write: Write) -> None:
    with pytest.raises(UsageError, match=r"^format 'CSV' is unknown, did you mean csv\?"):
        read(write("x"), format="CSV")


def test_read__no_format_matches(write: Write) -> None:
    with pytest.raises(UsageError, match=r"no known format \(.*jsonl, .*recorder.*\); it begins 'Traceback"):
        read(write("Traceback (most recent call last):\n"))


MEGATRON = " iteration 3/ 9 | elapsed time per iteration (ms): 1.5 | lm loss: 6.612992E+00 | grad norm: 111.173 |\n"


def test_read__a_printed_record_after_a_long_banner_is_found(write: Write) -> None:
    leg = read(write("building indices\n" * 40_000 + MEGATRON))
    assert leg.format == "megatron"
    assert leg.notes[0].text == "megatron: 1 line matched"
    assert leg.curves["grad_norm"].values.tolist() == [111.173]


@pytest.mark.parametrize("begins", ['{"hidden_size": 64, "name": "tiny"}\n', '{"step": 5}\n', "step,host\n3,a\n"])
def test_read__a_configuration_before_printed_records_is_not_the_log(write: Write, begins: str) -> None:
    leg = read(write(begins + "building indices\n" * 40_000 + MEGATRON))
    assert leg.format == "megatron"
    assert leg.notes[0].text == "megatron: 1 line matched"
    assert leg.curves["grad_norm"].values.tolist() == [111.173]


def test_read__json_lines_that_are_asked_about_do_not_give_way_to_printed_records(write: Write) -> None:
    text = '{"step": 1, "loss": 1.5, "train_loss": 2.5}\n' + "building indices\n" * 40_000 + MEGATRON
    with pytest.raises(UsageError, match="could each be the loss: say which"):
        read(write(text))


def test_read__an_explicit_format_wins(write: Write) -> None:
    line = '{"kind": "start", "format": "parity.record/1"}\n{"kind": "step", "step": 0, "loss": 1.5}\n'
    assert read(write(line)).format == "recorder"
    assert read(write(line), format="jsonl").format == "jsonl"


class Other:
    """A format that claims whatever the recorder claims."""

    name = "other"
    generic = False

    def matches(self, head: str) -> str | None:
        return "it says so"

    def read(self, lines: Iterator[str], source: str, keys: object) -> LegCurves:
        raise NotImplementedError


def test_read__two_formats_match(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**formats(), "other": Other()}
    monkeypatch.setattr("parity.curves.formats", lambda: known)
    with pytest.raises(UsageError, match=r"could be recorder \(the first line .*\); other \(it says so\): say which"):
        read(write('{"kind": "start", "format": "parity.record/1"}\n'))


def test_read__notes_of_opening_come_too(write: Write) -> None:
    leg = read(write(b'{"step": 0, "loss": 1.0}\n\xff\n'))
    assert leg.notes[1].text == "some bytes are not UTF-8 and were replaced"


def test_read__never_imports_torch_or_pydantic() -> None:
    code = "import sys, parity.curves as c; c.formats(); print({'torch', 'pydantic', 'pickle'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in done.stdout
    assert "pydantic" not in done.stdout


def attempt(path: Path, **options: Any) -> None:
    try:
        leg = read(path, **options)
    except UsageError as error:
        lines = error.lines
    else:
        lines = ()
    assert all(line and line.isprintable() for line in lines)
    if lines:
        return
    assert len(leg.notes) < 40
    for one in leg.curves.values():
        assert one.steps.dtype == np.int64
        assert one.steps.size == one.values.size > 0
        assert np.all(np.diff(one.steps) > 0)
        assert not set(one.missing) & set(one.steps.tolist())


ANY_FORMAT = st.sampled_from([None, "jsonl", "recorder"])
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

FRAGMENTS = st.sampled_from(
    [
        *(b'{"step": ', b'{"kind": "step", "step": ', b'"loss": ', b'"kind": "start", "format": "parity.record/1"'),
        *(b"}\n", b", ", b"{", b"[", b"NaN", b"1e999", b"null", b'"x"', b"1", b"-1", b"9" * 30, b"\r", b"\0"),
        *(b"\xff\xfe", b"\\ud800", b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
        *(b'{"step": 1, "loss": 2}\n', b'{"step": 1, "loss": 3, "loss": "4"}\n'),
    ]
)


@SHARED
@given(data=st.binary(max_size=200) | st.lists(FRAGMENTS, max_size=20).map(b"".join), format_name=ANY_FORMAT)
def test_read__any_bytes_give_curves_or_one_line(write: Write, data: bytes, format_name: str | None) -> None:
    attempt(write(data), format=format_name)


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just({"loss": 1.0})
ANY_RECORD = st.dictionaries(st.sampled_from(["step", "loss", "grad_norm", "lr", "kind", "type", "x"]), VALUE)


@SHARED
@given(records=st.lists(ANY_RECORD, max_size=8), format_name=ANY_FORMAT)
def test_read__any_records_give_curves_or_one_line(
    write: Write, records: list[dict[str, object]], format_name: str | None
) -> None:
    attempt(write("\n".join(map(json.dumps, records))), format=format_name)


RECORDS = st.dictionaries(st.integers(0, 2**53), st.tuples(st.floats(), st.floats()), min_size=1, max_size=20)


@SHARED
@given(RECORDS)
def test_read__values_come_back_bit_for_bit(write: Write, records: dict[int, tuple[float, float]]) -> None:
    lines = [json.dumps({"step": s, "loss": loss, "grad_norm": norm}) for s, (loss, norm) in records.items()]
    leg = read(write("\n".join(lines)))
    steps = sorted(records)
    for at, metric in enumerate(("loss", "grad_norm")):
        assert leg.curves[metric].steps.tolist() == steps
        written = np.array([records[step][at] for step in steps])
        nan = np.isnan(written)
        assert np.array_equal(np.isnan(leg.curves[metric].values), nan)
        assert leg.curves[metric].values[~nan].tobytes() == written[~nan].tobytes()


@SHARED
@given(st.integers(2, 30), st.data())
def test_read__a_torn_tail_costs_only_the_last_record(write: Write, count: int, data: st.DataObject) -> None:
    lines = [json.dumps({"step": step, "loss": step / 7}) for step in range(count)]
    cut = data.draw(st.integers(1, len(lines[-1]) - 1))
    leg = read(write("\n".join(lines)[:-cut]))
    assert leg.curves["loss"].values.tolist() == [step / 7 for step in range(count - 1)]
    assert any("torn" in note.text for note in leg.notes)


def test_resolution_at__holds_the_coarser_of_both() -> None:
    spacing = curve.Resolution(decimals=4, significant=6).at(np.array([0.5, 123.4, 0.0, np.nan]))
    assert spacing.tolist() == pytest.approx([1e-4, 1e-3, 1e-4, 0.0])
