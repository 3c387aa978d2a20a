"""JOIN: of two streams and with a table, equal to a plain evaluation in Python."""

from __future__ import annotations

import json
import random
import re
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
from barnabas.wire.batch import Record as LogRecord
from barnabas.wire.batch import build_batch
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
    """A record for the plain evaluation."""

    ts: int
    key: str | None
    number: float


def write(logs: Logs, topic: str, columns: tuple[str, str], chance: random.Random, at: int, count: int) -> list[Record]:
    """Records in roughly the order of their times, some without a key, some that do not fit."""
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


@pytest.mark.parametrize(
    "kind", [pytest.param("JOIN", marks=pytest.mark.slow), pytest.param("LEFT JOIN", marks=pytest.mark.long)]
)
def test_pairs_of_two_streams_are_those_of_a_plain_evaluation(session: SparkSession, tmp_path: Path, kind: str) -> None:
    logs, chance = Logs(tmp_path / "data"), random.Random(7)
    for topic in ("orders", "payments"):
        logs.write([], topic, 0)
    text = (
        "PARALLELISM 2 EVENT_TIME(ts) MAX_AHEAD 1000d WATERMARK 3s "
        "SELECT unix_millis(_wstart) AS start, o.id AS key, count(*) AS n, "
        f"count(p.amount) AS paid, sum(p.amount) AS s, sum(o.total) AS t FROM orders o {kind} payments p WITHIN 10s "
        "ON o.id = p.order_id PARTITION BY o.id INTERVAL(5s)"
    )
    run = Run(session, logs.path, tmp_path / "streams", text, ORDERS, reads("payments", PAYMENTS, is_table=False))
    orders, payments = [], []
    for round_ in range(2):
        orders += write(logs, "orders", ("id", "total"), chance, NOW + round_ * 20_000, 40)
        payments += write(logs, "payments", ("order_id", "amount"), chance, NOW + round_ * 20_000, 40)
        if round_:
            assert run.batches
            run.mark(LATER)
        run.start()
        found = run.results()
    assert found == pairs(orders, payments, is_left=kind == "LEFT JOIN")


# --- tables -----------------------------------------------------------------------------------------------------------

SENSORS = Values(format="json", schema="device STRING, temp DOUBLE, n INT")
DEVICES = Values(format="json", schema="site STRING, least DOUBLE")


def device(logs: Logs, key: bytes, value: dict[str, Any] | None) -> None:
    data = None if value is None else json.dumps(value).encode()
    logs.vnode("devices").append(bytearray(build_batch([LogRecord(key, data, NOW)])), now_ms=NOW)
    logs.write([], "devices")


def sensors(logs: Logs, at: int, *readings: tuple[str | None, float]) -> None:
    values = [json.dumps({"device": key, "temp": temp, "n": 1}).encode() for key, temp in readings]
    logs.write(values, "sensors", timestamp=at)


@pytest.mark.parametrize("kind", [pytest.param("JOIN", marks=pytest.mark.slow), "LEFT JOIN"])
def test_records_have_the_row_that_their_key_has_when_they_are_read(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    logs = Logs(tmp_path / "data")
    device(logs, b"a", {"site": "north", "least": 5})
    device(logs, b"b", {"site": "south", "least": 0})
    sensors(logs, NOW, ("a", 10.0), ("a", 1.0), ("b", 2.0), ("c", 3.0), (None, 4.0))
    text = (
        f"SELECT d.site, count(*) AS n, sum(temp) AS s, max(d.least) AS m FROM sensors AS s {kind} devices d "
        "ON d._key = s.device WHERE s.temp >= coalesce(d.least, 0) PARTITION BY d.site INTERVAL(10s)"
    )
    run = Run(session, logs.path, tmp_path / "streams", text, SENSORS, reads("devices", DEVICES, is_table=True))
    run.start()
    run.results()
    device(logs, b"a", {"site": "south", "least": 0})
    device(logs, b"b", None)
    sensors(logs, NOW + 100, ("a", 20.0), ("b", 30.0))
    run.mark(LATER)
    run.start()
    nobody: list[dict[str, Any]] = [{"site": None, "n": 3, "s": 37.0, "m": None}] if kind == "LEFT JOIN" else []
    assert run.results() == in_order(
        [
            {"site": "north", "n": 1, "s": 10.0, "m": 5.0},
            {"site": "south", "n": 2, "s": 22.0, "m": 0.0},
            *nobody,
        ]
    )


@pytest.mark.parametrize(
    "window",
    [
        "SESSION(10s)",
        "STATE_WINDOW(d.site)",
        "EVENT_WINDOW(START WITH temp > d.least END WITH temp < d.least)",
        "COUNT_WINDOW(5)",
        "PERIOD(10s)",
        "INTERVAL(10s) FILL(PREV)",
    ],
)
def test_a_table_goes_with_all_windows(session: SparkSession, window: str) -> None:
    text = f"SELECT count(*) AS n, max(d.site) AS m FROM sensors s JOIN devices d ON s.device = d._key {window}"
    found = check(session, *parsed(text), SENSORS, reads("devices", DEVICES, is_table=True))
    assert found.value_schema == "n bigint, m string"


COUNT = "SELECT count(*) c FROM sensors s JOIN"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT max(site) m FROM sensors s JOIN devices d ON s.device = d._key", "there is no column `site`"),
        ("SELECT max(d.nix) m FROM sensors s JOIN devices d ON s.device = d._key", "nix"),
        (f"{COUNT} devices d ON s.temp = d._key", "a table's keys are texts, and temp is a double"),
        (f"{COUNT} devices d ON s.nix = d._key", "there is no column nix: a record of sensors has device, temp"),
        (f"{COUNT} devices n ON s.device = n._key", "n is a column of sensors"),
        (f"{COUNT} devices d WITHIN 1s ON s.n = d.site", "n is a int, and d.site a string"),
        (f"{COUNT} devices d WITHIN 1s ON s.device = d.x", "a record of devices has site, least, _key"),
        (f"EVENT_TIME(temp) {COUNT} devices d WITHIN 1s ON s.device = d.site", "a record of devices has site"),
        (f"{COUNT} devices d ON s.device = d._key WHERE d.__k0 = 1", "__k0"),
        (f"{COUNT} devices d ON s.device = d._key WHERE rand() < d.least", "rand"),
        (f"{COUNT} devices d WITHIN 1s ON s.device = d.site WHERE __k0 = 'a'", "there is no column `__k0`"),
    ],
)
def test_what_cannot_be_joined(session: SparkSession, text: str, told: str) -> None:
    clauses, stages = parsed(f"{text} INTERVAL(1s)")
    assert clauses.join is not None
    with pytest.raises(QueryError, match=re.escape(told)):
        check(session, clauses, stages, SENSORS, reads("devices", DEVICES, is_table=clauses.join.is_table))
