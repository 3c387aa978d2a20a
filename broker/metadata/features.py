"""The features of the cluster (KIP-584): only those whose APIs and records are here.

The metadata log's records are those of Kafka's first level of KRaft, so that is the level that is supported, and final.
Clients look at `transaction.version` to choose how they speak of transactions: at level 2 a producer's epoch grows with
each of them (KIP-890). Those who know less do as before, so nothing asks for a lower level, and it stays.
The features of newer groups and of replication come with them.
"""

from __future__ import annotations

from typing import NamedTuple


class Feature(NamedTuple):
    """The levels that are supported, and the one that holds."""

    lowest: int
    highest: int
    finalized: int


#: metadata.version 3.3-IV3, the lowest that Kafka 4 knows.
FEATURES = {"metadata.version": Feature(7, 7, 7), "transaction.version": Feature(0, 2, 2)}
#: Of the finalized levels: they never change.
EPOCH = 0
