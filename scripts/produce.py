"""`barnabas produce`: lines of standard input become records."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from client.cluster import ClientError, Cluster, check
from wire.batch import Record, build_batch
from wire.compression import Codec
from wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_RECORDS = 1000
BATCH_BYTES = 512 << 10
# Versions beyond name topics by id.
BY_NAME = 12


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's clients choose the partition of a key (seed 0x9747b28c), as a positive int32."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if tail := data[whole:]:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def records(args: argparse.Namespace) -> Iterator[Record]:
    """The records of the input's lines."""
    headers = []
    for text in args.header:
        name, equals, value = text.partition("=")
        if not equals:
            raise ClientError(f"--header {text}: expected NAME=VALUE")
        headers.append((name, value.encode()))
    separator = args.key_separator.encode().decode("unicode_escape").encode() if args.key_separator else None
    for raw in sys.stdin.buffer:
        line = raw.rstrip(b"\r\n") if args.strip_cr else raw.removesuffix(b"\n")
        key: bytes | None = None
        if separator:
            key, found, line = line.partition(separator)
            if not found:
                raise ClientError(f"A line has no key separator {args.key_separator!r}: {key[:60]!r}")
        value = None if args.null_value is not None and line == args.null_value.encode() else line
        yield Record(key, value, time.time_ns() // 1_000_000, tuple(headers))


def run(args: argparse.Namespace) -> int:
    """Send until the input ends; each batch goes when it is full or when the input pauses for a terminal's line."""
    sent = 0
    with Cluster(args.server) as cluster:
        leaders = cluster.leaders(args.topic, create=True)
        if args.partition is not None and args.partition not in leaders:
            raise ClientError(f"Topic {args.topic} has no partition {args.partition}: it has {len(leaders)}")
        pending: dict[int, list[Record]] = {}
        size, turn = 0, 0
        interactive = sys.stdin.isatty()
        for record in records(args):
            if args.partition is not None:
                partition = args.partition
            elif record.key is not None:
                partition = murmur2(record.key) % len(leaders)
            else:
                partition = turn % len(leaders)
            pending.setdefault(partition, []).append(record)
            size += len(record.value or b"") + len(record.key or b"") + 64
            sent += 1
            if interactive or size >= BATCH_BYTES or sum(map(len, pending.values())) >= BATCH_RECORDS:
                _send(cluster, args, leaders, pending)
                size, turn = 0, turn + 1
        if pending:
            _send(cluster, args, leaders, pending)
    print(f"{sent} record(s) sent to {args.topic}.", file=sys.stderr)
    return 0


def _send(
    cluster: Cluster, args: argparse.Namespace, leaders: dict[int, int], pending: dict[int, list[Record]]
) -> None:
    codec = Codec[args.compression.upper()]
    for partition, batch in pending.items():
        data = PartitionProduceData(partition, build_batch(batch, compression=codec))
        request = ProduceRequest(
            acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(args.topic, partition_data=[data])]
        )
        wire = cluster.broker(leaders[partition])
        answer = wire.ask(request, ProduceResponse, version=min(BY_NAME, wire.version_of(ProduceRequest)))
        part = answer.responses[0].partition_responses[0]
        check(part.error_code, f"Produce to {args.topic}-{partition}", part.error_message)
    pending.clear()
