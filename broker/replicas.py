"""The ownership check that every access to a partition passes (KIP-320)."""

from __future__ import annotations

from storage.vnode import Vnode
from wire.errors import ErrorCode, KafkaError


def check_leader_epoch(vnode: Vnode, claimed: int) -> None:
    """Compare the leader epoch that a client believes in with ours; -1 stands for none.

    Raises KafkaError FENCED_LEADER_EPOCH if the client is behind, UNKNOWN_LEADER_EPOCH if we are.
    """
    if claimed < 0 or claimed == vnode.leader_epoch:
        return
    if claimed < vnode.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {vnode.leader_epoch}, not {claimed}")
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is {vnode.leader_epoch}, not yet {claimed}")
