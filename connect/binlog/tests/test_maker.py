"""The messages that are collected for a group, and the time at which its position is written."""

from __future__ import annotations

import struct

import pytest
import trio
import trio.testing

from barnabas.connect.binlog.columns import Column, Layout
from barnabas.connect.binlog.events import WRITE
from barnabas.connect.binlog.maker import CHUNK_SECONDS, Maker, Settings
from barnabas.connect.binlog.masks import Masks
from barnabas.connect.binlog.messages import format_of
from barnabas.connect.binlog.naming import Chosen, Topics
from barnabas.connect.binlog.place import Position
from barnabas.connect.binlog.reader import Begin, Change, End, Place
from barnabas.connect.binlog.server import Server
from barnabas.connect.mysql.source import Source

AT = Place("0-1-5", "bin.1", 4)


def layout(table: str) -> Layout:
    def number(data: bytes, at: int) -> tuple[int, int]:
        return struct.unpack_from("<i", data, at)[0], at + 4

    return Layout("d", table, (Column("id", "int", number, str),), (0,))


def maker(position: Position) -> Maker:
    settings = Settings(name="s", tables=("d.seen",))
    server = Server(Source("127.0.0.1", 3306, "u", ""), 7)
    topics, chosen = Topics("table", ""), Chosen(settings.tables)
    return Maker(server, settings, format_of("tdsql"), topics, chosen, Masks((), b""), position)


def begin(gtid: str) -> Begin:
    return Begin(gtid, 1, AT, 4, 99)


def change(table: str) -> Change:
    return Change(WRITE, layout(table), [([1],), ([2],)], 1)


@pytest.mark.parametrize("table", ["seen", "other"])
async def test_the_end_of_a_group_of_which_something_is_written_is_written_soon(
    autojump_clock: trio.testing.MockClock, table: str
) -> None:
    made = maker(Position(place=AT))
    made.take(begin("0-1-6"), trio.current_time())
    made.take(change("seen"), trio.current_time())
    assert made.chunk().position.index == 3  # the GTID and two rows
    made.take(change(table), trio.current_time())
    if made.size:
        made.chunk()
    after = Place("0-1-6", "bin.1", 400)
    assert made.wait(trio.current_time()) == float("inf")
    made.take(End(5, 1, after), trio.current_time())
    assert made.wait(trio.current_time()) == CHUNK_SECONDS
    assert made.chunk().position.place == after
    assert made.wait(trio.current_time()) == float("inf")


async def test_a_group_that_nobody_reads_waits_longer(autojump_clock: trio.testing.MockClock) -> None:
    made = maker(Position(place=AT))
    made.take(begin("0-1-6"), trio.current_time())
    made.take(change("other"), trio.current_time())
    made.take(End(5, 1, Place("0-1-6", "bin.1", 400)), trio.current_time())
    assert made.wait(trio.current_time()) > 10 * CHUNK_SECONDS
