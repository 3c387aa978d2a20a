"""The one door from a topic and partition to its vnode. It makes the checks that every access has to pass."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.metadata.image import Leader, MetadataImage
from barnabas.storage.vnode import Vnode
from barnabas.wire.errors import ErrorCode, KafkaError

#: The id of the leader in the metadata, if a partition has no leader.
NOBODY = -1


class Partitions:
    """The partitions that clients may use: those of existing topics, without the metadata log."""

    def __init__(self, metadata: MetadataImage, vnodes: Mapping[tuple[str, int], Vnode]) -> None:
        """`vnodes` are the vnodes that this broker leads, by topic and partition. The mapping may change."""
        self._metadata, self._vnodes = metadata, vnodes
        self.node_id = metadata.node_id
        #: Topics whose `min.insync.replicas` is above 1, the number of replicas that exist.
        self.without_enough_replicas: set[str] = set()

    def get(self, topic: str | None, index: int) -> Vnode | None:
        """The vnode of a partition that is led here; None if the partition does not exist, or another node leads it."""
        known = self._metadata.topics.get(topic)  # type: ignore[arg-type]
        leader = None if known is None else known.partitions.get(index)
        if known is None or leader is None or leader.node != self.node_id:
            return None
        return self._vnodes.get((known.name, index))

    def led(self, topic: str | None, index: int) -> Vnode:
        """The vnode of a partition that is led here.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, or KAFKA_STORAGE_ERROR if its log could
        not be created.
        """
        vnode = self.get(topic, index)
        if vnode is None:
            raise self._absence(topic, index)
        return vnode

    def _absence(self, topic: str | None, index: int) -> KafkaError:
        """The error that says why a partition is not here."""
        leader = self.leader(topic, index)
        if leader is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        if leader.node != self._metadata.node_id:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {leader.node} leads {topic}-{index}")
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{index} has no log: the broker's log says why")

    def exists(self, topic: str | None, index: int) -> bool:
        """Whether the partition exists, on whichever node."""
        return self.leader(topic, index) is not None

    def leader_epoch(self, topic: str, index: int) -> int:
        """The leader epoch of a partition; -1 if the partition does not exist."""
        leader = self.leader(topic, index)
        return -1 if leader is None else leader.epoch

    def leader(self, topic: str | None, index: int) -> Leader | None:
        """The leader of a partition; None if the partition does not exist."""
        known = self._metadata.topics.get(topic or "")
        return None if known is None else known.partitions.get(index)

    def elsewhere(self, topic: str, index: int) -> int | None:
        """The other node that leads a partition; None if this node leads it, or no node does."""
        leader = self.leader(topic, index)
        return None if leader is None or leader.node in (self.node_id, NOBODY) else leader.node

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic; None if the topic does not exist."""
        known = self._metadata.topics.get(topic)
        return None if known is None else known.topic_id

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with an id; None if no topic has it."""
        topic = self._metadata.by_id.get(topic_id)
        return None if topic is None else topic.name

    def gone(self, vnode: Vnode) -> KafkaError | None:
        """The error if a vnode is no longer served here; None if it is."""
        if self.get(vnode.topic, vnode.partition) is vnode:
            return None
        leader = self.leader(vnode.topic, vnode.partition)
        if leader is not None and leader.node != self.node_id:
            return self._absence(vnode.topic, vnode.partition)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")

    def check_leader_epoch(self, vnode: Vnode, claimed: int) -> None:
        """Compare the leader epoch in a client's request with the current one; -1 means that the client sent none
        (KIP-320).

        Raises KafkaError FENCED_LEADER_EPOCH if the client's is older, UNKNOWN_LEADER_EPOCH if ours is older.
        """
        if claimed < 0:
            return
        ours = self.leader_epoch(vnode.topic, vnode.partition)
        if claimed < ours:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {ours}, not {claimed}")
        if claimed > ours:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is {ours}, not yet {claimed}")
