"""The client of the rows about transactions: `python -m bench.transactions HOST PORT TOPIC PRODUCERS SECONDS [SOURCE]`.

Each producer has a connection and a transactional id, and repeats: ten records into three partitions, commit. With a
SOURCE topic, it first fetches ten committed records from it, and its transaction also commits their offset for a group.
The protocol is that of Kafka 4's own clients: Produce adds partitions, the epoch grows with each transaction (KIP-890).
A transaction whose predecessor is still being completed (CONCURRENT_TRANSACTIONS) is sent again at once.

Warm-up and output are those of bench/load.c. One process runs all producers; its share of the time is the same for
every broker.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from collections.abc import Generator
from typing import Any

from barnabas.wire import batch
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import write_request_header
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.wire.types import Message
from bench.percentiles import percentiles
from bench.warm import MOST_SECONDS, SLICE_SECONDS, settled

RECORDS, VALUE_BYTES = (4, 3, 3), 100
TRANSACTION, READ_COMMITTED = 1, 1
# Producer id, epoch and base sequence are adjacent in a batch.
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
Asked = tuple[Message, int, type[Message]]
Talk = Generator[Asked, Any, None]


def until_accepted(request: Message, version: int, kind: type[Message]) -> Generator[Asked, Any, Any]:
    """Repeat a request while its error is one of `_AGAIN`. Any other error ends the program."""
    while True:
        answer = yield request, version, kind
        code = error_of(answer)
        if not code:
            return answer
        if code not in _AGAIN:
            sys.exit(f"{kind.__name__}: {ErrorCode(code).name}")


def error_of(answer: Any) -> int:
    """The first error code in an answer."""
    if isinstance(answer, ProduceResponse):
        codes = [part.error_code for topic in answer.responses for part in topic.partition_responses]
    elif isinstance(answer, TxnOffsetCommitResponse):
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    elif isinstance(answer, FindCoordinatorResponse):
        codes = [each.error_code for each in answer.coordinators]
    else:
        codes = [answer.error_code]
    return next(filter(None, codes), 0)


class Work:
    """The shared state of all producers: the topics, and the time of each transaction."""

    def __init__(self, topic: str, source: str | None) -> None:
        self.topic, self.source = topic, source
        self.times: list[float] = []
        self.batches = [bytearray(self._batch(count)) for count in RECORDS]

    def _batch(self, count: int) -> bytes:
        records = [Record(b"key", bytes(VALUE_BYTES), int(time.time() * 1000))] * count
        return build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0, is_transactional=True)

    def produce(self, name: str, producer_id: int, epoch: int) -> ProduceRequest:
        """The records of one transaction."""
        parts = []
        for partition, data in enumerate(self.batches):
            _PRODUCER.pack_into(data, _PRODUCER_AT, producer_id, epoch, 0)
            batch.seal(data)
            parts.append(PartitionProduceData(partition, bytes(data)))
        return ProduceRequest(name, -1, 30_000, [TopicProduceData(self.topic, partition_data=parts)])

    def talk(self, number: int) -> Talk:
        """Run one producer, forever."""
        name = f"bench-{number}"
        yield from until_accepted(FindCoordinatorRequest("", TRANSACTION, [name]), 4, FindCoordinatorResponse)
        if self.source:
            yield from until_accepted(FindCoordinatorRequest("", 0, [name]), 4, FindCoordinatorResponse)
        given = yield from until_accepted(InitProducerIdRequest(name, 60_000), 4, InitProducerIdResponse)
        producer_id, epoch = given.producer_id, given.producer_epoch
        offset = 0
        while True:
            began = time.perf_counter()
            if self.source:
                offset = yield from self._fetched(self.source, number, offset)
            yield from until_accepted(self.produce(name, producer_id, epoch), 12, ProduceResponse)
            if self.source:
                place = TxnOffsetCommitRequestPartition(number, offset)
                places = [TxnOffsetCommitRequestTopic(self.source, [place])]
                commit = TxnOffsetCommitRequest(name, name, producer_id, epoch, topics=places)
                yield from until_accepted(commit, 5, TxnOffsetCommitResponse)
            ended = yield from until_accepted(EndTxnRequest(name, producer_id, epoch, True), 5, EndTxnResponse)
            producer_id, epoch = ended.producer_id, ended.producer_epoch
            self.times.append(time.perf_counter() - began)

    def _fetched(self, source: str, partition: int, offset: int) -> Generator[Asked, Any, int]:
        """Fetch some records; returns the offset after them, or 0 at the end of the topic."""
        part = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=2000)
        topics = [FetchTopic(source, partitions=[part])]
        request = FetchRequest(max_wait_ms=1000, isolation_level=READ_COMMITTED, session_epoch=-1, topics=topics)
        answer = yield request, 12, FetchResponse
        data = answer.responses[0].partitions[0].records or b""
        last = [header.last_offset for header, _ in batch.iter_batches(data)]
        return last[-1] + 1 if last else 0


class Wire:
    """A connection that runs one talk, one request after the other."""

    def __init__(self, address: tuple[str, int], talk: Talk) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._talk = talk
        self._data = bytearray()
        self._ask(next(talk))

    def _ask(self, asked: Asked) -> None:
        request, version, self._kind = asked
        spec = type(request).__wire__
        self._version = version
        body = write_request_header(spec.key, version, 1, "bench", version in spec.flexible)
        body += message_codec(type(request), version).build(request)
        self.socket.sendall(len(body).to_bytes(4, "big") + body)

    def receive(self) -> None:
        """Receive the available bytes; after a whole answer, send the next request."""
        self._data += self.socket.recv(1 << 20)
        if len(self._data) < 4 or len(self._data) < 4 + int.from_bytes(self._data[:4], "big"):
            return
        body, self._data = bytes(self._data[4:]), bytearray()
        flexible = self._version in self._kind.__wire__.flexible
        answer, _ = message_codec(self._kind, self._version).decode(body, 5 if flexible else 4)
        self._ask(self._talk.send(answer))


def main() -> None:
    host, port, topic, producers, seconds, *source = sys.argv[1:]
    work = Work(topic, source[0] if source else None)
    selector = selectors.DefaultSelector()
    for number in range(int(producers)):
        wire = Wire((host, int(port)), work.talk(number))
        selector.register(wire.socket, selectors.EVENT_READ, wire)

    def run_for(length: float) -> float:
        """Run for some seconds; returns the transactions per second."""
        began, before = time.perf_counter(), len(work.times)
        while (now := time.perf_counter()) < began + length:
            for key, _ in selector.select(1):
                key.data.receive()
        return (len(work.times) - before) / (now - began)

    rates: list[float] = []
    while not settled(rates) and len(rates) * SLICE_SECONDS < MOST_SECONDS:
        rates.append(run_for(SLICE_SECONDS))
    work.times.clear()
    print("measuring", flush=True)
    rate = run_for(float(seconds))
    print("measured", flush=True)
    print(json.dumps({"transactions": len(work.times), "rate": rate, **percentiles(work.times)}))


if __name__ == "__main__":
    main()
