"""Create topics, and wait until every partition answers."""

from __future__ import annotations

import time

from barnabas.client.connection import Connection, connect, parse_servers
from barnabas.client.errors import check
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PER_TOPIC = 1000
DEADLINE_SECONDS = 120.0
NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


def create(address: str, topic: str, partitions: int = 6) -> None:
    """Make a topic, and return when all its partitions can be used."""
    wire = connect(parse_servers(address))
    request = CreateTopicsRequest(topics=[CreatableTopic(topic, partitions, 1)], timeout_ms=120_000)
    answer = wire.ask(request, CreateTopicsResponse, wait=DEADLINE_SECONDS)
    check(answer.topics[0].error_code, topic, answer.topics[0].error_message)
    if len(leaders(address, topic)[1]) > 1:  # several nodes answer when all leaders are ready
        wire.close()
        return
    until = time.perf_counter() + DEADLINE_SECONDS
    while end_offsets(wire, topic, partitions) is None:
        if time.perf_counter() > until:
            raise SystemExit(f"{topic}: not usable after {DEADLINE_SECONDS:.0f} s")
        time.sleep(0.005)  # Kafka creates partitions after its answer, without a notice
    wire.close()


def leaders(address: str, topic: str) -> tuple[list[int], list[int]]:
    """The ports of the leaders of a topic's partitions, in the order of partitions, and the ports of all nodes."""
    wire = connect(parse_servers(address))
    answer = wire.ask(MetadataRequest([MetadataRequestTopic(name=topic)], False), MetadataResponse)
    wire.close()
    ports = {node.node_id: node.port for node in answer.brokers}
    parts = sorted(answer.topics[0].partitions, key=lambda part: part.partition_index)
    return [ports.get(part.leader_id, 0) for part in parts], list(ports.values())


def records(address: str, topic: str) -> int:
    """The number of records of a topic, from its partitions' end offsets."""
    answer = 0
    ports, _ = leaders(address, topic)
    for index, port in enumerate(ports):
        host = parse_servers(address)[0].host
        wire = connect(parse_servers(f"{host}:{port}"))
        asked = ListOffsetsTopic(topic, partitions=[ListOffsetsPartition(index, timestamp=-1)])
        found = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), ListOffsetsResponse, version=7)
        part = found.topics[0].partitions[0]
        check(part.error_code, f"{topic}-{index}")
        answer += part.offset
        wire.close()
    return answer


def create_many(address: str, prefix: str, count: int) -> list[tuple[str, int]]:
    """Make `count` partitions, in topics of at most a thousand; returns (topic, partitions) of each."""
    topics = [(f"{prefix}-{i}", min(count, PER_TOPIC)) for i in range(max(1, count // PER_TOPIC))]
    for topic, partitions in topics:
        create(address, topic, partitions)
    return topics


def end_offsets(wire: Connection, topic: str, partitions: int = 6) -> list[int] | None:
    """The log end offset of each partition; None if one cannot be used yet."""
    asked = ListOffsetsTopic(topic, partitions=[ListOffsetsPartition(p, timestamp=-1) for p in range(partitions)])
    answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), ListOffsetsResponse, version=7)
    parts = answer.topics[0].partitions
    for part in parts:
        if part.error_code in NOT_YET:
            return None
        check(part.error_code, f"{topic}-{part.partition_index}")
    return [part.offset for part in sorted(parts, key=lambda p: p.partition_index)]
