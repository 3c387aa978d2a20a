"""Fetches that are answered at once. Their wait time is ten minutes, and their client gives up after half a minute."""

from __future__ import annotations

import pytest

from barnabas.wire.batch import Record, build_batch, iter_batches
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from compat_tests.admin.test_configs import create
from compat_tests.broker_process import Server
from compat_tests.lies.test_batches import produced
from compat_tests.pipe import Pipe

pytestmark = pytest.mark.one_node(
    "it speaks to one node over connections of its own, which need not lead or coordinate what it asks for"
)

TEN_MINUTES = 600_000
MIB = 1 << 20


def filled(pipe: Pipe, name: str) -> None:
    """Five batches of 400 KiB, two in each segment of 1 MiB (the smallest segment that Kafka allows)."""
    create(pipe, name, {"segment.bytes": str(MIB)})
    for number in range(5):
        batch = build_batch([Record(b"k", b"%d" % number * (400 << 10), 1_700_000_000_000)])
        assert produced(pipe, name, batch).error_code == 0


def fetched(pipe: Pipe, topic: str, *, min_bytes: int, max_bytes: int) -> list[int]:
    """The base offsets of the batches in the answer to a fetch from the start."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
    answer = pipe.ask(
        FetchRequest(
            max_wait_ms=TEN_MINUTES,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[part])],
        ),
        12,
    )
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0
    return [header.base_offset for header, _ in iter_batches(found.records)]


def test_at_the_end_of_an_older_segment(server: Server) -> None:
    with Pipe(server.port) as pipe:
        filled(pipe, "segments")
        assert fetched(pipe, "segments", min_bytes=40 * MIB, max_bytes=50 * MIB) == [0, 1]


def test_where_the_client_wants_no_more_than_it_takes(server: Server) -> None:
    with Pipe(server.port) as pipe:
        filled(pipe, "limits")
        assert fetched(pipe, "limits", min_bytes=40 * MIB, max_bytes=500 << 10)[0] == 0
