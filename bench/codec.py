"""Parse and build times of the generated codecs, compared with kio and kafka-python in the same run.

    python -m bench.codec [--rounds 9] [--json FILE]

Times are microseconds, medians over interleaved rounds. `target` is the time of a prototype of the same design on two
shared 2020s server cores under Python 3.11. Times differ between machines, the ratios of the columns do not.
"""

from __future__ import annotations

import argparse
import functools
import gc
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from barnabas.wire.codegen import message_codec
from barnabas.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.table import table
from barnabas.wire.types import Message


def _topic_id(n: int) -> bytes:
    return bytes([n + 1]) * 16


def _produce() -> Message:
    part = PartitionProduceData(0, bytes(16384))
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[TopicProduceData("topic-name", partition_data=[part])])


def _fetch_request(topics: int, partitions: int, by_id: bool) -> Message:
    parts = [FetchPartition(p, 0, 1000 + p, -1, 0, 1048576) for p in range(partitions)]
    named = [
        FetchTopic("" if by_id else f"topic-{t}", _topic_id(t) if by_id else bytes(16), parts) for t in range(topics)
    ]
    return FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=0, topics=named)


def _fetch_response() -> Message:
    parts = [PartitionData(p, 0, 1000, 1000, 0, aborted_transactions=None, records=b"") for p in range(10)]
    return FetchResponse(responses=[FetchableTopicResponse("", _topic_id(t), parts) for t in range(10)])


def _metadata() -> Message:
    parts = [MetadataResponsePartition(0, p, 1, 0, [1, 2, 3], [1, 2, 3]) for p in range(10)]
    topics = [MetadataResponseTopic(0, f"topic-{t}", _topic_id(t), False, parts) for t in range(100)]
    brokers = [MetadataResponseBroker(n, "broker.example", 9092) for n in range(3)]
    return MetadataResponse(brokers=brokers, cluster_id="a-cluster", controller_id=1, topics=topics)


def _commit() -> Message:
    parts = [OffsetCommitRequestPartition(p, 100 + p, -1, "") for p in range(3)]
    return OffsetCommitRequest(
        "group", 5, "member-id-0001", topics=[OffsetCommitRequestTopic("topic", partitions=parts)]
    )


def _join() -> Message:
    protocols = [JoinGroupRequestProtocol("range", bytes(40)), JoinGroupRequestProtocol("roundrobin", bytes(40))]
    return JoinGroupRequest("group", 45000, 300000, "", None, "consumer", protocols)


# (name, version, message, parse and build times that the design promises)
CASES: list[tuple[str, int, Message, float, float]] = [
    ("Produce v11, 1 partition, 16 KiB", 11, _produce(), 1.8, 1.7),
    ("Produce v8, 1 partition, 16 KiB", 8, _produce(), 1.4, 1.1),
    ("Fetch request v16, 1 partition", 16, _fetch_request(1, 1, True), 2.2, 1.0),
    ("Fetch request v16, 10 x 10", 16, _fetch_request(10, 10, True), 25, 17),
    ("Fetch request v11, 10 x 10", 11, _fetch_request(10, 10, False), 24, 16),
    ("Fetch response v16, 10 x 10, empty", 16, _fetch_response(), 60, 45),
    ("Metadata response v12, 100 x 10", 12, _metadata(), 940, 790),
    ("OffsetCommit v8, 1 x 3", 8, _commit(), 2.4, 1.6),
    ("JoinGroup v9", 9, _join(), 2.0, 1.3),
]


def _kio(message: Message, version: int, wire: bytes) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from kio.serial import entity_reader, entity_writer

    from barnabas.wire.tests.test_oracles import kio_class

    cls = kio_class(type(message), version)
    read, write = entity_reader(cls), entity_writer(cls)
    parsed, _ = read(wire, 0)
    return (lambda: read(wire, 0)), (lambda: write(io.BytesIO(), parsed))


def _kafka_python(message: Message, version: int, wire: bytes) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from barnabas.wire.tests.test_oracles import kafka_python_class

    cls = kafka_python_class(type(message))
    parsed = cls.decode(io.BytesIO(wire), version=version)
    parsed._header = None
    return (lambda: cls.decode(io.BytesIO(wire), version=version)), (lambda: parsed.encode(version=version))


def microseconds(call: Callable[[], Any], budget: float = 0.02) -> float:
    """The mean time of one call, over as many calls as fit into `budget` seconds."""
    began = time.perf_counter()
    call()
    once = time.perf_counter() - began
    count = max(1, int(budget / max(once, 1e-7)))
    began = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began) / count * 1e6


def main() -> None:
    """Measure and print the table."""
    options = argparse.ArgumentParser(description="Codec times, beside kio and kafka-python.")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--json", metavar="FILE")
    args = options.parse_args()
    calls: dict[tuple[str, str], tuple[Callable[[], Any], Callable[[], Any]]] = {}
    for name, version, message, _, _ in CASES:
        ours = message_codec(type(message), version)
        wire = ours.build(message)
        parsed = ours.parse(wire)
        calls[name, "barnabas"] = (functools.partial(ours.decode, wire), functools.partial(ours.encode, parsed))
        for label, make in (("kio", _kio), ("kafka-python", _kafka_python)):
            try:
                calls[name, label] = make(message, version, wire)
            except (AttributeError, ImportError, KeyError, AssertionError):
                continue
    gc.collect()
    gc.freeze()
    times: dict[tuple[str, str], tuple[list[float], list[float]]] = {key: ([], []) for key in calls}
    for number in range(args.rounds):
        print(f"round {number + 1}/{args.rounds}", file=sys.stderr)
        for key, (parse, build) in calls.items():
            times[key][0].append(microseconds(parse))
            times[key][1].append(microseconds(build))
    rows, found = [], {}
    for name, _, _, parse_target, build_target in CASES:
        row: list[object] = [name]
        for label in ("barnabas", "kio", "kafka-python"):
            if (name, label) in times:
                pair = [statistics.median(series) for series in times[name, label]]
                row.append(f"{pair[0]:.1f}/{pair[1]:.1f}")
                found[f"{name}, {label}"] = pair
            else:
                row.append("-")
        row.append(f"{parse_target}/{build_target}")
        rows.append(row)
    print(table(("microseconds, parse/build", "barnabas", "kio", "kafka-python", "target"), rows))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
