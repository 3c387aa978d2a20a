"""Changes of topics, if the console may make any: produce a record, create a topic, change settings, delete a topic."""

from __future__ import annotations

import msgspec
import trio

from barnabas.broker.http.asking import Asker, Broker, check
from barnabas.broker.http.messages import Refused, Request, Response, json_answer
from barnabas.broker.http.views.cluster import RESOURCE_TOPIC, must_write
from barnabas.broker.http.views.fetching import partitions_of
from barnabas.broker.http.views.given import body, decoded
from barnabas.client.partitioner import murmur2
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MOST_HEADERS_BYTES, MOST_SETTINGS = 64 << 10, 200
#: The hash of a longer key takes more than a millisecond, so it is computed in a thread.
MOST_KEY_AT_ONCE = 4 << 10
SET, DELETE = 0, 1
_BY_NAME = 12  # the last version of Produce that names topics


class NewRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record to produce. Key and value are strings or null. Without a partition, one is chosen as clients do.

    `headers` is a list of pairs. It is decoded after a check of its size.
    """

    topic: str
    value: str | None
    key: str | None = None
    headers: msgspec.Raw = msgspec.Raw(b"[]")
    partition: int | None = None


async def produce(asker: Asker, broker: Broker, request: Request) -> Response:
    """Append one record. The body is a `NewRecord`."""
    must_write(broker)
    given = body(request, NewRecord)
    parts = await partitions_of(asker, given.topic)
    key = None if given.key is None else given.key.encode()
    partition = given.partition
    if partition is None:
        number = broker.clock.wall_ms() if key is None else await _hash(key)
        partition = parts[number % len(parts)]
    if len(memoryview(given.headers)) > MOST_HEADERS_BYTES:
        raise Refused(400, f"the headers are too long: at most {MOST_HEADERS_BYTES:,} bytes")
    headers = tuple((name, value.encode()) for name, value in decoded(given.headers, list[tuple[str, str]]))
    value = None if given.value is None else given.value.encode()
    batch = build_batch([Record(key, value, broker.clock.wall_ms(), headers)])
    data = [PartitionProduceData(index=partition, records=memoryview(batch))]
    topic_data = [TopicProduceData(name=given.topic, partition_data=data)]
    asked = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)
    answer = (await asker.ask(asked, _BY_NAME)).responses[0].partition_responses[0]
    what = "; ".join(each.batch_index_error_message or "" for each in answer.record_errors) or answer.error_message
    check(answer.error_code, f"{given.topic}-{partition}", what)
    return json_answer({"partition": partition, "offset": answer.base_offset})


async def _hash(key: bytes) -> int:
    """The hash of a key that chooses its partition, before the modulo."""
    return murmur2(key) if len(key) <= MOST_KEY_AT_ONCE else await trio.to_thread.run_sync(murmur2, key)


class NewTopic(msgspec.Struct, forbid_unknown_fields=True):
    """A topic to create. Without a number of partitions, the broker's default applies."""

    name: str
    partitions: int = -1
    settings: dict[str, str] = {}


async def create(asker: Asker, broker: Broker, request: Request) -> Response:
    """Create a topic, or a query topic if `barnabas.query` is among its settings. The body is a `NewTopic`."""
    must_write(broker)
    given = body(request, NewTopic)
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in given.settings.items()]
    topic = CreatableTopic(
        name=given.name, num_partitions=given.partitions, replication_factor=-1, configs=configs[:MOST_SETTINGS]
    )
    (told,) = (await asker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))).topics
    check(told.error_code, given.name, told.error_message)
    return json_answer({"name": given.name, "partitions": told.num_partitions})


class NewSettings(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of a topic to change. Null resets a setting to its default."""

    name: str
    settings: dict[str, str | None]


async def alter(asker: Asker, broker: Broker, request: Request) -> Response:
    """Change settings of a topic. The body is a `NewSettings`."""
    must_write(broker)
    given = body(request, NewSettings)
    changes = [
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in list(given.settings.items())[:MOST_SETTINGS]
    ]
    resource = AlterConfigsResource(resource_type=RESOURCE_TOPIC, resource_name=given.name, configs=changes)
    (told,) = (await asker.ask(IncrementalAlterConfigsRequest(resources=[resource]))).responses
    check(told.error_code, given.name, told.error_message)
    return json_answer({"name": given.name})


class Named(msgspec.Struct, forbid_unknown_fields=True):
    """The name of a topic."""

    name: str


async def delete(asker: Asker, broker: Broker, request: Request) -> Response:
    """Delete a topic with its records. The body has its `name`."""
    must_write(broker)
    given = body(request, Named)
    (told,) = (
        await asker.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=given.name)], timeout_ms=60_000))
    ).responses
    check(told.error_code, given.name, told.error_message)
    return json_answer({"deleted": given.name})
