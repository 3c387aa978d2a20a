"""The ownership check that every access to a partition passes (KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.vnode import Vnode
from barnabas.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.node import Node


def check_leader_epoch(node: Node, vnode: Vnode, claimed: int) -> None:
    """Compare the leader epoch that a client believes in with ours; -1 stands for none.

    Raises KafkaError FENCED_LEADER_EPOCH if the client is behind, UNKNOWN_LEADER_EPOCH if we are.
    """
    if claimed < 0:
        return
    ours = node.metadata.topics[vnode.topic].partitions[vnode.partition]
    if claimed < ours:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {ours}, not {claimed}")
    if claimed > ours:
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is {ours}, not yet {claimed}")
