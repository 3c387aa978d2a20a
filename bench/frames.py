"""Prepared requests for the load client, and the positions of error codes in their answers."""

from __future__ import annotations

import time
from collections.abc import Callable

from barnabas.wire.batch import Record, build_batch
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.fetch import PartitionData as Fetched
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.types import Message

CORRELATION_ID = 1
# Versions that both brokers support, with topics by name.
PRODUCE, FETCH, METADATA, API_VERSIONS = 9, 12, 12, 3


def frame(request: Message, version: int) -> bytes:
    """A request with its header and length."""
    spec = type(request).__wire__
    body = write_request_header(spec.key, version, CORRELATION_ID, "bench", version in spec.flexible)
    body += message_codec(type(request), version).build(request)
    return len(body).to_bytes(4, "big") + body


def batch(size: int = 100, count: int = 1) -> bytes:
    """A record batch with values of one size."""
    return build_batch([Record(None, bytes(size), int(time.time() * 1000))] * count)


def produce(topic: str, partition: int, data: bytes) -> bytes:
    """A Produce request for one partition, acks=all."""
    part = PartitionProduceData(partition, data)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=[part])])
    return frame(request, PRODUCE)


def fetch(topic: str, partition: int, offset: int, wait_ms: int) -> bytes:
    """A Fetch request for one partition, without a session."""
    part = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, session_epoch=-1, topics=[FetchTopic(topic, partitions=[part])]
    )
    return frame(request, FETCH)


def metadata(topics: list[str]) -> bytes:
    """A Metadata request."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in topics], allow_auto_topic_creation=False)
    return frame(asked, METADATA)


def opening() -> bytes:
    """The first request of a client: ApiVersions."""
    return frame(ApiVersionsRequest("bench", "1"), API_VERSIONS)


def produce_errors(topic: str) -> list[int]:
    """The positions of error codes in the answer to `produce`."""

    def answer(code: int) -> Message:
        part = PartitionProduceResponse(0, code)
        return ProduceResponse(responses=[TopicProduceResponse(topic, partition_responses=[part])])

    return [_place(answer, PRODUCE)]


def fetch_errors(topic: str) -> list[int]:
    """The positions of error codes in the answer to `fetch`: its own, and the partition's."""

    def answer(own: int, code: int) -> Message:
        part = Fetched(0, code, aborted_transactions=None, records=b"")
        return FetchResponse(error_code=own, responses=[FetchableTopicResponse(topic, partitions=[part])])

    return [_place(lambda code: answer(code, 0), FETCH), _place(lambda code: answer(0, code), FETCH)]


def _place(answer: Callable[[int], Message], version: int) -> int:
    """The offset after the size, with correlation id and tags, at which answers with and without an error differ."""
    type_ = type(answer(0))
    without, with_ = (message_codec(type_, version).build(answer(code)) for code in (0, -1))
    at = next(i for i, (a, b) in enumerate(zip(without, with_, strict=True)) if a != b)
    return 4 + (version in type_.__wire__.flexible) + at
