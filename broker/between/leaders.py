"""Which partitions change their leader when a start has other nodes than the last one."""

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

#: The id of the leader in the metadata, if a partition has no leader.
NOBODY = -1


def moves(metadata: MetadataImage, nodes: range) -> list[Message]:
    """The records that spread all partitions evenly over `nodes`. The first node owns the metadata.

    As few partitions as possible move: first those whose leader is not in `nodes`, then from the nodes that lead most
    to those that lead fewest, unless the nodes are those of the last start: then partitions stay where an operator has
    moved them. A partition with an unfinished move gets its target as leader. The log of the streams driver's messages
    stays with the owner, which reads and writes it.
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
    if set(nodes) != set(metadata.nodes):
        _even_out(led, homes, to)
    gone = [UnregisterBrokerRecord(broker_id=node) for node in metadata.nodes if node not in nodes]
    return [*(led_by(metadata, at, node) for at, node in to.items()), *gone]


def _even_out(led: Counter[int], homes: dict[int, list[TopicPartition]], to: dict[TopicPartition, int]) -> None:
    """Move partitions from the nodes that lead most to those that lead fewest, in all three arguments."""
    for node in sorted(led, key=lambda each: -led[each]):
        while homes[node] and led[node] > 1 + min(led.values()):
            at = homes[node].pop()
            to[at] = other = min(led, key=lambda each: (led[each], each))
            led[node] -= 1
            led[other] += 1


async def spread(metadata: MetadataImage, nodes: range, flusher: Flusher, log: EventLog) -> None:
    """Say who leads each partition. For a start of the owner, before any log but the metadata log is open.

    For the start of the whole broker only: if just the owner is restarted, the other nodes have their logs open. If the
    nodes are the same as at the last start, only unfinished moves are written. Raises StorageError.
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
    """A record after which a partition has no leader. It moves from its leader, or from `source`, to node `target`."""
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
    """A record that makes a node the leader of a partition, with the only replica."""
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
