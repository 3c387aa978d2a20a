"""The messages between broker and driver: a log of JSON records that both append to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.fetch import fetch, records_of
from barnabas.client.offsets import LATEST, READ_COMMITTED, list_offsets
from barnabas.client.produce import Batch, produce
from barnabas.streams.query.errors import FatalError, TakenOverError
from barnabas.streams.query.events import Event
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.queries.messages import Changed, Conversation, decode, encode
from barnabas.wire.queries.writer import SECRET_FILE

_MAX_BYTES = 1 << 20
NO_ENDS: Mapping[TopicPartition, int] = {}


class Control:
    """The driver's side. Raises ClientError if the broker does not answer."""

    def __init__(self, cluster: Cluster, data_dir: str) -> None:
        self._cluster, self._data_dir = cluster, data_dir
        try:
            self._next = list_offsets(cluster, [(QUERIES_TOPIC, 0)], LATEST)[QUERIES_TOPIC, 0]
        except ClientError:  # the first driver: the broker creates the log when it is asked for a producer id
            self._next = 0
        self.producer_id, self.writer_id = -1, ""
        self.take_over()

    def take_over(self) -> None:
        """Become the only one that writes query topics. The broker repeats its unanswered questions."""
        path = os.path.join(self._data_dir, SECRET_FILE)
        try:
            with open(path) as file:
                self.writer_id = file.read()
        except OSError as error:
            raise FatalError(f"{path}: {error.strerror}: run the driver as the broker's user") from None
        answer = self._cluster.any(
            InitProducerIdRequest(transactional_id=self.writer_id, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
        )
        if answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise ClientError(f"the secret in {path} is not that of the broker that runs")
        check(answer.error_code, "a producer id for query topics")
        self.producer_id = answer.producer_id

    def hear(self, wait_ms: int, ends: Mapping[TopicPartition, int] = NO_ENDS) -> list[Conversation]:
        """The messages since the last call. Waits up to `wait_ms` for one, or for a record after one of `ends`."""
        key = (QUERIES_TOPIC, 0)
        wanted = {key: self._next, **ends}
        try:
            told = fetch(
                self._cluster, wanted, wait_ms=wait_ms, max_bytes=_MAX_BYTES, isolation=READ_COMMITTED, peek=ends
            )
        except ClientError:  # one of these topics may be gone
            if not ends:
                raise
            return self.hear(0)
        if key not in told:
            return []
        part = told[key]
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # nobody has listened for a long time
            self._next = list_offsets(self._cluster, [key], LATEST)[key]
            return [Changed()]
        check(part.error_code, f"Fetch of {QUERIES_TOPIC}")
        messages = []
        for record, position in records_of(part, self._next):
            self._next = position
            message = decode(record.value) if record is not None else None
            if message is not None:
                messages.append(message)
        return messages

    def has_unheard(self) -> bool:
        """Whether there are messages that `hear` has not given yet."""
        key = (QUERIES_TOPIC, 0)
        return list_offsets(self._cluster, [key], LATEST)[key] > self._next

    def say(self, message: Conversation) -> None:
        """Append a message."""
        self._append(self._cluster, QUERIES_TOPIC, Record(None, encode(message), now_ms()), acks=1)

    def note(self, message: Conversation, cluster: Cluster) -> None:
        """Append a message that must not be lost, from another thread, over separate connections."""
        self._append(cluster, QUERIES_TOPIC, Record(None, encode(message), now_ms()), acks=-1)

    def tell(self, topic: str, event: Event) -> None:
        """Append an event to the results of a query over a pattern."""
        self._append(self._cluster, topic, event.record(now_ms()), acks=-1)

    def _append(self, cluster: Cluster, topic: str, record: Record, *, acks: int) -> None:
        batch = build_batch([record], producer_id=self.producer_id, producer_epoch=0, base_sequence=0)
        told = produce(cluster, [Batch(topic, 0, batch)], acks=acks, transactional_id=self.writer_id)
        part = told[topic, 0]
        if part.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            raise TakenOverError(part.error_message or "another driver writes")
        check(part.error_code, f"Produce to {topic}", part.error_message)


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
