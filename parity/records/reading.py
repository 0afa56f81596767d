"""Read the recorder's files of a leg: untrusted lines to checked records."""

import base64
import binascii
import json
import math
import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parity.curves import Limits
from parity.curves.notes import Notes
from parity.curves.opening import open_lines
from parity.errors import UsageError
from parity.plain import plain
from parity.records.record import SLOTS, Batch, Fingerprints, LegRecords, OptimizerGroup, Part, RankRecord

__all__ = ["LINE_LIMIT", "SIZE_LIMIT", "read_records"]

# A model line of ten thousand parameters has about 3 MB, its sketches about 7.
LINE_LIMIT = 64 << 20
# What one file of a run may hold; whoever publishes reads what strangers wrote.
SIZE_LIMIT = 1 << 30
_MOST_RANKS = 4096

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Sizes = Annotated[list[Annotated[int, Field(ge=0, lt=1 << 62)]], Field(max_length=16)]


class _Line(BaseModel):
    """Lines may hold more than this version knows."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)


class _Part(_Line):
    name: str = Field(max_length=1000)
    shape: Sizes
    start: Sizes
    stop: Sizes
    dtype: str = Field(max_length=40)
    split: dict[int, str] = {}
    trainable: bool = True
    hash: Hash


class _Group(_Line):
    model_config = ConfigDict(extra="allow")
    parameters: list[str] = []


class _Optimizer(_Line):
    name: str = Field(alias="class", default="")
    groups: list[_Group] = []
    state_step: float | None = None


class _Start(_Line):
    rank: int = Field(ge=0)
    world_size: int = Field(ge=1)
    coordinates: dict[str, int] | None = None
    run_id: str | None = None
    leg: str | None = None
    environment: Any = None

    @property
    def perturbed(self) -> bool:
        told = self.environment.get("perturbed") if isinstance(self.environment, dict) else None
        return type(told) is int and told >= 1


class _Model(_Line):
    parameters: list[_Part]
    buffers: list[_Part] = []
    optimizer: list[_Optimizer] | None = None
    rng: str | None = None
    layers: list[int] | None = None
    experts: dict[str, list[int]] | None = None


class _Taken(_Line):
    step: int = Field(ge=0)
    norms: list[float | None]
    sketch: str | None = None
    read: str = ""
    estimated: bool = False
    hashes: list[Hash | None] | None = None
    summed_over: Annotated[list[int], Field(max_length=_MOST_RANKS)] = []


class _Batch(_Line):
    step: int = Field(ge=0)
    hash: Hash
    samples: int = Field(ge=0)
    micro_batches: int | None = None


class _Step(_Line):
    step: int = Field(ge=0)
    loss: float | None = None
    grad_norm: float | None = None


class _Buffers(_Line):
    step: int = Field(ge=0)
    hashes: list[Hash | None]


class _Final(_Line):
    hashes: list[Hash | None]
    buffers: list[Hash | None] = []


class _Watched(_Line):
    unseen: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=100)] = []


class _Traits(_Line):
    traits: dict[Annotated[str, Field(max_length=1000)], Annotated[str, Field(max_length=200)]]


class _End(_Line):
    peak_memory: int | None = Field(default=None, ge=0, lt=1 << 63)


_KINDS: dict[str, type[_Line]] = {
    "start": _Start,
    "model": _Model,
    "gradients": _Taken,
    "update": _Taken,
    "batch": _Batch,
    "step": _Step,
    "traits": _Traits,
    "watched": _Watched,
    "buffers": _Buffers,
    "final": _Final,
    "end": _End,
}


def read_records(folder: Path, within: Path) -> tuple[LegRecords | None, list[str]]:
    """The records of every rank in a leg's folder.

    Args:
        folder: holds `rank-<r>.jsonl`.
        within: the run directory; a file that lies outside of it, by a link, is refused.

    Returns:
        The records, or None if no rank left any; and what was odd, a line each. A file that cannot be read as
        records is left out with such a line, so that the checks that miss it do not run.
    """
    paths = sorted(folder.glob("rank-*.jsonl"), key=lambda path: int(re.sub(r"\D", "", path.stem) or 0))
    ranks, notes = [], []
    for path in paths[:_MOST_RANKS]:
        try:
            ranks.append(_rank(path, within))
        except UsageError as error:
            notes.append(str(error))
    return (LegRecords(tuple(ranks)) if ranks else None), notes


def _rank(path: Path, within: Path) -> RankRecord:
    lines: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    with open_lines(path, Notes(), limits=Limits(size=SIZE_LIMIT, line=LINE_LIMIT), within=within) as opened:
        for number, line in enumerate(opened.lines(), 1):
            kind = _kind(line)
            if kind is None:
                continue
            try:
                lines[kind].append(_KINDS[kind].model_validate_json(line))
            except ValidationError as error:
                first = error.errors()[0]
                if first["type"] == "json_invalid":
                    continue  # a torn line; what it would have said is missing, and checks say so
                where = ".".join(map(str, first["loc"]))
                raise UsageError(f"{path.name}: line {number}: {plain(where)}: {plain(first['msg'])}") from None
            except RecursionError:
                raise UsageError(f"{path.name}: line {number}: nested too deeply") from None
    return _record(path.name, lines)


def _kind(line: str) -> str | None:
    """The kind of a line, from its first characters, which is where the recorder writes it."""
    found = re.match(r'\s*\{\s*"kind"\s*:\s*"(\w{1,20})"', line)
    return found[1] if found and found[1] in _KINDS else None


def _record(source: str, lines: dict[str, list[Any]]) -> RankRecord:
    start: _Start = lines["start"][-1] if lines["start"] else _Start(rank=0, world_size=1)
    model: _Model | None = lines["model"][-1] if lines["model"] else None
    parameters = tuple(_part(source, part) for part in model.parameters) if model else ()
    buffers = tuple(_part(source, part) for part in model.buffers) if model else ()
    if len({part.name for part in parameters}) != len(parameters):
        raise UsageError(f"{source}: a parameter is named twice")
    return RankRecord(
        rank=start.rank,
        world_size=start.world_size,
        coordinates=start.coordinates or {},
        parameters=parameters,
        buffers=buffers,
        optimizer=tuple(_groups(model.optimizer or [])) if model else (),
        rng=(model.rng or "") if model else "",
        layers=tuple(model.layers) if model and model.layers is not None else None,
        experts={name: tuple(ids) for name, ids in model.experts.items()} if model and model.experts else None,
        gradients={one.step: _fingerprints(source, one, len(parameters)) for one in lines["gradients"]},
        updates={one.step: _fingerprints(source, one, len(parameters)) for one in lines["update"]},
        batches={one.step: Batch(int(one.hash, 16), one.samples, one.micro_batches) for one in lines["batch"]},
        losses={one.step: one.loss for one in lines["step"]},
        buffer_hashes={one.step: _hashes(source, one.hashes, buffers, "buffers") for one in lines["buffers"]},
        final=_hashes(source, lines["final"][-1].hashes, parameters, "parameters") if lines["final"] else (),
        final_buffers=_hashes(source, final, buffers, "buffers") if (final := _final_buffers(lines)) else (),
        ended=bool(lines["end"]),
        peak_memory=lines["end"][-1].peak_memory if lines["end"] else None,
        run_id=start.run_id,
        leg=start.leg,
        grad_norms={one.step: one.grad_norm for one in lines["step"] if one.grad_norm is not None},
        traits={name: text for one in lines["traits"] for name, text in one.traits.items()},
        has_model=model is not None,
        perturbed=bool(lines["start"]) and all(one.perturbed for one in lines["start"]),
        environment=_flat(start.environment),
        unseen=tuple(plain(one, 1000) for some in lines["watched"] for one in some.unseen),
    )


def _flat(environment: Any) -> dict[str, object]:
    """What an environment says in words and numbers."""
    given = environment.items() if isinstance(environment, dict) else ()
    return {name: value for name, value in given if value is None or isinstance(value, (str, int, float))}


def _final_buffers(lines: dict[str, list[Any]]) -> list[str | None]:
    final: list[_Final] = lines["final"]
    return final[-1].buffers if final else []


def _hashes(source: str, hashes: list[str | None], parts: tuple[Part, ...], what: str) -> tuple[int | None, ...]:
    if len(hashes) != len(parts):
        raise UsageError(f"{source}: not as many hashes as there are {what}")
    return tuple(None if one is None else int(one, 16) for one in hashes)


def _part(source: str, part: _Part) -> Part:
    fits = len(part.shape) == len(part.start) == len(part.stop) and all(
        0 <= a <= b <= size for a, b, size in zip(part.start, part.stop, part.shape, strict=True)
    )
    if fits and math.prod(part.shape) >= 1 << 62:
        raise UsageError(f"{source}: {plain(part.name)}: has more elements than any tensor")
    if not fits:
        raise UsageError(f"{source}: {plain(part.name)}: its box lies outside of its shape")
    return Part(
        name=part.name,
        shape=tuple(part.shape),
        start=tuple(part.start),
        stop=tuple(part.stop),
        dtype=part.dtype,
        split=part.split,
        trainable=part.trainable,
        hash=int(part.hash, 16),
    )


def _groups(optimizers: list[_Optimizer]) -> list[OptimizerGroup]:
    return [
        OptimizerGroup(
            settings={"class": optimizer.name, **_plain_settings(group.model_extra or {})},
            parameters=tuple(group.parameters),
            state_step=optimizer.state_step or 0.0,
        )
        for optimizer in optimizers
        for group in optimizer.groups
    ]


def _plain_settings(extra: dict[str, Any]) -> dict[str, object]:
    return {key: json.dumps(value) if isinstance(value, list) else value for key, value in extra.items()}


def _fingerprints(source: str, taken: _Taken, count: int) -> Fingerprints:
    if len(taken.norms) != count or (taken.hashes is not None and len(taken.hashes) != count):
        raise UsageError(f"{source}: step {taken.step}: not as many numbers as there are parameters")
    norms = np.array([np.nan if norm is None else norm for norm in taken.norms], dtype=np.float64)
    return Fingerprints(
        norms=norms,
        sketch=None if taken.sketch is None else _sketch(source, taken, count),
        read=taken.read,
        estimated=taken.estimated,
        hashes=tuple(None if one is None else int(one, 16) for one in taken.hashes or ()),
        summed_over=tuple(taken.summed_over),
    )


def _sketch(source: str, taken: _Taken, count: int) -> NDArray[np.float64]:
    try:
        data = base64.b64decode(taken.sketch or "", validate=True)
    except binascii.Error:
        data = b""
    if len(data) != count * SLOTS * 8:
        raise UsageError(f"{source}: step {taken.step}: its sketch is not {count} rows of {SLOTS} numbers")
    return np.frombuffer(data, dtype="<f8").astype(np.float64).reshape(count, SLOTS)
