"""The way from a client's topic and partition to its vnode, with the checks that every access passes."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.metadata.image import MetadataImage
from barnabas.storage.vnode import Vnode
from barnabas.wire.errors import ErrorCode, KafkaError


class Partitions:
    """The partitions that clients may know of: of a topic that exists, not of the metadata log."""

    def __init__(self, metadata: MetadataImage, vnodes: Mapping[tuple[str, int], Vnode]) -> None:
        """`vnodes` are all of this broker, by topic and partition; it may change."""
        self._metadata = metadata
        self.vnodes = vnodes
        #: Topics whose `min.insync.replicas` is above the one replica that there is.
        self.without_enough_replicas: set[str] = set()

    def get(self, topic: str | None, index: int) -> Vnode | None:
        """The vnode of a partition, None if there is no such partition."""
        known = self._metadata.topics.get(topic)  # type: ignore[arg-type]
        return None if known is None or index not in known.partitions else self.vnodes.get((known.name, index))

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic id, None if there is no such topic."""
        topic = self._metadata.by_id.get(topic_id)
        return None if topic is None else topic.name

    def is_served(self, vnode: Vnode) -> bool:
        """Whether a vnode is still that of its partition: its topic may have been deleted, and made anew."""
        return self.vnodes.get((vnode.topic, vnode.partition)) is vnode

    def check_leader_epoch(self, vnode: Vnode, claimed: int) -> None:
        """Compare the leader epoch that a client believes in with ours; -1 stands for none (KIP-320).

        Raises KafkaError FENCED_LEADER_EPOCH if the client is behind, UNKNOWN_LEADER_EPOCH if we are.
        """
        if claimed < 0:
            return
        ours = self._metadata.topics[vnode.topic].partitions[vnode.partition]
        if claimed < ours:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {ours}, not {claimed}")
        if claimed > ours:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is {ours}, not yet {claimed}")
