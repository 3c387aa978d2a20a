"""MySQL's compressed transactions: made from its documentation, round trips, and false bytes."""

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
from barnabas.connect.binlog.reader import Begin, Change, End, Place, Reader

OUTER = Header(7, events.TRANSACTION_PAYLOAD, 1, 100, 5000, 0)


def number(value: int) -> bytes:
    """A number with its length."""
    if value < 251:
        return bytes([value])
    return b"\xfc" + struct.pack("<H", value) if value < 1 << 16 else b"\xfe" + struct.pack("<Q", value)


def event(kind: int, body: bytes) -> bytes:
    """An event as in a payload: without a checksum."""
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


def test_a_reader_takes_a_compressed_transaction_for_the_events_in_it() -> None:
    """In MySQL's order: the GTID comes first, and the rest of the transaction is inside."""

    def sent(kind: int, body: bytes, end: int) -> bytes:
        return struct.pack("<IBIIIH", 7, kind, 1, events.HEADER_SIZE + len(body), end, 0) + body

    table = b"\x05\0\0\0\0\0" + b"\0\0" + b"\x01d\0" + b"\x01t\0" + b"\x01\x03" + b"\0" + b"\0"
    table += b"\x01\x01\x00" + b"\x04\x02\x01n"  # signedness and names
    row = b"\x05\0\0\0\0\0" + b"\0\0" + b"\x02\0" + b"\x01" + b"\x01" + b"\0" + struct.pack("<i", 42)
    begin = struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0BEGIN"
    inside = event(events.QUERY, begin) + event(events.TABLE_MAP, table) + event(30, row) + event(16, bytes(8))
    gtid = b"\x01" + bytes(15) + b"\x01" + struct.pack("<q", 3)
    log = [
        sent(events.MYSQL_GTID, gtid, 200),
        sent(events.TRANSACTION_PAYLOAD, payload(inside), 5000),
    ]
    reader = Reader(Place("", "binlog.000001", 157), {}, mariadb=False)
    found = [reader.read(*part) for each in log for part in reader.parts(each)]
    kinds = [type(item) for item in found if item is not None]
    assert kinds == [Begin, Change, End]
    (change,) = (item for item in found if isinstance(item, Change))
    assert change.rows == [([42],)]
    assert reader.place.position == 5000
