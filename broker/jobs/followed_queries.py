"""Query topics on a node that does not own the metadata: the owner makes them and exchanges messages with the
driver."""

from __future__ import annotations

from contextlib import suppress

import trio

from barnabas.broker.between.envelopes import Sender, answer_in, envelope_of
from barnabas.broker.between.forwarding import Owner
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.registry import APIS
from barnabas.broker.security.principals import DRIVER
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.principal_data import PrincipalData
from barnabas.wire.queries.messages import Status, decode
from barnabas.wire.schema import ProtocolError

# For a status: how long to wait for the owner, how many of the last messages to read, and their most bytes.
_STATUS_SECONDS, _LAST_MESSAGES, _MOST_BYTES = 2.0, 100, 8 << 20
_FETCH_BY_NAME = 12  # the last version that names topics


class FollowedQueries(Queries):
    """The plans of all query topics and the driver's producer id, as the metadata has them."""

    owner: Owner

    async def new_writer(self) -> int:
        """See `Queries`: the owner gives the id, and this node knows it when the owner answers."""
        asked = InitProducerIdRequest(transactional_id=self.secret.writer_id, transaction_timeout_ms=60_000)
        try:
            answer = await self.owner.ask(asked)
        except Unreachable as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from None
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "the owner of the metadata gave the driver no producer id")
        producer_id: int = answer.producer_id
        return producer_id

    async def latest_status(self) -> Status | None:
        """See `Queries`: read from the last records of the log that the owner leads."""
        place = QUERIES_TOPIC, 0
        latest: Status | None = None
        with trio.move_on_after(_STATUS_SECONDS), suppress(Unreachable, ProtocolError):
            end = (await self._offsets.ends_elsewhere([place], _STATUS_SECONDS)).get(place, 0)
            part = FetchPartition(0, fetch_offset=max(0, end - _LAST_MESSAGES), partition_max_bytes=_MOST_BYTES)
            topic = FetchTopic(topic=QUERIES_TOPIC, partitions=[part])
            request = FetchRequest(max_wait_ms=0, max_bytes=_MOST_BYTES, topics=[topic])
            sender = Sender(PrincipalData(*DRIVER), "", None)
            api = APIS[FetchRequest.__wire__.key]
            told = await self.owner.ask(envelope_of(api, _FETCH_BY_NAME, request, sender))
            for answer in answer_in(told, api, _FETCH_BY_NAME).responses:  # type: ignore[attr-defined]
                for found in answer.partitions:
                    latest = _last_status(bytes(found.records or b"")) or latest
        return latest

    async def _grow(self, name: str, count: int) -> None:
        """Does nothing: the owner adds the partitions."""


def _last_status(data: bytes) -> Status | None:
    found: Status | None = None
    for _, batch in iter_batches(data):
        for record in iter_records(batch):
            message = decode(record.value)
            found = message if isinstance(message, Status) else found
    return found
