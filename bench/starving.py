"""The latency of one client while others flood: `python -m bench.starving [--seconds 5] [--servers barnabas kafka]`.

Ten connections send one kind of request in a loop, without waiting for answers, which they read and drop. At the same
time one client produces a record of 100 bytes at a time with acks=all, and measures the time of each acknowledgement.
The flooding connections are one process, the client another: on two cores the broker has about one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import selectors
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

from barnabas.broker.tests.client import frame_of
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from bench.percentiles import percentiles
from bench.servers import POLICIES, SERVERS, make
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.pipe import Pipe
from compat_tests.tools import missing

CONNECTIONS = 10
CHUNK_BYTES = 64 << 10
NOW = 1_700_000_000_000
PARTITIONS = 20


def produce(topic: str, data: bytes, acks: int) -> bytes:
    """A frame with one batch."""
    parts = [PartitionProduceData(index=0, records=data)]
    return frame_of(
        ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=parts)]), 9, 1
    )


def batch(size: int, count: int, compression: int = 0) -> bytes:
    """A batch of `count` records of one size."""
    return build_batch([Record(None, bytes(size), NOW)] * count, compression=compression)


PUSHES: dict[str, Callable[[], bytes]] = {
    "nobody": lambda: b"",
    "ApiVersions": lambda: frame_of(ApiVersionsRequest("bench", "1"), 3, 1),
    "Metadata of all topics": lambda: frame_of(MetadataRequest(topics=None), 9, 1),
    "Heartbeat": lambda: frame_of(HeartbeatRequest("nosuch", 1, "nobody"), 4, 1),
    "Produce, acks=0": lambda: produce("pushed", batch(100, 1), 0),
    "Produce, acks=all": lambda: produce("pushed", batch(100, 1), -1),
    "Produce, acks=all, 1 MB": lambda: produce("pushed", batch(10_000, 95), -1),
    "Produce, acks=all, zstd, 8 MB of zeros": lambda: produce("pushed", batch(8000, 1000, 4), -1),
    "Produce of a bomb": lambda: produce("pushed", batch(1 << 20, 64, 4), -1),
    "ListOffsets by time": lambda: frame_of(
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic("pushed", [ListOffsetsPartition(0, timestamp=NOW + 1)])]
        ),
        7,
        1,
    ),
    "ListOffsets by time, many small records": lambda: frame_of(
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic("small", [ListOffsetsPartition(0, timestamp=NOW + 1)])]
        ),
        7,
        1,
    ),
    "Fetch": lambda: frame_of(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic="pushed",
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                )
            ],
        ),
        11,
        1,
    ),
    "DescribeConfigs": lambda: frame_of(DescribeConfigsRequest([DescribeConfigsResource(2, "pushed", None)]), 4, 1),
}


def push(port: int, data: bytes, end: Event) -> None:
    """Send the frame over ten connections until `end` is set, and drop the answers."""
    chunk = memoryview(data * max(1, CHUNK_BYTES // len(data)))
    with selectors.DefaultSelector() as selector:
        at: dict[int, int] = {}

        def connect() -> None:
            sock = socket.create_connection(("127.0.0.1", port), 10)
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
            at[sock.fileno()] = 0

        for _ in range(CONNECTIONS):
            connect()
        waste = bytearray(1 << 20)
        while not end.is_set():
            for key, events in selector.select(0.1):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                try:
                    if events & selectors.EVENT_READ and not sock.recv_into(waste):
                        raise ConnectionError
                    if events & selectors.EVENT_WRITE:
                        sent = sock.send(chunk[at[key.fd] :])
                        at[key.fd] = (at[key.fd] + sent) % len(chunk)
                except BlockingIOError:
                    continue
                except OSError:
                    selector.unregister(sock)
                    sock.close()
                    connect()


def fare(port: int, seconds: float) -> list[float]:
    """Produce for some seconds; returns the times of acknowledgements, in seconds."""
    asked = produce("victim", batch(100, 1), -1)
    times = []
    with socket.create_connection(("127.0.0.1", port), 120) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            sock.sendall(asked)
            (left,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            while left:
                left -= len(sock.recv(left))
            times.append(time.perf_counter() - began)
    return times


def prepare(port: int) -> None:
    """Create the topics: `pushed` has a batch, `small` has one with many small records, `victim` is the client's."""
    with Pipe(port) as pipe:
        names = ("pushed", "small", "victim")
        topics = [CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1) for name in names]
        pipe.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        small = build_batch([Record(None, None, NOW)] * 400_000 + [Record(None, None, NOW + 2)], compression=4)
        for name, data in (("pushed", batch(100, 10)), ("small", small), ("victim", batch(100, 1))):
            while True:
                parts = [PartitionProduceData(index=0, records=data)]
                request = ProduceRequest(
                    acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name, partition_data=parts)]
                )
                if not pipe.ask(request, 9).responses[0].partition_responses[0].error_code:
                    break


def measure(port: int, data: bytes, seconds: float) -> dict[str, float]:
    """p50, p99 and the longest time, in milliseconds, and acknowledgements a second."""
    end = multiprocessing.Event()
    pusher = multiprocessing.Process(target=push, args=(port, data, end), daemon=True) if data else None
    if pusher:
        pusher.start()
    fare(port, 1.0)  # until the flooding has begun
    times = fare(port, seconds)
    end.set()
    if pusher:
        pusher.join(30)
        pusher.kill()
    found = percentiles(times)
    return {"p50": found["p50"], "p99": found["p99"], "max": max(times) * 1000, "acks/s": len(times) / seconds}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--servers", nargs="+", default=list(SERVERS), choices=SERVERS)
    parser.add_argument("--policy", default="fsync", choices=POLICIES)
    parser.add_argument("--push", nargs="+", default=list(PUSHES), choices=list(PUSHES), metavar="WHAT")
    given = parser.parse_args()
    print("| who pushes | server | p50 ms | p99 ms | max ms | acks/s |\n| --- | --- | --- | --- | --- | --- |")
    for name in given.servers:
        if name == "kafka" and (reason := missing("java")):
            print(f"left out: {reason}", file=sys.stderr)
            continue
        for what in given.push:  # each has a new broker, without the state of the one before
            with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
                server = make(name, given.policy, Path(folder))
                if isinstance(server, ApacheKafka):
                    server.format()
                with server:
                    prepare(server.port)
                    found = measure(server.port, PUSHES[what](), given.seconds)
                figures = " | ".join(f"{found[key]:.3g}" for key in ("p50", "p99", "max", "acks/s"))
                print(f"| {what} | {name} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
