"""Streams with JOIN, with a real broker, a real Spark driver and common clients."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from compat_tests.broker_process import Barnabas
from compat_tests.conftest import NewServer
from compat_tests.driver import Driver, Refused
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.query_topics.processes import kill as kill_processes
from compat_tests.streams.support import (
    BASE,
    DEADLINE,
    SENSORS,
    SETTINGS,
    Reading,
    make_stream,
    results,
    send,
    status_of,
    text,
    wait_for_results,
    wait_for_state,
)
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
from barnabas.scripts import cli

if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

ORDERS = {"barnabas.value.format": "json", "barnabas.value.schema": "id STRING, total INT"}
PAYMENTS = {"barnabas.value.format": "json", "barnabas.value.schema": "order_id STRING, amount INT"}
TABLE = {"barnabas.value.format": "json", "barnabas.value.schema": "site STRING", "cleanup.policy": "compact"}
PAIRS = (
    "WATERMARK 2s MAX_DELAY 20s FILL_HISTORY 1 AS SELECT _wstart, count(*) AS n, count(p.amount) AS paid, "
    "sum(p.amount) AS s FROM orders o LEFT JOIN payments p WITHIN 10s ON o.id = p.order_id INTERVAL(20s)"
)
WITH_TABLE = (
    "AS SELECT _wstart, d.site, count(*) AS n FROM sensors s JOIN devices d ON s.device = d._key "
    "PARTITION BY d.site INTERVAL({})"
)


@pytest.fixture(scope="module")
def broker(new_server: NewServer) -> Barnabas:
    server = new_server(SETTINGS)
    assert isinstance(server, Barnabas)
    admin = KafkaPythonDriver(server.address)
    admin.create_topic("orders", 2, ORDERS)
    admin.create_topic("payments", 1, PAYMENTS)
    admin.create_topic("sensors", 2, SENSORS)
    admin.create_topic("devices", 1, TABLE)
    admin.create_topic("log", 1)
    make_stream(server, "pairs", 1, PAIRS)
    return server


@pytest.fixture(scope="module")
def admin(broker: Barnabas) -> Driver:
    return KafkaPythonDriver(broker.address)


def write(broker: Barnabas, topic: str, *records: tuple[int, str | None, Any]) -> None:
    """Write records, each with a second after `BASE`, a key and a value."""
    producer = Producer({"bootstrap.servers": broker.address})
    for second, key, value in records:
        data = None if value is None else json.dumps(value).encode()
        producer.produce(topic, data, key=key, timestamp=BASE + 1000 * second)
    assert producer.flush(60) == 0


def order(second: int, key: str) -> tuple[int, None, Any]:
    return second, None, {"id": key, "total": 1}


def payment(second: int, key: str, amount: int) -> tuple[int, None, Any]:
    return second, None, {"order_id": key, "amount": amount}


def at(second: int, n: int, paid: int, s: int | None) -> dict[str, Any]:
    return {"_wstart": text(BASE + 1000 * second), "n": n, "paid": paid, "s": s}


def sql(broker: Barnabas, capsys: pytest.CaptureFixture[str], statement: str, status: int = 0) -> str:
    capsys.readouterr()
    assert cli.main(["sql", "--server", broker.address, statement]) == status
    told = capsys.readouterr()
    return told.err if status else told.out


@pytest.mark.long
def test_pairs_of_two_topics_over_a_pause_and_a_kill(broker: Barnabas, capsys: pytest.CaptureFixture[str]) -> None:
    """Records that wait for the other topic are in the state. If both topics are quiet, MAX_DELAY closes windows."""
    wait_for_state(broker, "pairs", "RUNNING")
    assert "orders, from offsets 0, 0\nJoined:  payments, from offsets 0" in sql(
        broker, capsys, "DESCRIBE STREAM pairs"
    )
    explained = sql(broker, capsys, "EXPLAIN STREAM pairs")
    assert "records of topic payments with id = p.order_id within 10s, or with nothing" in explained
    write(broker, "orders", order(0, "a"), order(1, "b"), order(2, "c"))
    assert "orders, payments" in sql(broker, capsys, "SHOW STREAMS")
    wait_for_state(broker, "pairs", "RUNNING", state_rows=3)
    sql(broker, capsys, "PAUSE STREAM pairs")
    wait_for_state(broker, "pairs", "PAUSED")
    write(broker, "payments", payment(5, "a", 10), payment(9, "b", 20))
    wait_for_state(broker, "pairs", "PAUSED", lag=2)
    sql(broker, capsys, "RESUME STREAM pairs")
    wait_for_state(broker, "pairs", "RUNNING", state_rows=5)
    broker.expected_errors += ["streams.driver.ended"]
    assert kill_processes(broker, "driver")
    write(broker, "payments", payment(11, "b", 30), payment(13, "c", 99), payment(8, "a", 1))
    assert wait_for_results(broker, "pairs", 1, 1) == [at(0, 5, 4, 61)]
    until(lambda: status_of(broker, "pairs")["state_rows"] == 0, "nothing waits", DEADLINE)
    write(broker, "orders", order(100, "a"))
    assert wait_for_results(broker, "pairs", 1, 2)[1] == at(100, 1, 0, None)
    assert status_of(broker, "pairs")["late"] == 0


@pytest.mark.long
def test_streams_with_one_table_share_a_query_and_see_its_changes(broker: Barnabas, admin: Driver) -> None:
    write(broker, "devices", (0, "a", {"site": "north"}), (0, "b", {"site": "south"}))
    admin.create_topic("tens", 1, {"barnabas.stream": WITH_TABLE.format("10s")})
    admin.create_topic("fives", 1, {"barnabas.stream": WITH_TABLE.format("5s")})
    wait_for_state(broker, "tens", "RUNNING")
    query = wait_for_state(broker, "fives", "RUNNING")["query"]
    assert status_of(broker, "tens")["query"] == query
    send(broker, "sensors", [Reading(BASE, "a", 1, 0), Reading(BASE + 1, "b", 1, 0), Reading(BASE, "x", 1, 1)])
    until(lambda: status_of(broker, "tens")["state_rows"] == 4, "the records are in", DEADLINE)
    write(broker, "devices", (0, "a", {"site": "south"}), (0, "b", None), (0, "x", {"site": "east"}))
    send(broker, "sensors", [Reading(BASE + 2, d, 1, 0) for d in "abx"])
    until(lambda: status_of(broker, "tens")["state_rows"] == 6, "the records are in", DEADLINE)
    send(broker, "sensors", [Reading(BASE + 60_000, "a", 1, 0)])
    expected = [{"_wstart": text(BASE), "site": site, "n": n} for site, n in (("east", 1), ("north", 1), ("south", 2))]
    for topic in ("tens", "fives"):
        found = wait_for_results(broker, topic, 1, 3)
        assert sorted(found, key=lambda each: str(each["site"])) == expected


@pytest.mark.long
def test_what_cannot_be_joined_is_refused_with_the_reason(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    count = "SELECT count(*) AS c FROM sensors s JOIN"
    for rest, why in [
        ("log l ON s.device = l._key", 'column 45, at "log l ON s.device = l._key INT…": log is not compacted'),
        ("nothing l ON s.device = l._key", "there is no topic nothing"),
        ("devices d ON s.temp = d._key", "a table's keys are texts"),
        ("devices d WITHIN 1s ON s.device = d.nix", "there is no column nix"),
    ]:
        statement = f"{count} {rest} INTERVAL(1s)"
        with pytest.raises(Refused, match="INVALID_CONFIG"):
            admin.create_topic("x", 1, {"barnabas.stream": statement})
        assert why in sql(broker, capsys, f"CREATE STREAM x AS {statement}", 1), statement
    assert "x" not in admin.topics()


@pytest.mark.long
def test_a_stream_does_not_read_what_it_writes_by_way_of_a_join(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"barnabas.value.format": "json", "barnabas.value.schema": "c bigint", "cleanup.policy": "compact"}
    admin.create_topic("circle", 1, values)
    text = "SELECT count(*) AS c FROM sensors s JOIN circle c ON s.device = c._key INTERVAL(1s)"
    told = sql(broker, capsys, f"CREATE STREAM circle INTO circle AS {text}", 1)
    assert "The stream would read its own results in circle" in told
    admin.create_topic("middle", 1, {"barnabas.stream": text})
    above = "SELECT count(*) AS c FROM middle m JOIN sensors s WITHIN 1s ON m._key = s.device INTERVAL(1s)"
    told = sql(broker, capsys, f"CREATE STREAM circle INTO circle AS {above}", 1)
    assert "The stream would read its own results in circle" in told
    admin.delete_topic("middle")


@pytest.mark.long
def test_a_table_that_is_deleted_stops_its_streams(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("gone", 1, TABLE)
    select = "SELECT count(*) AS c FROM sensors s JOIN gone d ON s.device = d._key INTERVAL(1s)"
    admin.create_topic("orphan", 1, {"barnabas.stream": select})
    wait_for_state(broker, "orphan", "RUNNING")
    broker.expected_errors.append("the source gone was deleted")
    admin.delete_topic("gone")
    told = wait_for_state(broker, "orphan", "FAILED")["last_error"]
    assert told == "the source gone was deleted: drop this stream, and make it again"
    admin.create_topic("gone", 1, TABLE)
    until(
        lambda: (
            "was deleted and made again" in str(status_of(broker, "orphan")["last_error"])
            or status_of(broker, "orphan")["state"] == "FAILED"
        ),
        "it does not go on with another topic",
        DEADLINE,
    )
    send(broker, "sensors", [Reading(BASE + 100_000 * n, "a", 1, 0) for n in range(3)])
    assert results(broker, "orphan", 1) == []


@pytest.mark.long
def test_a_table_that_is_too_large_stops_its_streams_and_no_others(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("large", 1, TABLE)
    admin.create_topic("few", 1, TABLE)
    for name in ("large", "few"):
        select = f"SELECT count(*) AS c FROM sensors s LEFT JOIN {name} d ON s.device = d._key INTERVAL(1s)"
        admin.create_topic(f"{name}_out", 1, {"barnabas.stream": select})
        wait_for_state(broker, f"{name}_out", "RUNNING")
    for first in range(0, 160, 20):
        write(broker, "large", *((0, f"{number}", {"site": "x" * 900_000}) for number in range(first, first + 20)))
    broker.expected_errors.append("the table that it is joined with")
    send(broker, "sensors", [Reading(BASE + 200_000_000 * n, "a", 1, 0) for n in range(1, 3)])
    told = wait_for_state(broker, "large_out", "FAILED")["last_error"]
    assert "joined with, large, has" in told
    assert "more than 128 MiB: drop the stream, and join a smaller topic" in told
    assert wait_for_results(broker, "few_out", 1, 1) == [{"c": 1}]
