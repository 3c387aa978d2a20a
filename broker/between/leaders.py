"""Which partitions change their leader when the nodes of a cluster are others than at the last start."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import MetadataImage
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import KafkaError
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.records.cluster_metadata import PartitionChangeRecord, UnregisterBrokerRecord
from barnabas.wire.types import Message

#: Leads a partition that has no leader.
NOBODY = -1


def moves(metadata: MetadataImage, nodes: range) -> list[Message]:
    """The records that spread all partitions evenly over `nodes`, of which the first owns the metadata.

    As few as possible move: those whose leader is none of the nodes, and then from who leads most to who leads fewest.
    What was on its way somewhere arrives there. The streams driver's conversation stays with the owner, which takes
    part in it.
    """
    led: Counter[int] = Counter(dict.fromkeys(nodes, 0))
    homes: dict[int, list[TopicPartition]] = {node: [] for node in nodes}
    homeless: list[TopicPartition] = []
    to: dict[TopicPartition, int] = {}
    for topic in metadata.topics.values():
        for index, (leader, _) in topic.partitions.items():
            at, node = (topic.name, index), leader
            move = metadata.moves.get((topic.topic_id, index))
            if move is not None and move.target in led and topic.name != QUERIES_TOPIC:
                to[at] = move.target
                led[move.target] += 1
                continue
            if topic.name == QUERIES_TOPIC:
                if node != nodes[0]:
                    to[at] = nodes[0]
                led[nodes[0]] += 1
            elif node in led:
                led[node] += 1
                homes[node].append(at)
            else:
                homeless.append(at)
    for at in homeless:
        to[at] = node = min(led, key=lambda each: (led[each], each))
        led[node] += 1
    for node in sorted(nodes, key=lambda each: -led[each]):
        while homes[node] and led[node] > 1 + min(led.values()):
            at = homes[node].pop()
            to[at] = other = min(led, key=lambda each: (led[each], each))
            led[node] -= 1
            led[other] += 1
    gone = [UnregisterBrokerRecord(broker_id=node) for node in metadata.nodes if node not in nodes]
    return [*(led_by(metadata, at, node) for at, node in to.items()), *gone]


async def spread(metadata: MetadataImage, nodes: range, flusher: Flusher, log: EventLog) -> None:
    """At the start of the owner, before anything but the metadata log is open: say who leads what from now on.

    Only when the broker begins: when the owner alone is started again, the others have open what they lead. Where the
    nodes are those of the last start, nothing is written. Raises StorageError.
    """
    elsewhere = any(count and node not in nodes for node, count in metadata.led.items())
    if len(nodes) == 1 and not elsewhere and not metadata.nodes:
        return
    records = moves(metadata, nodes)
    if not records:
        return
    try:
        end = metadata.write(metadata.batch_of(records))
        await flusher.flushed(metadata.log, end)
    except KafkaError as error:
        raise StorageError(f"the metadata log cannot be written: {error}") from error
    for record in records:
        metadata.apply(record)
    log.info("leaders.spread", changes=len(records), nodes=len(nodes))


def leaves(
    metadata: MetadataImage, at: TopicPartition, target: int, *, source: int | None = None
) -> PartitionChangeRecord:
    """A partition has no leader from now on, and goes to another node from its leader, or from `source`."""
    name, index = at
    topic = metadata.topics[name]
    source = topic.partitions[index].node if source is None else source
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic.topic_id,
        leader=NOBODY,
        isr=[],
        replicas=[source, target],
        adding_replicas=[target],
        removing_replicas=[source],
    )


def led_by(metadata: MetadataImage, at: TopicPartition, node: int) -> PartitionChangeRecord:
    """A partition gets another leader, which has its only replica."""
    name, index = at
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=metadata.topics[name].topic_id,
        leader=node,
        isr=[node],
        replicas=[node],
        adding_replicas=[],
        removing_replicas=[],
    )
