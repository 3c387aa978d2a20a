"""The settings for groups and their offsets: Kafka's keys (with underscores for dots) and defaults."""

from __future__ import annotations

from dataclasses import dataclass

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The group coordinator's settings. A name's ending gives the unit of its time."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    # Kafka's built-in default is 3000, but its shipped server.properties says 0, for a quick first start.
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = INT32_MAX
    offset_metadata_max_bytes: int = 4096
    offsets_topic_num_partitions: int = 50
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    # A constant in Kafka, not a configuration key: how long the join of a new member may wait.
    new_member_join_timeout_ms: int = 300_000
    # Not in Kafka: how much memory members and groups may use, see `groupcoord.memory_budget`.
    most_bytes: int = 256 << 20

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
