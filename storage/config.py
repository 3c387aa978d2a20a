"""The configuration of one log, under Kafka's topic configuration names with `_` for `.`."""

from __future__ import annotations

import msgspec

from barnabas.wire.compression import CompressionType

LONG_MAX = 2**63 - 1
COMPRESSION_TYPES = {
    "uncompressed": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Kafka's defaults, with one exception.

    If `flush_messages` is None or 1, the high watermark waits for a group fsync. Any larger value has Kafka's meaning:
    the page cache is enough, and an fsync runs after that many messages.
    """

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    compression_type: str = "producer"
    compression_level: int | None = None
    cleanup_policy: str = "delete"
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    flush_messages: int | None = None
    flush_ms: int | None = None
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    producer_id_expiration_ms: int = 24 * 3600 * 1000

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def waits_for_fsync(self) -> bool:
        return self.flush_messages is None or self.flush_messages <= 1

    @property
    def codec(self) -> CompressionType | None:
        """The codec that every batch must have, or None to keep the producer's."""
        return COMPRESSION_TYPES.get(self.compression_type)
