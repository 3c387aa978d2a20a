"""Topics on a node that does not own the metadata: it asks the owner for changes, and applies the owner's changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from barnabas.broker.between.forwarding import Owner
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.metadata.image import RESOURCE_TOPIC, Leader, TopicImage
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.queries.keys import PLAN
from barnabas.wire.records.cluster_metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from barnabas.wire.types import Message


class FollowedTopics(TopicManager):
    """Changes of topics, which only the owner makes."""

    owner: Owner

    async def commit(self, records: list[Message], *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("only the owner of the metadata changes them")

    async def auto_create(self, name: str) -> TopicImage:
        """See `TopicManager`; the owner creates the topic."""
        return await self._made_by_owner(name)

    async def internal_topic(self, name: str) -> TopicImage:
        """See `TopicManager`; the owner creates the topic."""
        return await self._made_by_owner(name)

    async def _made_by_owner(self, name: str) -> TopicImage:
        known = self.metadata.topics.get(name)
        if known is not None:
            return known
        asked = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        try:
            answer = await self.owner.ask(CreateTopicsRequest(topics=[asked], timeout_ms=30_000))
        except Unreachable as error:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from None
        (made,) = answer.topics
        found = self.metadata.topics.get(name)
        if made.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) or found is None:
            code = ErrorCode(made.error_code) or ErrorCode.LEADER_NOT_AVAILABLE
            raise KafkaError(code, made.error_message or f"{name} was deleted at once")
        return found

    async def follow(self, records: Sequence[Message], timestamp: int) -> None:
        """Apply a change of the owner. The partitions led here exist before the change becomes visible."""
        async with self.changes:
            await self._follow(records, timestamp)

    async def _follow(self, records: Sequence[Message], timestamp: int) -> None:
        gone = [
            topic.copy()
            for record in records
            if isinstance(record, RemoveTopicRecord) and (topic := self.metadata.by_id.get(record.topic_id)) is not None
        ]
        for topic in self._with_new_partitions(records):
            try:
                await self.make_vnodes(topic, range(len(topic.partitions)))
            except KafkaError as error:
                self.missing(error)
        await self.change_leaders(records, lambda: self.metadata.change(records, timestamp))
        for topic in gone:
            await self._drop_vnodes(topic, list(topic.partitions))

    def _with_new_partitions(self, records: Sequence[Message]) -> list[TopicImage]:
        """The topics that get partitions or become query topics by a change, in their new form."""
        found: dict[bytes, TopicImage] = {}
        for record in records:
            if isinstance(record, TopicRecord):
                found[record.topic_id] = TopicImage(record.name, record.topic_id)
            elif isinstance(record, PartitionRecord):
                if record.topic_id not in found:
                    found[record.topic_id] = self.metadata.by_id[record.topic_id].copy()
                leader = Leader(record.leader, record.leader_epoch)
                found[record.topic_id].partitions[record.partition_id] = leader
            elif (
                isinstance(record, ConfigRecord)
                and record.name == PLAN
                and record.resource_name in self.metadata.topics
            ):
                known = self.metadata.topics[record.resource_name]
                found.setdefault(known.topic_id, known.copy())
        by_name = {topic.name: topic for topic in found.values()}
        for record in records:
            if isinstance(record, ConfigRecord) and record.resource_type == RESOURCE_TOPIC:
                topic = by_name.get(record.resource_name)
                if topic is not None and record.value is not None:
                    topic.configs[record.name] = record.value
        return list(found.values())


class FollowedProducerIds(ProducerIds):
    """Blocks of producer ids from the owner."""

    owner: Owner

    async def reserve(self) -> tuple[int, int]:
        """See `ProducerIds`; the owner reserves the block."""
        try:
            answer = await self.owner.ask(AllocateProducerIdsRequest(broker_id=self._topics.metadata.node_id))
        except Unreachable as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from None
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "the owner of the metadata did not reserve producer ids")
        return answer.producer_id_start, answer.producer_id_len
