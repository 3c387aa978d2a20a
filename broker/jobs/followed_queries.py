"""Query topics on a node that does not own the metadata: the owner makes them and talks to the driver."""

from __future__ import annotations

from barnabas.broker.between.forwarding import Owner
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.clock import Clock
from barnabas.broker.identity import Identity
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.partitions import Partitions
from barnabas.broker.reading.offsets import Offsets
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Workers
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest


class FollowedQueries(Queries):
    """The plans of all query topics, and who the driver is, as the metadata have them."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: Identity,
        metadata: MetadataImage,
        topics: TopicManager,
        partitions: Partitions,
        offsets: Offsets,
        flusher: Flusher,
        producer_ids: ProducerIds,
        workers: Workers,
        clock: Clock,
        log: EventLog,
        io: Io,
        owner: Owner,
    ) -> None:
        super().__init__(
            *(config, identity, metadata, topics, partitions, offsets, flusher, producer_ids, workers, clock, log, io)
        )
        self._owner = owner

    async def new_writer(self) -> int:
        """See `Queries`: the owner gives it, and this node knows it when the owner answers."""
        asked = InitProducerIdRequest(transactional_id=self.secret.writer_id, transaction_timeout_ms=60_000)
        try:
            answer = await self._owner.ask(asked)
        except Unreachable as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from None
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "the owner of the metadata gives the driver no producer id")
        producer_id: int = answer.producer_id
        return producer_id

    async def _grow(self, name: str, count: int) -> None:
        """The owner sees to it."""
