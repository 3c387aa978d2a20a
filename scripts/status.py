"""The streams driver's last report on queries and streams, from the log that it shares with the broker."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.fetch import Reader
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.queries.messages import Status, decode

_STALE_MS = 15_000
_SOON_SECONDS = 0.5
_STATUS_MESSAGES = 50  # one of the newest 50 messages reports on the queries


def cell(column: str, value: object) -> object:
    """A table's cell for a figure. An unknown lag is shown as unknown, not left empty."""
    if value is None:
        return "unknown" if column == "lag" else ""
    return value


@contextmanager
def saying_that_spark_starts(cluster: Cluster) -> Iterator[None]:
    """On a terminal, explain the wait for a query if no driver is running yet and the answer takes a while."""
    if not sys.stderr.isatty() or is_fresh(last_status(cluster)):
        yield
        return
    timer = threading.Timer(
        _SOON_SECONDS,
        print,
        ("starting the driver of queries and streams ...",),
        {"file": sys.stderr, "flush": True},
    )
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_fresh(status: Status | None) -> bool:
    """Whether a driver has reported on the queries recently."""
    return status is not None and time.time_ns() // 1_000_000 - status.at_ms < _STALE_MS


def last_status(cluster: Cluster) -> Status | None:
    """The driver's newest message about the queries."""
    try:
        key = (QUERIES_TOPIC, 0)
        first, end = list_offsets(cluster, [key], EARLIEST)[key], list_offsets(cluster, [key], LATEST)[key]
    except ClientError:  # there has never been a query
        return None
    reader = Reader(cluster, QUERIES_TOPIC)
    reader.positions = {0: max(first, end - _STATUS_MESSAGES)}
    found: Status | None = None
    while reader.positions[0] < end:
        for _, record in reader.poll(0):
            message = decode(record.value)
            if isinstance(message, Status):
                found = message
    return found
