"""The features of the cluster (KIP-584): only those whose APIs and records are here.

The metadata log's records are those of Kafka's first level of KRaft, so that is the level that is supported, and final.
The features of transactions, of newer groups and of replication come with them.
"""

from __future__ import annotations

METADATA_VERSION = "metadata.version"
#: 3.3-IV3, the lowest that Kafka 4 knows.
LEVELS = {METADATA_VERSION: 7}
#: Of the finalized levels: they never change.
EPOCH = 0
