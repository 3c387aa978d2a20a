"""Sends rows to the partitions of a topic with acks=all; optionally in transactions that also commit the position.

The position says how much of the input is in the topic. It is committed as the offset of a group, in the Kafka
transaction of the rows up to it, so a killed load continues with exactly the next row.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.groups import Committed, committed
from barnabas.client.partitioner import murmur2
from barnabas.client.produce import Batch, produce
from barnabas.client.transactional import TransactionalProducer
from barnabas.streams.encode import encode
from barnabas.streams.load.rows import Rows
from barnabas.wire.compression import CompressionType

_BATCH_BYTES = 900_000
_TRANSACTION_MS = 60_000
_NO_OFFSET = bytes(8)  # the broker assigns them


class Place(NamedTuple):
    """How much of the input is in the topic."""

    bytes: int = 0
    #: The next line, counted from 1.
    line: int = 1
    rows: int = 0


class Sender:
    """Sends rows to a topic. All calls block, and raise ClientError."""

    def __init__(self, cluster: Cluster, topic: str, *, compression: CompressionType = CompressionType.NONE) -> None:
        self._cluster, self._topic, self._compression = cluster, topic, compression
        self._partitions = len(cluster.leaders(topic))
        self._turn = 0
        self._producer: TransactionalProducer | None = None
        self._group = ""
        self.place = Place()

    def resume(self, name: str) -> None:
        """Continue the load of this name. Anyone else who loads under it is fenced."""
        self._group = f"barnabas.load.{name}"
        self._producer = TransactionalProducer(self._cluster, self._group, timeout_ms=_TRANSACTION_MS)
        self._producer.begin()
        found = committed(self._cluster, self._group).get((self._topic, 0))
        if found is not None and found.offset >= 0:
            try:
                line, rows = msgspec.json.decode(found.metadata, type=tuple[int, int])
            except msgspec.DecodeError:
                raise ClientError(f"group {self._group} does not hold the place of a load: use another name") from None
            self.place = Place(found.offset, line, rows)

    def send(self, rows: Rows, end: int, end_line: int) -> None:
        """Write the rows. The input is then in the topic up to `end`."""
        place = Place(end, end_line, self.place.rows + len(rows.lines))
        batches = self._batches(rows)
        transactional_id = None if self._producer is None else self._producer.transactional_id
        while any(batches.values()):
            turn = [Batch(self._topic, partition, waiting.pop(0)) for partition, waiting in batches.items() if waiting]
            told = produce(self._cluster, turn, transactional_id=transactional_id)
            for (topic, partition), answer in told.items():
                check(answer.error_code, f"Produce to {topic}-{partition}", answer.error_message)
        if self._producer is not None:
            metadata = msgspec.json.encode((place.line, place.rows)).decode()
            position = Committed(place.bytes, metadata)
            self._producer.commit_offsets(self._group, {(self._topic, 0): position})
            self._producer.end(commit=True)
        self.place = place

    def _batches(self, rows: Rows) -> dict[int, list[bytes]]:
        """The batches of each partition, in the order of the rows."""
        count = len(rows.lines)
        if not count:
            return {}
        now = pa.scalar(time.time_ns() // 1_000_000, pa.int64())
        table = pa.table(
            {
                "key": rows.keys,
                "value": rows.values,
                "timestamp": rows.times.fill_null(now).cast(pa.timestamp("ms")),
            }
        )
        partitions = self._partitions_of(rows.keys)
        found: dict[int, list[bytes]] = {}
        for partition in pc.unique(partitions).to_pylist():
            mine = table.filter(pc.equal(partitions, partition)).combine_chunks()
            mine = mine.append_column("offset", pa.array(range(mine.num_rows), pa.int64()))
            found[partition] = self._encoded(mine.to_batches()[0])
        return found

    def _partitions_of(self, keys: pa.Array) -> pa.Array:
        """By the key's hash, as Kafka's clients do. Rows without a key go together, each time to the next partition."""
        distinct = pc.dictionary_encode(keys)
        self._turn += 1
        chosen = [murmur2(key) % self._partitions for key in distinct.dictionary.to_pylist()]
        if not chosen:
            return pa.array([self._turn % self._partitions] * len(keys), pa.int64())
        return pa.array(chosen, pa.int64()).take(distinct.indices).fill_null(self._turn % self._partitions)

    def _encoded(self, mine: pa.RecordBatch) -> list[bytes]:
        producer = self._producer
        batches = encode(
            mine,
            base_offset=0,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.epoch,
            compression=self._compression,
            max_bytes=_BATCH_BYTES,
            transaction_sequence=None if producer is None else 0,
        )
        return [_NO_OFFSET + batch.data[len(_NO_OFFSET) :] for batch in batches]
