"""Chooses the queries that rest. Without records, too, a running query keeps a planner process and memory of the JVM.

A query rests when no record has arrived for a minute and nothing is due. The few that were used last keep running, so
that single streams never notice. If there are other streams, a stream over a source without any record is not even
started. The driver asks for the ends of all sources anyway: when there is something to read, the query continues where
it stopped.

Invariant: a resting query would do nothing if it ran.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

#: How many queries keep running, and how long each does after the last record.
AWAKE, REST_SECONDS = 4, 60.0


class Query(Protocol):
    """What must be known about a query. `used_at` is when it last had something to do."""

    used_at: float

    def may_rest(self) -> bool:
        """Whether it has nothing to do."""


Q = TypeVar("Q", bound=Query)


def resting(queries: Iterable[Q], at: float) -> set[Q]:
    """The queries that rest from now on."""
    by_use = sorted(queries, key=lambda query: -query.used_at)
    return {query for query in by_use[AWAKE:] if at - query.used_at >= REST_SECONDS and query.may_rest()}
