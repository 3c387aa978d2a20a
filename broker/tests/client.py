"""A client that sends single messages, for tests of the wire protocol itself."""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import trio

import barnabas.broker.apis  # noqa: F401  registers what can be asked
from barnabas.broker.registry import APIS
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.types import Message

M = TypeVar("M", bound=Message)
NOW = 1_700_000_000_000


class Closed(Exception):
    """The broker has closed the connection."""


def frame_of(request: Message, version: int, correlation_id: int = 1, client_id: str | None = "test") -> bytes:
    """A whole request as it is sent."""
    spec = request.__wire__
    head = write_request_header(spec.key, version, correlation_id, client_id, version >= spec.flexible.first)
    body = head + message_codec(type(request), version).build(request)
    return len(body).to_bytes(4, "big") + body


def batch_of(*values: bytes, key: bytes | None = b"k", **settings: Any) -> bytes:
    """One record batch."""
    return build_batch([Record(key, value, NOW) for value in values], **settings)


class Client:
    """One connection. `ask` sends a request and returns its answer; `send` and `receive` are its two halves."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.client_id = "test"
        self._sent = 0
        self._expected: list[tuple[Message, int, int]] = []

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stream.aclose()

    async def send_bytes(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def send(self, request: Message, version: int | None = None) -> None:
        version = request.__wire__.versions.last if version is None else version
        self._sent += 1
        self._expected.append((request, version, self._sent))
        await self.send_bytes(frame_of(request, version, self._sent, self.client_id))

    async def receive_frame(self) -> bytes:
        """The next response. Raises Closed."""
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        with trio.fail_after(60):
            while len(parts) < size:
                try:
                    part = await self.stream.receive_some(size - len(parts))
                except trio.BrokenResourceError:
                    part = b""
                if not part:
                    raise Closed
                parts += part
        return bytes(parts)

    async def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        request, version, correlation_id = self._expected.pop(0)
        return answer_of(await self.receive_frame(), request, version, correlation_id)

    async def ask(self, request: Message, version: int | None = None) -> Any:
        await self.send(request, version)
        return await self.receive()

    async def is_closed(self) -> bool:
        """Wait until the broker closes the connection. Bytes that it still sends are skipped."""
        try:
            while True:
                await self._exactly(1)
        except Closed:
            return True

    # --- what most tests need -----------------------------------------------------------------------------------------

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
        answer = await self.ask(CreateTopicsRequest(topics=[topic]))
        assert answer.topics[0].error_code == 0, answer

    async def produce(
        self, topic: str, data: bytes | None, partition: int = 0, acks: int = -1, version: int = 9
    ) -> Any:
        """Produce one batch, and return the partition's answer."""
        return (
            (await self.ask(produce_request(topic, data, partition, acks), version)).responses[0].partition_responses[0]
        )

    async def fetch(self, topic: str, offset: int = 0, partition: int = 0, **settings: Any) -> Any:
        """Fetch from one partition, and return its answer."""
        return (await self.ask(fetch_request(topic, offset, partition, **settings), 12)).responses[0].partitions[0]


def answer_of(data: bytes, request: Message, version: int, correlation_id: int) -> Any:
    """Decode a response, down to its last byte."""
    api = APIS[request.__wire__.key]
    assert int.from_bytes(data[:4], "big") == correlation_id, "an answer out of turn"
    start = 5 if version >= api.flexible_from and api.key != 18 else 4
    answer, end = message_codec(api.response, version).decode(data, start)
    assert end == len(data)
    return answer


def produce_request(topic: str, data: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(index=partition, records=data)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])


def fetch_request(
    topic: str,
    offset: int = 0,
    partition: int = 0,
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
) -> FetchRequest:
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


async def connect(port: int, host: str = "127.0.0.1", source: str | None = None) -> Client:
    """A new connection to a broker; `source` is the client's address."""
    return Client(await trio.open_tcp_stream(host, port, local_address=source))
