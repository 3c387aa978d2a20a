"""A data directory for a test, filled as the broker fills it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from barnabas.storage.checkpoints import write_properties
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.local_vnode import LocalVnode
from barnabas.storage.tests.support import flush_alone
from barnabas.streams.wal import COLUMNS, LogDir, plan, read
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType

CLUSTER_ID = "test-cluster"
TOPIC_ID = bytes(range(16))
NEXT_TOPIC_ID = bytes(range(16, 32))
NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)


class Logs:
    """Topics in a data directory, written without a broker."""

    def __init__(self, path: Path, config: LogConfig = SMALL) -> None:
        self.path, self.config = path, config
        self.vnodes: dict[tuple[str, int], LocalVnode] = {}
        self.topic_id = TOPIC_ID
        path.mkdir(parents=True, exist_ok=True)
        write_properties(
            Io(), str(path / "meta.properties"), {"version": "1", "cluster.id": CLUSTER_ID, "node.id": "1"}
        )

    def vnode(self, topic: str = "t", partition: int = 0) -> LocalVnode:
        """A partition, created on first use."""
        key = topic, partition
        if key not in self.vnodes:
            io = Io()
            vnode = LocalVnode(
                str(self.path / f"{topic}-{partition}"), topic, partition, self.config, io=io, cache=FileCache(io, 16)
            )
            vnode.create(self.topic_id)
            self.vnodes[key] = vnode
        return self.vnodes[key]

    def write(
        self,
        values: Sequence[bytes | None],
        topic: str = "t",
        partition: int = 0,
        *,
        each: int = 3,
        codec: int = CompressionType.NONE,
        timestamp: int = NOW,
    ) -> None:
        """Records with `values`, in batches of `each`; their timestamps increase by one from `timestamp`."""
        vnode = self.vnode(topic, partition)
        for at in range(0, len(values), each):
            records = [
                Record(b"k", value, timestamp + at + i, (("h", b"1"),) if i else ())
                for i, value in enumerate(values[at : at + each])
            ]
            vnode.append(bytearray(build_batch(records, compression=codec)), now_ms=timestamp)
        flush_alone(vnode)

    def make_again(self, values: Sequence[bytes | None]) -> None:
        """Delete the topic t, and create a new one with `values`."""
        for partition in [key[1] for key in self.vnodes if key[0] == "t"]:
            self.vnodes.pop(("t", partition)).abandon()
            shutil.rmtree(self.path / f"t-{partition}")
        self.topic_id = NEXT_TOPIC_ID
        self.write(values)

    def log_dir(self) -> LogDir:
        """The directory as a reader sees it."""
        return LogDir(self.path)


def table(
    log_dir: LogDir, topic: str = "t", *, split_bytes: int | None = None, columns: Sequence[str] = ()
) -> pa.Table:
    """Everything readable of a topic."""
    ranges = log_dir.ranges(log_dir.partitions(topic))
    names = list(columns or COLUMNS)
    batches = [batch for split in plan(log_dir, ranges, split_bytes=split_bytes) for batch in read(split, names)]
    return pa.Table.from_batches(batches, schema=pa.schema([(name, COLUMNS[name]) for name in names]))


def numbers(start: int, end: int) -> list[bytes]:
    """The values b"start" to b"end - 1"."""
    return [b"%d" % n for n in range(start, end)]
