"""The memory that members and groups may take, all groups of a coordinator together.

Any client may join any number of groups, under any number of names, with whatever bytes it likes as metadata, and is
remembered for its session timeout even if it has left. Kafka bounds none of this. Here its cost is counted, and a
client that would go beyond the bound is refused; members that are there already stay.
"""

from __future__ import annotations

from barnabas.groupcoord.classic.member import Member
from barnabas.wire.errors import ErrorCode, KafkaError

# What a group, a member and a member id that was given out take beside their names and bytes: measured, rounded up.
GROUP_BYTES = 4000
MEMBER_BYTES = 2000
PENDING_BYTES = 1000


class MemoryBudget:
    """Counts bytes. `check` refuses; `take` only counts, for what was checked before or must be let in."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0

    def check(self, size: int) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED if there is no room for this many bytes."""
        if self.used + size > self.total:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"all groups together have more than {self.total} bytes")

    def take(self, size: int) -> None:
        """Count bytes as used; what is negative is given back."""
        self.used += size


def weight(member: Member) -> int:
    """What a member takes."""
    words = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
    metadata = sum(len(name) + len(data) for name, data in member.protocols.items())
    return MEMBER_BYTES + sum(map(len, words)) + metadata + len(member.assignment)
