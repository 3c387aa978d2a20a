"""MySQL's GTID sets, compared with sets of numbers; and a reader that keeps one, and requests what is not in it."""

from __future__ import annotations

import struct
import uuid

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog import events
from barnabas.connect.binlog.events import EventError
from barnabas.connect.binlog.gtid_set import GtidSet, decoded, gtid_set_of
from barnabas.connect.binlog.reader import Place, Reader
from barnabas.connect.binlog.server import RefusedError, Server
from barnabas.connect.mysql.connection import Connection
from barnabas.connect.mysql.packets import PacketSplitter, packets
from barnabas.connect.mysql.source import Source

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4350f323-7565-4e59-8763-4b1b83a0ce0e"
INTERVALS = st.tuples(st.sampled_from([A, B]), st.integers(1, 60), st.integers(1, 10))


def numbers(intervals: list[tuple[str, int, int]]) -> set[tuple[str, int]]:
    return {(server, number) for server, first, count in intervals for number in range(first, first + count)}


def made(intervals: list[tuple[str, int, int]]) -> GtidSet:
    found = GtidSet()
    for server, first, count in intervals:
        found.add(server, first, first + count)
    return found


def told(found: GtidSet) -> set[tuple[str, int]]:
    """The content of its text."""
    out = set()
    for part in filter(None, str(found).split(",")):
        server, *intervals = part.split(":")
        for interval in intervals:
            first, _, last = interval.partition("-")
            out |= {(server, number) for number in range(int(first), int(last or first) + 1)}
    return out


@given(st.lists(INTERVALS, max_size=12), st.lists(INTERVALS, max_size=4))
def test_a_set_is_a_set_of_numbers_in_as_few_intervals_as_can_be(
    intervals: list[tuple[str, int, int]], more: list[tuple[str, int, int]]
) -> None:
    found = made(intervals)
    wanted = numbers(intervals)
    assert told(found) == wanted
    runs = sum((server, number - 1) not in wanted for server, number in wanted)
    assert str(found).count(":") == runs
    assert found.has(made(more)) == (numbers(more) <= wanted)
    for again in (gtid_set_of(str(found)), decoded(found.encoded())):
        assert str(again) == str(found)


def test_the_bytes_are_those_of_the_documentation() -> None:
    one = uuid.UUID(A).bytes + struct.pack("<QQQQQ", 2, 1, 6, 7, 8)
    other = uuid.UUID(B).bytes + struct.pack("<QQQ", 1, 1, 2)
    assert gtid_set_of(f"{B}:1,\n{A.upper()}:7:1-5").encoded() == struct.pack("<Q", 2) + one + other
    assert str(decoded(struct.pack("<Q", 2) + one + other)) == f"{A}:1-5:7,{B}:1"


@pytest.mark.parametrize(
    "text",
    ["0-1-42", "now", A, f"{A}:0", f"{A}:5-1", f"{A}:1-", f"{A}:-1", f"{A}:tag:1", f"{A}:{'9' * 5000}", f"{A[:-1]}x:1"],
)
def test_texts_that_are_no_sets(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        gtid_set_of(text)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_set_or_refused(data: bytes) -> None:
    try:
        str(decoded(data))
    except EventError:
        return


# --- a reader ---------------------------------------------------------------------------------------------------------


def sent(kind: int, body: bytes, end: int) -> bytes:
    return struct.pack("<IBIIIH", 7, kind, 1, events.HEADER_SIZE + len(body), end, 0) + body


def transaction(number: int, end: int) -> list[bytes]:
    gtid = b"\x01" + uuid.UUID(A).bytes + struct.pack("<q", number)
    begin = struct.pack("<IIBHH", 1, 0, 0, 0, 0) + b"\0BEGIN"
    return [
        sent(events.MYSQL_GTID, gtid, end - 2),
        sent(events.QUERY, begin, end - 1),
        sent(events.XID, bytes(8), end),
    ]


def read(reader: Reader, log: list[bytes]) -> None:
    for event in log:
        reader.read(event)


def test_a_reader_knows_the_set_of_what_it_has_read() -> None:
    reader = Reader(Place(f"{A}:1-5,{B}:1-9", "b.1", 157), {}, mariadb=False)
    read(reader, transaction(6, 300))
    assert reader.place == Place(f"{A}:1-6,{B}:1-9", "b.1", 300)
    read(reader, [*transaction(8, 400), *transaction(9, 500)])
    assert reader.place.gtids == f"{A}:1-6:8-9,{B}:1-9"
    assert reader.has_reached(Place(f"{A}:1-6,{B}:7", "b.9", 4))
    assert not reader.has_reached(Place(f"{A}:1-7", "b.1", 4))
    read(reader, transaction(10, 600)[:2])
    assert not reader.has_reached(Place(f"{A}:1-6", "b.1", 4)), "it is inside a transaction"


def test_a_reader_from_the_beginning_of_a_file_is_told_the_set_before_it() -> None:
    reader = Reader(Place("", "b.1", 4), {}, mariadb=False)
    read(reader, [sent(events.PREVIOUS_GTIDS, gtid_set_of(f"{A}:1-5").encoded(), 190), *transaction(6, 300)])
    assert reader.place == Place(f"{A}:1-6", "b.1", 300)
    read(reader, [sent(events.ANONYMOUS_GTID, transaction(7, 9)[0][19:], 400), *transaction(7, 500)[1:]])
    assert reader.place == Place("", "b.1", 500), "a set would not have the one that has no GTID"


async def asked(place: Place) -> bytes:
    """What a reader finally sends to a server that accepts everything."""
    ours, theirs = trio.testing.memory_stream_pair()
    server = Server(Source("127.0.0.1", 3306, "u", ""), 4711)
    server.mariadb = False
    commands: list[bytes] = []

    async def agree() -> None:
        async for data in theirs:
            splitter = PacketSplitter(1 << 20)
            commands.extend(splitter.feed(bytes(data)))
            await theirs.send_all(packets(b"\0\0\0\2\0\0\0", 1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agree)
        await server.begin(Connection(server.source, ours, 1 << 20), place)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return commands[-1]


async def test_what_is_asked_for_is_what_is_not_in_the_set() -> None:
    """COM_BINLOG_DUMP_GTID: flags, server id, no file, position 4, and the set after its length."""
    executed = gtid_set_of(f"{A}:1-5").encoded()
    head = b"\x1e" + struct.pack("<HIIQI", 0, 4711, 0, 4, len(executed))
    assert await asked(Place(f"{A}:1-5", "b.1", 157)) == head + executed


async def test_where_there_is_no_set_it_is_asked_for_by_file_and_position() -> None:
    assert await asked(Place("", "b.1", 157)) == b"\x12" + struct.pack("<IHI", 157, 0, 4711) + b"b.1"


async def test_a_start_that_is_no_set_is_refused() -> None:
    with pytest.raises(BaseExceptionGroup) as refused:
        await asked(Place("0-1-42", "", 4))
    assert refused.group_contains(RefusedError, match="of MySQL a GTID set such as")
