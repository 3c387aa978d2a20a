"""Batches whose headers are false, over the wire: barnabas's error codes, and where Apache Kafka's differ."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.storage.tests.test_validation import LIES
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from compat_tests.broker_process import Server
from compat_tests.conftest import NewServer
from compat_tests.pipe import Pipe

pytestmark = pytest.mark.one_node(
    "it speaks to one node over connections of its own, which need not lead or coordinate what it asks for"
)

# Kafka has no error code for damaged compressed data. It writes the batches with NONE as they are; readers then fail.
DIFFERENT = {
    "data that does not decompress": ErrorCode.UNKNOWN_SERVER_ERROR,
    "an unknown codec": ErrorCode.UNKNOWN_SERVER_ERROR,
    "a delete horizon": ErrorCode.NONE,
    "its own append time": ErrorCode.NONE,
    "offset deltas of -1": ErrorCode.NONE,
    "a header that is no text": ErrorCode.NONE,
    "too many records": ErrorCode.NONE,
}


@pytest.fixture(scope="module")
def server(new_server: NewServer) -> Server:
    return new_server({"message.max.bytes": str(64 << 20)})


def created(pipe: Pipe, name: str, **configs: str) -> str:
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=given)
    answer = pipe.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert answer.topics[0].error_code == 0, answer
    return name


def produced(pipe: Pipe, topic: str, data: bytes) -> Any:
    """Produce, and return the partition's answer. Kafka creates partitions a little after their topic."""
    while True:
        parts = [PartitionProduceData(index=0, records=data)]
        asked = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topic, partition_data=parts)])
        answer = pipe.ask(asked, 12).responses[0].partition_responses[0]
        if answer.error_code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            return answer


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_with_kafkas_codes(lie: str, server: Server, request: pytest.FixtureRequest) -> None:
    make, code = LIES[lie]
    peer = request.config.getoption("--peer")
    expected = DIFFERENT.get(lie, code) if peer else code
    with Pipe(server.port) as pipe:
        answer = produced(pipe, created(pipe, f"lie-{list(LIES).index(lie)}"), make())
    assert ErrorCode(answer.error_code) is expected


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_an_answer_names_the_records_and_the_log_start(codec: CompressionType, server: Server) -> None:
    with Pipe(server.port) as pipe:
        topic = created(pipe, f"compacted-{codec.name}", cleanup_policy="compact")
        records = [Record(key, b"v", 1_700_000_000_000) for key in (b"k", None, b"k", None)]
        answer = produced(pipe, topic, build_batch(records, compression=codec))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in answer.record_errors] == [1, 3]
        assert all("key" in each.batch_index_error_message for each in answer.record_errors)
        assert answer.error_message
        assert (answer.base_offset, answer.log_start_offset) == (-1, 0)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_timestamps_beyond_the_bounds_are_named_too(codec: CompressionType, server: Server) -> None:
    with Pipe(server.port) as pipe:
        topic = created(pipe, f"late-{codec.name}", message_timestamp_before_max_ms="1000")
        answer = produced(pipe, topic, build_batch([Record(b"k", b"v", 5)] * 3, compression=codec))
        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [each.batch_index for each in answer.record_errors] == [0, 1, 2]
