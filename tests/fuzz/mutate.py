"""What a crash, a filesystem, a terminal and a hostile hand do to a file."""

import gzip
import struct
from collections.abc import Callable

import google_crc32c
from hypothesis import strategies as st

__all__ = ["mutated"]

# No longer than a few times what a sample has, so that time is spent on shapes and not on sizes.
LONGEST = 1 << 18

TOKENS = [
    *(b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n", b"\x1b[31m", b"\x1b]8;;", b"\x1b\\", b"\x9b"),
    *("\u2028".encode(), "\ud800".encode(errors="surrogatepass"), "١٢".encode(), b"'", b'"', b"{", b"}", b"[", b"]"),
    *(b"nan", b"NaN", b"-Infinity", b"inf", b"1e999", b"-1e-999", b"-1.0000", b"1_000", b"1,234", b"0x10", b"1e5"),
    *(b"null", b"true", b"None", b"tensor(1.5)", b"2/4389", b"9007199254740993", b"9" * 400, b"9" * 5000, b"-0"),
    *(b'{"a":' * 1500, b"[" * 3000, b"{'a': " * 50, b" " * 5000, b"a" * 5000, b"|" * 300, b": " * 300, b"|:" * 300),
    *(b"[rank1]:", b"[default3]:", b"12: ", b"[INFO|DP=1|PP=0|TP=0]:", b"eval_", b"validate ", b"val_loss"),
    *(b'"step": ', b'"loss": ', b'"loss": [', b'"log_history": [', b'"_step": 3, ', b'"kind": "step"'),
    *(b'"split": "eval"', b"step: 7 ", b"loss: 1.5 ", b"{'loss': ", b"iteration 9/ 9 |", b"lm loss: "),
    *(b"Traceback (most recent call last):\n", b"ValueError: ", b"step,loss\n", b"step;loss\n", b"1 2.5\n", b",,,\n"),
    *(b"steps: 5 loss: ", b"|", b";;;;", b"grad_norm: "),
]  # fmt: skip

Change = Callable[[bytes, bytes], bytes]
# Where in the bytes, as a part of their length: it stays meaningful when an earlier change is taken away.
PLACE = st.floats(0, 1, width=32)


def _at(data: bytes, place: float) -> int:
    return int(place * len(data))


def _line(data: bytes, place: float) -> tuple[int, int]:
    at = _at(data, place)
    start = data.rfind(b"\n", 0, at) + 1
    stop = data.find(b"\n", start) + 1
    return start, stop or len(data)


def _cut(place: float) -> Change:
    return lambda data, other: data[: _at(data, place)]


def _begun(place: float) -> Change:
    return lambda data, other: data[_at(data, place) :]


def _left_out(place: float, size: int) -> Change:
    return lambda data, other: data[: _at(data, place)] + data[_at(data, place) + size :]


def _put(place: float, token: bytes) -> Change:
    return lambda data, other: data[: _at(data, place)] + token + data[_at(data, place) :]


def _overwritten(place: float, token: bytes) -> Change:
    return lambda data, other: data[: _at(data, place)] + token + data[_at(data, place) + len(token) :]


def _number_replaced(place: float, token: bytes) -> Change:
    def change(data: bytes, other: bytes) -> bytes:
        at = _at(data, place)
        while at < len(data) and not data[at : at + 1].isdigit():
            at += 1
        stop = at
        while stop < len(data) and data[stop : stop + 1] in b"0123456789.eE+-":
            stop += 1
        return data[:at] + token + data[stop:]

    return change


def _line_again(place: float, to: float, times: int) -> Change:
    def change(data: bytes, other: bytes) -> bytes:
        start, stop = _line(data, place)
        at, _ = _line(data, to)
        return data[:at] + data[start:stop] * times + data[at:]

    return change


def _line_moved(place: float, to: float) -> Change:
    def change(data: bytes, other: bytes) -> bytes:
        start, stop = _line(data, place)
        rest = data[:start] + data[stop:]
        at, _ = _line(rest, to)
        return rest[:at] + data[start:stop] + rest[at:]

    return change


def _spliced(place: float, of_other: float) -> Change:
    return lambda data, other: data[: _at(data, place)] + other[_at(other, of_other) :]


def _interleaved(data: bytes, other: bytes) -> bytes:
    a, b = data.split(b"\n"), other.split(b"\n")
    longest = max(len(a), len(b))
    pairs = zip(a + [b""] * (longest - len(a)), b + [b""] * (longest - len(b)), strict=True)
    return b"\n".join(line for pair in pairs for line in pair)


def _replaced(old: bytes, new: bytes) -> Change:
    return lambda data, other: data.replace(old, new)


def _encoded(codec: str) -> Change:
    return lambda data, other: data.decode(errors="replace").encode(codec, errors="replace")


def _packed(lost: int) -> Change:
    def change(data: bytes, other: bytes) -> bytes:
        packed = gzip.compress(data, mtime=0)
        return packed[: len(packed) - lost]

    return change


def _inside_of_a_record(change: Change) -> Change:
    """In an event file: the change within one record, with the checksums of what then is there."""

    def changed(data: bytes, other: bytes) -> bytes:
        at, payloads = 0, []
        while at + 12 <= len(data):
            (length,) = struct.unpack("<Q", data[at : at + 8])
            payloads.append(data[at + 12 : at + 12 + length])
            at += 16 + length
        if len(payloads) < 2:
            return change(data, other)
        which = len(data) % (len(payloads) - 1) + 1
        payloads[which] = change(payloads[which], other[:100])
        return b"".join(map(_framed, payloads))

    return changed


def _framed(payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    return length + _checksum(length) + payload + _checksum(payload)


def _checksum(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


_TOKEN = st.sampled_from(TOKENS) | st.binary(max_size=4)
_CHANGE: st.SearchStrategy[Change] = st.one_of(
    st.builds(_cut, PLACE),
    st.builds(_begun, PLACE),
    st.builds(_left_out, PLACE, st.integers(1, 200)),
    st.builds(_put, PLACE, _TOKEN),
    st.builds(_overwritten, PLACE, _TOKEN),
    st.builds(_number_replaced, PLACE, _TOKEN),
    st.builds(_line_again, PLACE, PLACE, st.sampled_from([1, 2, 3, 200])),
    st.builds(_line_moved, PLACE, PLACE),
    st.builds(_spliced, PLACE, PLACE),
    st.just(_interleaved),
    st.builds(_replaced, st.sampled_from([b"\n", b" ", b": ", b",", b"1", b".", b'"', b"|"]), _TOKEN),
)
# What comes last in the life of a file.
_LAST: st.SearchStrategy[Change] = st.one_of(
    st.builds(_encoded, st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"])),
    st.builds(_packed, st.integers(0, 40)),
)


@st.composite
def mutated(draw: st.DrawFn, data: bytes, other: bytes) -> bytes:
    """`data` after some changes; some take from `other`."""
    for change in draw(st.lists(_CHANGE, max_size=5)):
        inside = b"brain.Event:" in data[:64] and draw(st.booleans())
        data = (_inside_of_a_record(change) if inside else change)(data, other)[:LONGEST]
    if draw(st.integers(0, 4)) == 0:
        data = draw(_LAST)(data, other)
    return data
