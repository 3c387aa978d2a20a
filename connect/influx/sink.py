"""Writes points to their topics, which are created if they do not exist."""

from __future__ import annotations

import time
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.partitioner import murmur2
from barnabas.client.produce import Batch, produce
from barnabas.connect.influx.lines import BadPointError, parse
from barnabas.connect.influx.points import Naming, record_of
from barnabas.wire.batch import Record, build_batch

_BATCH_BYTES = 900_000
_PATIENCE_SECONDS = 5.0
_OVERHEAD = 100


class Written(NamedTuple):
    """What became of the lines."""

    points: int
    bad: list[tuple[int, str]]  # the number of the line, and why it is not a point


class Sink:
    """One writer. It blocks.

    It raises ClientError if the broker cannot be asked; then it is unknown which points are written.
    """

    def __init__(self, servers: str, naming: Naming) -> None:
        self._servers, self._naming = servers, naming
        self._cluster: Cluster | None = None

    def close(self) -> None:
        """Close the connections; the next write opens new ones."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def write(self, data: bytes, *, database: str = "", precision: str = "") -> Written:
        """Write all points of the lines. Raises BadPointError for an unknown precision, and ClientError."""
        waiting: dict[tuple[str, int], list[Record]] = {}
        bad: list[tuple[int, str]] = []
        points, now = 0, time.time_ns()
        for number, point, why in parse(data, precision):
            if point is None:
                bad.append((number, why))
                continue
            try:
                topic = self._naming.of(database, point.measurement)
                record = record_of(point, now, with_measurement=self._naming.has_one)
            except BadPointError as error:
                bad.append((number, str(error)))
                continue
            waiting.setdefault((topic, self._partition(topic, record)), []).append(record)
            points += 1
        while waiting:
            self._send(waiting)
        return Written(points, bad)

    def _partition(self, topic: str, record: Record) -> int:
        if self._cluster is None:
            self._cluster = Cluster(self._servers, patience=_PATIENCE_SECONDS)
        return murmur2(record.key or b"") % len(self._cluster.leaders(topic, create=True))

    def _send(self, waiting: dict[tuple[str, int], list[Record]]) -> None:
        """Send one batch for each partition."""
        batches = []
        for key in list(waiting):
            records, size, count = waiting[key], 0, 0
            while count < len(records) and size < _BATCH_BYTES:
                size += len(records[count].key or b"") + len(records[count].value or b"") + _OVERHEAD
                count += 1
            batches.append(Batch(*key, build_batch(records[:count])))
            if count < len(records):
                waiting[key] = records[count:]
            else:
                del waiting[key]
        assert self._cluster is not None
        for (topic, partition), answer in produce(self._cluster, batches).items():
            check(answer.error_code, f"Produce to {topic}-{partition}", answer.error_message)
