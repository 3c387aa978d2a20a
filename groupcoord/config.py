"""What an operator may set about groups and their offsets: Kafka's keys (dots are underscores) and defaults."""

from __future__ import annotations

from dataclasses import dataclass

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of the group coordinator. Times are in the unit that the name ends with."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    # Kafka's built-in default is 3000; the server.properties that it ships says 0, for a quick first start.
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = INT32_MAX
    offset_metadata_max_bytes: int = 4096
    offsets_topic_num_partitions: int = 50
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    # Not a key of Kafka's configuration, a constant there: how long the join of a member that is new may wait.
    new_member_join_timeout_ms: int = 300_000
    # Not in Kafka at all: what members and groups may take of the memory, see `groupcoord.memory_budget`.
    most_bytes: int = 256 << 20

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
