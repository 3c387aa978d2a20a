"""Connections, partitions and groups in large numbers."""

from __future__ import annotations

import sys
import time

from barnabas.client.connection import Connection, connect, parse_servers
from barnabas.client.errors import check
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from bench import client, frames
from bench.create import create_many
from bench.limits import need_files
from bench.running import IDLE_SECONDS, Running
from bench.session import measure

ASKED = 20


def connections(running: Running, count: int) -> dict[str, float]:
    """Idle connections, which have only sent ApiVersions."""
    need_files(count)
    before = running.meter.rss()
    found, clock = client.load(
        running.address, running.meter, [frames.opening()], [], connections=count, seconds=IDLE_SECONDS
    )
    return {
        "connect s": found["connect s"],
        "KiB/connection": (clock.rss - before) * 1024 / count,
        "idle CPU %": clock.cpu / clock.wall * 100,
    }


def session(running: Running, count: int) -> dict[str, float]:
    """A fetch session over many partitions, with a trickle of data to one of them."""
    topics = create_many(running.address, "session", count)
    return measure(running.address, running.meter, topics)


def partitions(running: Running, count: int) -> dict[str, float]:
    """The cost of many partitions: to create, to request metadata, to write, to fetch in a session, and in memory."""
    began = time.perf_counter()
    topics = create_many(running.address, "many", count)
    shown = {"create s": time.perf_counter() - began}
    names = [name for name, _ in topics]
    wire = connect(parse_servers(running.address))
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=False)
    answer = wire.ask(asked, MetadataResponse, version=frames.METADATA)
    for topic in answer.topics:
        check(topic.error_code, topic.name or "")
    if sum(len(topic.partitions) for topic in answer.topics) != count:
        raise client.ClientFailed("partitions are missing from the metadata")
    requests = [frames.opening(), frames.metadata(names)]
    found, _ = client.load(running.address, running.meter, requests, [], settle=0, requests=ASKED)
    shown["metadata ms"] = found["p50"]
    began = time.perf_counter()
    for name, share in topics:
        produce_to_all(wire, name, share)
    shown["produce to all s"] = time.perf_counter() - began
    wire.close()
    fetched = measure(running.address, running.meter, topics)
    shown |= {"full fetch ms": fetched["full fetch ms"], "incremental fetch ms": fetched["p50 ms"]}
    return {**shown, **running.idle()}


def produce_to_all(wire: Connection, topic: str, partitions: int) -> None:
    """Write one record to every partition, in one request."""
    data = frames.batch()
    parts = [PartitionProduceData(p, data) for p in range(partitions)]
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(topic, partition_data=parts)])
    answer = wire.ask(request, ProduceResponse, version=frames.PRODUCE, wait=60)
    for part in answer.responses[0].partition_responses:
        check(part.error_code, f"{topic}-{part.index}")


def groups(running: Running, count: int) -> dict[str, float]:
    """Groups of four: join, steady heartbeats, one rebalance."""
    need_files(5 * count)
    command = [sys.executable, "-m", "bench.groups", running.address, str(count)]
    found, clock = client.run(command, running.meter)
    return {**found, "steady CPU %": clock.cpu / clock.wall * 100, "MiB": clock.rss}
