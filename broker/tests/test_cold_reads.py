"""Log data that is not in the page cache is read in a thread, and arrives complete."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import trio

from barnabas.broker.net.transport import is_cold, send_some
from barnabas.storage.files import FileSlice, OpenFile
from barnabas.storage.io import Io


class Evicted(Io):
    """A disk whose pages are not in the cache until they have been read once."""

    def __init__(self) -> None:
        self.warmed: set[int] = set()

    def is_cached(self, fd: int, position: int) -> bool:
        return position in self.warmed

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self.warmed.update(range(position, position + size))
        return super().pread(fd, size, position)


def test_a_cold_slice_is_left_to_who_can_wait(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(bytes(range(200)))
    io = Evicted()
    piece = FileSlice(io, OpenFile(io, str(path), os.O_RDONLY), 10, 100)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        left = send_some(ours, [b"head", piece, b"tail"])
        assert left[0] is piece
        assert is_cold(piece)
        piece.warm()
        assert not is_cold(piece)
        assert send_some(ours, left) == []
        assert theirs.recv(1000) == b"head" + bytes(range(10, 110)) + b"tail"


async def test_a_consumer_gets_cold_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.broker.log import EventLog
    from barnabas.broker.node import Node
    from barnabas.broker.settings.config import BrokerConfig
    from barnabas.client.cluster import Cluster
    from barnabas.client.fetch import Reader
    from barnabas.storage.vnode import Origin
    from barnabas.wire.batch import Record, build_batch

    monkeypatch.setattr("barnabas.storage.reader._RECENT_BYTES", 0)
    cold = Evicted()
    monkeypatch.setattr(Io, "is_cached", lambda self, fd, at: cold.is_cached(fd, at))
    warmed: list[int] = []
    real = FileSlice.warm

    def warm(self: FileSlice) -> None:
        warmed.append(len(self))
        real(self)

    monkeypatch.setattr(FileSlice, "warm", warm)
    config = BrokerConfig({"log.dir": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    node = Node(config, EventLog(level="error"))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        await node.topics.create("cold", 1)
        vnode = node.vnodes["cold", 0]
        batch = build_batch([Record(None, b"v%d" % i, 1) for i in range(500)])
        end = vnode.append(batch, now_ms=1, origin=Origin.CLIENT).last_offset + 1
        await node.flusher.flushed(vnode, end)

        def read() -> list[bytes | None]:
            with Cluster(f"127.0.0.1:{node.bound[0].port}") as cluster:
                reader = Reader(cluster, "cold")
                reader.positions = {0: 0}
                return [record.value for _, record in reader.poll()]

        values = await trio.to_thread.run_sync(read)
        node.stop()
    assert values == [b"v%d" % i for i in range(500)]
    assert warmed
