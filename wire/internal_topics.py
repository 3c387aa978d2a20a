"""The topics that a broker keeps for itself; the first three have Kafka's names."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_GROUPS_TOPIC = "__share_group_state"
#: The messages between the broker and the streams driver.
QUERIES_TOPIC = "__barnabas_queries"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC, QUERIES_TOPIC))
