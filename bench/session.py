"""A consumer of many partitions in one incremental fetch session (KIP-227), with a trickle of data to one of them.

It sends one fetch at a time, which does not wait. After every hundred fetches it produces a record, outside the
measured time. After the fetch that finds it, another fetch moves the offset, as a consumer does. An empty answer is
known beforehand and only compared; all other answers are decoded and checked.
"""

from __future__ import annotations

import socket
import time

from barnabas.client.connection import Connection, parse_servers
from barnabas.client.errors import check
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import skip_header_tags
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from bench import frames
from bench.create import end_offsets
from bench.percentiles import percentiles
from bench.servers import Clock, Meter
from bench.warm import MOST_SECONDS, SLICE_SECONDS, settled

TRICKLE = 100


class Session:
    """A session on one connection, and the producer on another."""

    def __init__(self, address: str, topics: list[tuple[str, int]]) -> None:
        (broker,) = parse_servers(address)
        self._producer = Connection(broker)
        self._socket = socket.create_connection(broker)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        part = PartitionProduceData(0, frames.batch())
        self._record = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topics[0][0], partition_data=[part])]
        )
        self._id = self._epoch = 0
        self.times: list[float] = []
        self.seen = 0  # partitions in which a fetch found records
        self._asked = []
        for name, count in topics:
            ends = end_offsets(self._producer, name, count) or []
            self._asked.append(FetchTopic(name, partitions=[_from(p, end) for p, end in enumerate(ends)]))
        began = time.perf_counter()
        self._id = self._read(self._exchange()).session_id
        self.full_seconds = time.perf_counter() - began
        if not self._id:
            raise SystemExit("the broker gave no fetch session")
        self._nothing = self._exchange()
        if self._read(self._nothing).responses:
            raise SystemExit("a fetch from the end found something")

    def fetch(self) -> None:
        """Send one fetch, and note its time."""
        began = time.perf_counter()
        answer = self._exchange()
        self.times.append(time.perf_counter() - began)
        if answer != self._nothing:
            self._read(answer)

    def trickle(self) -> None:
        """Write one record to the first partition."""
        answer = self._producer.ask(self._record, ProduceResponse, version=frames.PRODUCE)
        check(answer.responses[0].partition_responses[0].error_code, "produce")

    def close(self) -> None:
        """End the connections."""
        self._socket.close()
        self._producer.close()

    def _exchange(self) -> bytes:
        request = FetchRequest(max_wait_ms=0, session_id=self._id, session_epoch=self._epoch, topics=self._asked)
        self._socket.sendall(frames.frame(request, frames.FETCH))
        self._epoch += 1
        self._asked = []
        return self._receive(int.from_bytes(self._receive(4), "big"))

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def _read(self, answer: bytes) -> FetchResponse:
        """Decode and check an answer, and move the offsets of its partitions."""
        found = message_codec(FetchResponse, frames.FETCH).decode(answer, skip_header_tags(answer, 4))[0]
        check(found.error_code, "fetch")
        for topic in found.responses:
            for part in topic.partitions:
                check(part.error_code, f"{topic.topic}-{part.partition_index}")
            moved = [_from(p.partition_index, p.high_watermark) for p in topic.partitions if p.records]
            if moved:
                self._asked.append(FetchTopic(topic.topic, partitions=moved))
                self.seen += len(moved)
        return found


def _from(partition: int, offset: int) -> FetchPartition:
    return FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)


def measure(address: str, meter: Meter, topics: list[tuple[str, int]], seconds: float = 3) -> dict[str, float]:
    """Warm up, then fetch for some seconds, and until the trickle was found twice."""
    session = Session(address, topics)
    rates: list[float] = []
    began = time.perf_counter()
    while not settled(rates) and time.perf_counter() - began < MOST_SECONDS:
        rates.append(_rate(session, SLICE_SECONDS))
    session.times.clear()
    with Clock(meter) as clock:
        rate = _rate(session, seconds, 2 * TRICKLE)
    if not session.seen:
        raise SystemExit("no fetch found the trickle")
    session.close()
    return {
        "req/s": rate,
        "p50 ms": percentiles(session.times)["p50"],
        "CPU us/req": clock.cpu / len(session.times) * 1e6,
        "full fetch ms": session.full_seconds * 1000,
    }


def _rate(session: Session, seconds: float, least: int = 1) -> float:
    """Fetch for `seconds`, and at least `least` times; returns the rate."""
    count, began = 0, time.perf_counter()
    while count < least or time.perf_counter() < began + seconds:
        session.fetch()
        count += 1
        if count % TRICKLE == 0:
            session.trickle()
    return count / (time.perf_counter() - began)
