"""JOIN: of two streams and with a table, equal to a plain evaluation in Python."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.errors import QueryError
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.windows_support import Run, in_order
from barnabas.streams.windows.plan import check, parsed
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.plan import JoinedReads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = Values(format="json", schema="id STRING, total DOUBLE, ts TIMESTAMP")
PAYMENTS = Values(format="json", schema="order_id STRING, amount DOUBLE, ts TIMESTAMP")
WITHIN, LENGTH = 10_000, 5_000
LATER = NOW + 10**9


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return streams_session(spark)


def reads(topic: str, values: Values, *, is_table: bool) -> JoinedReads:
    return JoinedReads(source=topic, source_id="", is_table=is_table, format=values.format, schema=values.schema)


class Record(NamedTuple):
    """A record as a plain evaluation has it."""

    ts: int
    key: str | None
    number: float


def write(logs: Logs, topic: str, columns: tuple[str, str], chance: random.Random, at: int, count: int) -> list[Record]:
    """Records in about the order of their times, some without a key, some that do not fit."""
    found = []
    for partition in range(2):
        values = []
        for number in range(count):
            ts = at + number * 500 - chance.randrange(0, 3_000, 100)
            key = chance.choice(("a", "b", "c", None))
            record = Record(ts, key, chance.randrange(100) / 4)
            if chance.random() < 0.05:
                values.append(b"{")
                continue
            found.append(record)
            stamp = datetime.fromtimestamp(ts / 1000, UTC).isoformat(timespec="milliseconds")
            values.append(json.dumps({columns[0]: key, columns[1]: record.number, "ts": stamp}).encode())
        logs.write(values, topic, partition, each=5, timestamp=at)
    return found


def pairs(orders: list[Record], payments: list[Record], *, is_left: bool) -> list[dict[str, Any]]:
    """The results of the stream below: windows that have closed."""
    windows: dict[tuple[int, str | None], list[tuple[Record, Record | None]]] = defaultdict(list)
    for order in orders:
        mine = [p for p in payments if p.key is not None and p.key == order.key and abs(p.ts - order.ts) <= WITHIN]
        start = order.ts // LENGTH * LENGTH
        windows[start, order.key] += [(order, payment) for payment in mine]
        if is_left and not mine:
            windows[start, order.key].append((order, None))
    return in_order(
        {
            "start": start,
            "key": key,
            "n": len(found),
            "paid": sum(1 for _, p in found if p is not None),
            "s": sum(p.number for _, p in found if p is not None) if any(p for _, p in found) else None,
            "t": sum(o.number for o, _ in found),
        }
        for (start, key), found in windows.items()
        if found
    )


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_pairs_of_two_streams_are_those_of_a_plain_evaluation(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs, chance = Logs(tmp_path / "data"), random.Random(7)
    for topic in ("orders", "payments"):
        logs.write([], topic, 0)
    text = (
        f"EVENT_TIME(ts) MAX_AHEAD 1000d WATERMARK 3s SELECT unix_millis(_wstart) AS start, o.id AS key, count(*) AS n, "
        f"count(p.amount) AS paid, sum(p.amount) AS s, sum(o.total) AS t FROM orders o {kind} payments p WITHIN 10s "
        "ON o.id = p.order_id PARTITION BY o.id INTERVAL(5s)"
    )
    run = Run(session, logs.path, tmp_path / "streams", text, ORDERS, reads("payments", PAYMENTS, is_table=False))
    orders, payments = [], []
    for round_ in range(3):
        orders += write(logs, "orders", ("id", "total"), chance, NOW + round_ * 20_000, 40)
        payments += write(logs, "payments", ("order_id", "amount"), chance, NOW + round_ * 20_000, 40)
        run.start()
        run.results()
    assert run.batches
    run.mark(LATER)
    run.start()
    assert run.results() == pairs(orders, payments, is_left=kind == "LEFT JOIN")
