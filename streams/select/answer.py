"""A SELECT over a topic of a broker on this machine, answered without Spark."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from barnabas.client.cluster import Cluster
from barnabas.streams.query.definitions import Source, read_source
from barnabas.streams.select import syntax
from barnabas.streams.select.plan import Planned, columns_of, plan
from barnabas.streams.select.run import Result, run, run_once
from barnabas.streams.wal.local_broker import log_dir_of


class Prepared(NamedTuple):
    """A query about which everything except its rows is known."""

    source: Source
    planned: Planned


def prepare(cluster: Cluster, query: str) -> Prepared:
    """Analyse a query. Raises NeedsSpark; QueryError for a topic or column that does not exist; ClientError."""
    asked = syntax.parse(query)
    if not asked.source:
        return Prepared(Source("", "", 0), plan(asked, pa.schema([])))
    source = read_source(cluster, asked.source)
    return Prepared(source, plan(asked, columns_of(source.values)))


def answer(cluster: Cluster, server: str, data_dir: str | None, prepared: Prepared, limit: int) -> Result:
    """At most `limit` of its results. Raises WalError, ClientError."""
    if not prepared.source.name:
        return run_once(prepared.planned, limit)
    return run(log_dir_of(cluster, server, data_dir), prepared.source, prepared.planned, limit)


def explained(prepared: Prepared) -> list[str]:
    """What is read and how it is answered, in lines."""
    planned = prepared.planned
    if not prepared.source.name:
        return ["without Spark: reads nothing"]
    found = [
        f"without Spark: reads {prepared.source.name}, {prepared.source.partitions} partition(s)",
        f"columns: {', '.join(sorted(planned.names)) or 'none, records are counted'}",
    ]
    if planned.conditions or planned.tests:
        found.append(f"conditions: {len(planned.conditions)} as records are read, {len(planned.tests)} on rows")
    if planned.since is not None:
        found.append("begins at the first record of that time")
    if planned.is_tail:
        found.append("reads each partition from its end, as many records as LIMIT needs")
    elif planned.order:
        found.append("reads all, and keeps the first rows of the order")
    elif planned.grouped is not None:
        found.append("reads all, and keeps a row for each group" if planned.grouped.by else "reads all, gives one row")
    elif planned.limit is not None:
        found.append("stops reading when it has LIMIT rows")
    return found
