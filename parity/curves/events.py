"""The scalars in an event file, as TensorBoard's writers leave it.

An event file is a row of records, each framed by its length and checksums, and each a protocol buffer. Google's own
parser reads the latter. TensorBoard itself would bring a server, and opens files by their paths, which may lead
elsewhere by then.
"""

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from parity.curves.notes import Notes, refusal
from parity.curves.scalars import Scalar
from parity.plain import plain

__all__ = ["SIGNATURE", "Restart", "events"]

# The payload of the first record, behind its frame and a wall time.
SIGNATURE = b"brain.Event:"
# Images, graphs and histograms may be longer and are passed over. A scalar's record is below 1 KiB.
LONGEST = 1 << 20
# 100,000 steps with a hundred curves.
MOST_RECORDS = 10_000_000
_START = 1  # SessionLog.SessionStatus
_FLOAT, _DOUBLE = 1, 2  # DataType

# What is read of tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto, by field
# number. Texts are bytes here: a parser would refuse what is not UTF-8.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Event": {"step": (2, "int64"), "summary": (5, "Summary"), "session_log": (7, "SessionLog")},
    "SessionLog": {"status": (1, "int32")},
    "Summary": {"value": (1, "Value*")},
    "Value": {"tag": (1, "bytes"), "simple_value": (2, "float"), "tensor": (8, "TensorProto")},
    "TensorProto": {
        "dtype": (1, "int32"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "float*"),
        "double_val": (6, "double*"),
    },
}


@dataclass(frozen=True)
class Restart:
    """The run was started again here: what was written for this step and later ones no longer counts."""

    step: int


def events(file: BinaryIO, source: str, notes: Notes) -> Iterator[Scalar | Restart]:
    """The scalars of an open event file, in the order in which they were written. Values are float32.

    A last record that is torn is ignored and noted.

    Raises:
        UsageError: the file is no event file, or is damaged; a wrong checksum may mean wrong numbers.
    """
    from google.protobuf.message import DecodeError

    parse = _event().FromString
    try:
        for data in _records(file, source, notes):
            event = parse(data)
            if event.session_log.status == _START:
                yield Restart(event.step)
            for value in event.summary.value:
                number = _number(value)
                if number is not None:
                    yield value.tag.decode(errors="replace"), event.step, number
    except DecodeError:
        raise refusal(source, "is damaged: a record is no TensorBoard event") from None
    except OSError as error:
        raise refusal(source, f"can't be read: {plain(error.strerror or error)}") from None


def _records(file: BinaryIO, source: str, notes: Notes) -> Iterator[bytes]:
    """The payloads: 8 bytes of length, 4 of its checksum, the payload, 4 of its checksum; little-endian."""
    number = 0
    while frame := file.read(12):
        number += 1
        if number > MOST_RECORDS:
            raise refusal(source, f"holds more than {MOST_RECORDS:,} records")
        if len(frame) == 12:
            length, check = struct.unpack("<QI", frame)
            if check != _checksum(frame[:8]):
                raise refusal(source, f"is damaged, or no event file: the checksum of record {number} is wrong")
            data = file.read(length + 4) if length <= LONGEST else _passed(file, length + 4)
            if len(data) == length + 4:
                if struct.unpack("<I", data[-4:])[0] != _checksum(data[:-4]):
                    raise refusal(source, f"is damaged: the checksum of record {number} is wrong")
                yield data[:-4]
                continue
            if data and length > LONGEST:
                notes.add("records longer than 1 MiB were passed over")
                continue
        notes.add("the last record is torn, as after a crash, and was ignored")
        return


def _passed(file: BinaryIO, length: int) -> bytes:
    """Read past a record; something if all of it was there."""
    while length and (some := file.read(min(length, LONGEST))):
        length -= len(some)
    return b"" if length else b"passed"


def _checksum(data: bytes) -> int:
    """CRC-32C, masked as in TensorFlow's lib/hash/crc32c.h."""
    import google_crc32c

    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _number(value: Any) -> float | None:
    if value.HasField("simple_value"):
        return float(value.simple_value)
    # As TensorFlow 2 writes scalars. Of more than one element it is a histogram or an image.
    tensor = value.tensor
    for several in (tensor.float_val, tensor.double_val):
        if len(several) == 1:
            return float(several[0])
    form = {_FLOAT: "<f", _DOUBLE: "<d"}.get(tensor.dtype, "")
    content = tensor.tensor_content
    return float(struct.unpack(form, content)[0]) if form and len(content) == struct.calcsize(form) else None


@functools.cache
def _event() -> Any:
    """The message type of an event."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="parity/event.proto", package="parity.event")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind.rstrip("*") in _MESSAGES:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".parity.event.{kind.rstrip('*')}"
            else:
                added.type = kinds.Type.Value(f"TYPE_{kind.rstrip('*').upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("parity.event.Event"))
