"""A data directory as Kafka leaves it, made by hand: one node, one topic, and whatever a test adds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from barnabas.broker.metadata.records import encode_snapshot, frame
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.records.cluster_metadata import ConfigRecord, PartitionRecord, TopicRecord
from barnabas.wire.types import Message
from barnabas.wire.uuids import encode_uuid
from barnabas.wire.varint import uvarint

TOPIC_ID = bytes(range(16))
DIRECTORY_ID = bytes(range(16, 32))
VALUES = [b"%d" % number for number in range(10)]


def raw(key: int, body: bytes = b"") -> bytes:
    """A metadata record of a type for which barnabas has no class."""
    return uvarint(1) + uvarint(key) + uvarint(0) + body


def partition(
    number: int = 0, topic_id: bytes = TOPIC_ID, replicas: Sequence[int] = (1,), directories: Sequence[bytes] = ()
) -> PartitionRecord:
    nodes = list(replicas)
    return PartitionRecord(
        number, topic_id, nodes, nodes, leader=1, leader_epoch=4, partition_epoch=4, directories=list(directories)
    )


def topic(**configs: str) -> list[Message]:
    """The topic `orders` with one partition."""
    named = [ConfigRecord(2, "orders", name.replace("_", "."), value) for name, value in configs.items()]
    return [TopicRecord("orders", TOPIC_ID), partition(), *named]


class KafkaFolder:
    def __init__(self, path: Path, *, clean: bool = True) -> None:
        self.path = path
        self.metadata = path / "__cluster_metadata-0"
        self.metadata.mkdir(parents=True)
        self.properties(version="1", **{"node.id": "1", "cluster.id": "c", "directory.id": encode_uuid(DIRECTORY_ID)})
        self.voters(1)
        if clean:
            (path / ".kafka_cleanshutdown").write_text("")
        self._end = 0

    def properties(self, **lines: str) -> None:
        (self.path / "meta.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def voters(self, *nodes: int) -> None:
        state = {"currentVoters": [{"voterId": node} for node in nodes], "data_version": 0}
        (self.metadata / "quorum-state").write_text(json.dumps(state))

    def write(self, *records: Message | bytes) -> None:
        """Append to the metadata log."""
        values = [each if isinstance(each, bytes) else frame(each) for each in records]
        data = build_batch([Record(None, value, 1) for value in values], base_offset=self._end)
        self._end += len(values)
        with (self.metadata / f"{0:020}.log").open("ab") as log:
            log.write(data)

    def snapshot(self, records: Sequence[Message], offset: int) -> Path:
        path = self.metadata / f"{offset:020}-{1:010}.checkpoint"
        path.write_bytes(b"".join(encode_snapshot(records, 1, 1)))
        return path

    def log(self, topic_id: bytes = TOPIC_ID) -> Path:
        """Write ten flushed records to two segments of the topic's partition. Returns the folder."""
        folder = self.path / "orders-0"
        folder.mkdir()
        for base in (0, 5):
            records = [Record(b"k", value, 1) for value in VALUES[base : base + 5]]
            (folder / f"{base:020}.log").write_bytes(build_batch(records, base_offset=base))
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n")
        (self.path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 10\n")
        return folder
