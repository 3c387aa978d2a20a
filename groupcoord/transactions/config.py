"""The settings of transactions: Kafka's keys (with underscores for dots) and defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of the transaction coordinator. Times are in the unit that the name ends with."""

    transaction_max_timeout_ms: int = 900_000
    transaction_state_log_num_partitions: int = 50
    transactional_id_expiration_ms: int = 604_800_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    # How long a request may wait for the end of the previous transaction before its client must try again.
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    # Not in Kafka: the most memory that all transactional ids and their partitions may take.
    most_bytes: int = 256 << 20
