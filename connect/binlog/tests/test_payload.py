"""MySQL's compressed transactions: made to its documentation, there and back, and bytes that lie."""

from __future__ import annotations

import struct
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog import events
from barnabas.connect.binlog.events import EventError, Header
from barnabas.connect.binlog.payload import events_in

OUTER = Header(7, events.TRANSACTION_PAYLOAD, 1, 100, 5000, 0)


def number(value: int) -> bytes:
    """A number with its length."""
    if value < 251:
        return bytes([value])
    return b"\xfc" + struct.pack("<H", value) if value < 1 << 16 else b"\xfe" + struct.pack("<Q", value)


def event(kind: int, body: bytes) -> bytes:
    """As in a payload: without a checksum."""
    return struct.pack("<IBIIIH", 7, kind, 1, events.HEADER_SIZE + len(body), 0, 0) + body


def payload(inside: bytes, *, compressed: bool = True, **lies: int) -> bytes:
    data = zstandard.compress(inside) if compressed else inside
    told = {1: len(data), 2: 0 if compressed else 255, 3: len(inside)}
    told |= {int(name[1:]): value for name, value in lies.items()}
    fields = b"".join(number(kind) + number(len(number(value))) + number(value) for kind, value in told.items())
    return fields + b"\0" + data


@given(st.lists(st.tuples(st.integers(2, 42), st.binary(max_size=300))), st.booleans(), st.booleans())
def test_the_events_come_one_by_one(given_: list[tuple[int, bytes]], compressed: bool, checksum: bool) -> None:
    body = payload(b"".join(event(*each) for each in given_), compressed=compressed)
    found = list(events_in(body, OUTER, checksum=checksum))
    assert len(found) == len(given_)
    for data, (kind, inner) in zip(found, given_, strict=True):
        header = events.header_of(data)
        assert (header.kind, header.end, header.timestamp) == (kind, OUTER.end, 7)
        assert events.body_of(data, 0, header, checksum=checksum) == inner


def test_a_large_transaction_is_unpacked_event_by_event() -> None:
    one = event(30, bytes(1 << 20))
    body = payload(one * 200)
    assert len(body) < 1 << 20
    assert sum(len(each) for each in events_in(body, OUTER, checksum=False)) == 200 * len(one)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (payload(event(16, bytes(8)), _2=7), "not known"),
        (payload(event(16, bytes(8)), _1=5000), "cut off"),
        (payload(event(16, bytes(8)), _3=1000), "in the middle of an event"),
        (payload(event(16, bytes(8)), _3=20), "an event of 27 bytes"),
        (payload(event(16, bytes(8))[:-1]), "an event of 27 bytes"),
        (payload(struct.pack("<IBIIIH", 7, 16, 1, 3, 0, 0)), "an event of 3 bytes"),
        (payload(event(16, bytes(8)))[:-3], "cut off"),
        (b"\x01\x05", "cannot be read"),
        (b"\x01\x01\xfe" + bytes(8), "longer than it says"),
        (b"", "cannot be read"),
        (b"\x02\x01\x00\x03\x01\x1b\x00no zstd at all", "damaged"),
    ],
)
def test_bytes_that_lie_are_refused(body: bytes, why: str) -> None:
    with pytest.raises(EventError, match=why):
        list(events_in(body, OUTER, checksum=False))


@given(st.binary(max_size=100))
def test_any_bytes_are_events_or_refused(body: bytes) -> None:
    try:
        for each in events_in(body, OUTER, checksum=True):
            assert zlib.crc32(each[:-4]) == int.from_bytes(each[-4:], "little")
    except EventError:
        return
