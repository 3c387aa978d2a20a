"""A process that takes over a subscription writes at once, though its predecessor left a transaction open."""

from __future__ import annotations

import pytest

from barnabas.client.cluster import Cluster
from barnabas.client.produce import Batch, produce
from barnabas.connect.binlog.place import Position
from barnabas.connect.binlog.reader import Place
from barnabas.connect.binlog.sink import OtherReaderError, Out, Sink
from barnabas.wire.batch import Record, build_batch
from compat_tests.binlog.subscriber import values
from compat_tests.broker_process import Server

ROUNDS, PARTITIONS = 10, 8


def out(number: int) -> Out:
    headers = (("barnabas.source", b"f"), ("barnabas.gtid", b"0-1-1"), ("barnabas.index", b"1"))
    return Out("fenced", b"%d" % number, b"%d" % number, headers, 5)


def leave_open(sink: Sink) -> None:
    """Write to all partitions, and leave the transaction open."""
    producer, cluster = sink._producer, sink._cluster
    assert producer is not None
    assert cluster is not None
    data = build_batch(
        [Record(b"k", b"of nobody", 5)],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    batches = [Batch("fenced", partition, data) for partition in range(PARTITIONS)]
    produce(cluster, batches, transactional_id=producer.transactional_id)


def test_who_takes_over_writes_at_once(server: Server) -> None:
    position = Position(place=Place("0-1-1", "bin.1", 4))
    sinks = [Sink(server.address, "fenced", PARTITIONS, {}) for _ in range(2)]
    sinks[0].begin()
    sinks[0].write([out(0)], position)
    for number in range(1, ROUNDS):
        before, after = sinks[number % 2 - 1], sinks[number % 2]
        leave_open(before)
        after.begin()
        after.write([out(number)], position)
        with pytest.raises(OtherReaderError):
            before.write([out(-1)], position)
    for sink in sinks:
        sink.close()
    found = values(server.address, "fenced")
    assert sorted(int(value or b"") for value in found) == list(range(ROUNDS))
    with Cluster(server.address) as cluster:
        assert len(cluster.leaders("fenced")) == PARTITIONS
