"""The features of the cluster (KIP-584): only those whose APIs and records exist here.

The metadata log's records are those of Kafka's first level of KRaft, so that is the supported and finalized level.
Clients use `transaction.version` to choose their transaction protocol: at level 2 a producer's epoch grows with each
transaction (KIP-890). Clients that do not know it work as before, so the level never has to be lower, and is fixed.
The features of newer groups and of replication will come with their APIs.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """The supported levels, and the one in force."""

    lowest: int
    highest: int
    finalized: int


#: metadata.version 3.3-IV3, the lowest that Kafka 4 knows.
FEATURES = {"metadata.version": Feature(7, 7, 7), "transaction.version": Feature(0, 2, 2)}
#: The epoch of the finalized levels: they never change.
EPOCH = 0
