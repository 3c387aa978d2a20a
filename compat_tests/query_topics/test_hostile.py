"""Hostile clients, with a real broker and a real driver: their attempts cost themselves, and no other client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.client.admin import create_topic, set_topic_config
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.wire.batch import Record as Written
from barnabas.wire.batch import build_batch
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from compat_tests.broker_process import Barnabas
from compat_tests.driver import Driver, Record, Refused
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.lies.test_batches import produced
from compat_tests.pipe import Pipe
from compat_tests.query_topics.processes import processes
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
from barnabas.streams.query.control import Control
from barnabas.wire.queries.messages import Check, Checked
from compat_tests.query_topics.test_query_topics import SENSORS, records, status_of, wait_for

if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture(scope="module")
def admin(broker: Barnabas) -> Driver:
    broker.expected_errors += ["topic=spinning", "topic=grows", "another streams driver has taken over"]
    made = KafkaPythonDriver(broker.address)
    made.create_topic("source", 1, SENSORS)
    made.create_topic("good", -1, {"barnabas.query": "SELECT upper(device) d FROM source"})
    return made


@contextmanager
def busy_cores() -> Iterator[None]:
    """Run six busy processes for each core, each in its own session: the kernel divides CPU time by session first."""
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command, start_new_session=True) for _ in range(6 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def driver_of(broker: Barnabas) -> set[int]:
    return {process.pid for process in processes(broker, "driver")} | {p.pid for p in processes(broker, "jvm")}


def goes_on(broker: Barnabas, admin: Driver, *values: bytes) -> None:
    """Write to the source, and check that the good query processes all of it."""
    admin.produce("source", [Record(value) for value in values or (b'{"device": "a", "temp": 1}',)])
    wait_for(broker, "good", "source")


def test_a_statement_that_commands_does_nothing_however_it_comes(
    broker: Barnabas, admin: Driver, tmp_path: Path
) -> None:
    goes_on(broker, admin)
    was, out = driver_of(broker), tmp_path / "out"
    for number, query in enumerate(
        [
            f"INSERT OVERWRITE LOCAL DIRECTORY '{out}' USING parquet SELECT 1 x FROM source",
            f"CREATE TABLE t USING parquet LOCATION '{out}' AS SELECT device FROM source",
            f"SELECT TRANSFORM(device) USING 'touch {out}' AS x FROM source",
            "SELECT java_method('java.lang.System', 'exit', 1) x FROM source",
            "SELECT repeat('x', 2000000000) x FROM source",
            "SELECT sequence(1, 1000000000) x FROM source",
            "SELECT " + "CASE WHEN " * 100 + "true" + " THEN true END" * 100 + " x FROM source",
        ]
    ):
        name = f"hostile{number}"
        with pytest.raises(Refused, match="INVALID_CONFIG"):
            admin.create_topic(name, -1, {"barnabas.query": query})
        admin.create_topic(name, 1)
        for topic in (name, "good"):
            with Cluster(broker.address) as cluster, pytest.raises(ClientError, match="INVALID_CONFIG"):
                set_topic_config(cluster, topic, {"barnabas.query": query})
    goes_on(broker, admin)
    assert not out.exists()
    assert driver_of(broker) == was


def test_the_drivers_environment_is_not_in_a_text(broker: Barnabas, admin: Driver) -> None:
    """Spark does not replace variables in queries, even if the operator's file turns that on."""
    expressions = ("'${env:PATH}' a", "'${system:user.home}' b", "'${spark:spark.driver.extraJavaOptions}' c")
    admin.create_topic("told", -1, {"barnabas.query": f"SELECT {', '.join(expressions)} FROM source"})
    goes_on(broker, admin)
    wait_for(broker, "told", "source")
    value = json.loads(records(broker, "told")[-1][2] or b"")
    assert value == {"a": "${env:PATH}", "b": "${system:user.home}", "c": "${spark:spark.driver.extraJavaOptions}"}
    with Cluster(broker.address) as cluster:
        made = create_topic(cluster, "asked", {"barnabas.query": "SELECT device FROM `${env:PATH}`"})
    assert "there is no topic ${env:PATH}" in (made.error_message or "")


def test_a_catastrophic_pattern_holds_nobody_up(broker: Barnabas, admin: Driver) -> None:
    was = driver_of(broker)
    admin.create_topic("a" * 200, 1, SENSORS)
    admin.create_topic("by_name", -1, {"barnabas.query": "SELECT device FROM topics('(a+)+b|source')"})
    admin.create_topic("by_value", -1, {"barnabas.query": "SELECT device FROM source WHERE device RLIKE '(a+)+b'"})
    goes_on(broker, admin, b'{"device": "%s"}' % (b"a" * 5000), b'{"device": "aab"}')
    wait_for(broker, "by_value", "source")
    assert [value for _, _, value in records(broker, "by_value")] == [b'{"device":"aab"}']
    assert driver_of(broker) == was


@pytest.mark.long
def test_a_query_that_does_not_come_to_an_end_fails_and_the_one_beside_it_goes_on(
    broker: Barnabas, admin: Driver
) -> None:
    was = driver_of(broker)
    admin.create_topic("spinning", -1, {"barnabas.query": "SELECT spins(temp) x FROM source"})
    goes_on(broker, admin, b'{"device": "c", "temp": 3}')
    until(lambda: status_of(broker, "spinning").get("state") == "FAILED", "the query has failed", 120)
    assert "more than 5 s of CPU time" in status_of(broker, "spinning")["last_error"]
    goes_on(broker, admin)
    assert status_of(broker, "good")["state"] == "RUNNING"
    assert driver_of(broker) == was


@pytest.mark.long
def test_a_query_that_others_hold_up_goes_on(broker: Barnabas, admin: Driver) -> None:
    """Its record takes 1.5 s of CPU time, which is more than 5 s of wall-clock time on its part of a core."""
    admin.create_topic("held", -1, {"barnabas.query": "SELECT works(temp) x FROM source"})
    wait_for(broker, "held", "source")
    with busy_cores():
        goes_on(broker, admin, b'{"device": "d", "temp": 4}')
        wait_for(broker, "held", "source", 180)
    assert [value for _, _, value in records(broker, "held")][-1] == b'{"x":4.0}'
    told = [line for line in broker.log_file.read_text().splitlines() if "topic=held" in line]
    assert [line for line in told if "query.slow" in line]
    assert not [line for line in told if "query.retrying" in line or "query.failed" in line]


@pytest.mark.long
def test_a_driver_that_was_thrown_out_is_started_again(broker: Barnabas, admin: Driver) -> None:
    """A client needs the secret to take the driver's place; only the operator has it."""
    goes_on(broker, admin)
    was = driver_of(broker)
    with Cluster(broker.address) as cluster:
        answer = cluster.any(InitProducerIdRequest(transactional_id="barnabas.streams"), InitProducerIdResponse)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        goes_on(broker, admin)
        assert driver_of(broker) == was
        secret = (Path(broker.data_dir) / "streams-driver.secret").read_text()
        answer = cluster.any(InitProducerIdRequest(transactional_id=secret), InitProducerIdResponse)
        assert answer.error_code == 0
    goes_on(broker, admin)
    assert not driver_of(broker) & was


@pytest.mark.long
def test_a_stored_pattern_that_is_none_fails_its_query_and_nothing_else(tmp_path: Path) -> None:
    """An earlier version with other rules for patterns may have stored it."""
    settings = {"barnabas.streams.master": "local[2]", "barnabas.streams.driver.memory": "512m"}
    broker = Barnabas(tmp_path / "broker", {"barnabas.streams.driver": "none"})
    broker.start()
    admin = KafkaPythonDriver(broker.address)
    admin.create_topic("source", 1, SENSORS)
    with Cluster(broker.address) as cluster, ThreadPoolExecutor() as pool:
        control = Control(cluster, str(broker.data_dir))
        made = pool.submit(admin.create_topic, "old", 1, {"barnabas.query": "SELECT device FROM topics('(?!x).*')"})
        schema = "device STRING"
        answer = Checked(
            id=question_of(control).id,
            pattern="(?!x).*",
            format="json",
            schema=schema,
            output_format="json",
            output_schema=schema,
        )
        control.say(answer)
        made.result()
    assert broker.stop() == 0
    broker = Barnabas(tmp_path / "broker", settings)
    broker.expected_errors.append("topic=old")
    broker.start()
    admin = KafkaPythonDriver(broker.address)
    try:
        admin.create_topic("good", -1, {"barnabas.query": "SELECT upper(device) d FROM source"})
        admin.create_topic("another", 1)
        goes_on(broker, admin)
        until(lambda: status_of(broker, "old").get("state") == "FAILED", "the query has failed")
        assert "is not a regular expression" in status_of(broker, "old")["last_error"]
    finally:
        assert broker.stop() == 0


@pytest.mark.long
def test_results_as_large_as_may_be_do_not_take_the_drivers_memory(broker: Barnabas, admin: Driver) -> None:
    """Records of 900 KB, and queries that make the largest allowed results of them."""
    was = driver_of(broker)
    admin.create_topic("wide", 1, SENSORS)
    for name, query in {
        "longest": "SELECT length(repeat(device, 16)) n FROM wide",
        "constants": "SELECT " + ", ".join(f"lpad('', 60000, '{n}') x{n}" for n in range(4)) + " FROM wide",
        "several": "SELECT "
        + ", ".join(f"length(upper(repeat(device, {n}))) x{n}" for n in range(9, 13))
        + " FROM wide",
    }.items():
        admin.create_topic(name, -1, {"barnabas.query": query})
    for _ in range(4):
        admin.produce("wide", [Record(b'{"device": "%s"}' % (b"x" * 900_000))])
    for name in ("longest", "constants", "several"):
        wait_for(broker, name, "wide")
    assert [value for _, _, value in records(broker, "longest")] == [b'{"n":14400000}'] * 4
    goes_on(broker, admin)
    assert driver_of(broker) == was


def question_of(control: Control) -> Check:
    """The next question of the broker. Other messages may come before it, and none may come for a while."""
    found: list[Check] = []

    def listen() -> bool:
        found.extend(message for message in control.hear(1000) if isinstance(message, Check))
        return bool(found)

    until(listen, "a question about a query")
    return found[0]


def bomb(value: bytes, count: int) -> bytes:
    """A batch of some KB that decompresses to the largest size that the broker takes."""
    return build_batch([Written(None, value, int(time.time() * 1000))] * count, compression=CompressionType.ZSTD)


@pytest.mark.slow
def test_records_that_compress_a_thousand_to_one_do_not_take_the_memory(broker: Barnabas, admin: Driver) -> None:
    """480 MB in 30 small batches, which one tick reads, with the JVM and without it."""
    was = driver_of(broker)
    admin.create_topic("bombs", 1, SENSORS)
    admin.create_topic("through", -1, {"barnabas.query": "SELECT length(upper(device)) n FROM bombs"})
    admin.create_topic("left_out", -1, {"barnabas.query": "SELECT upper(device) d FROM bombs WHERE length(device) < 5"})
    admin.create_topic("without", -1, {"barnabas.query": "SELECT temp FROM bombs"})
    wait_for(broker, "through", "bombs")
    data = bomb(b'{"device": "%s", "temp": 1}' % (b"x" * 1_000_000), 16)
    assert len(data) < 10_000
    small = bomb(b'{"device": "y"}', 5000)
    with Pipe(broker.port_of("bombs")) as pipe:
        for number in range(30):
            assert produced(pipe, "bombs", data).error_code == 0
            if number % 10 == 0:
                assert produced(pipe, "bombs", small).error_code == 0
    goes_on(broker, admin)
    for name in ("through", "left_out", "without"):
        wait_for(broker, name, "bombs", 180)
    goes_on(broker, admin)
    assert [value for _, _, value in records(broker, "through")].count(b'{"n":1000000}') == 480
    assert len(records(broker, "left_out")) == 3 * 5000
    assert driver_of(broker) == was


def test_a_record_that_a_query_makes_too_much_of_ends_that_query(broker: Barnabas, admin: Driver) -> None:
    was = driver_of(broker)
    admin.create_topic("huge", 1, SENSORS)
    admin.create_topic("grows", -1, {"barnabas.query": "SELECT repeat(device, 16) x FROM huge"})
    admin.create_topic("beside", -1, {"barnabas.query": "SELECT length(upper(device)) n FROM huge"})
    with Pipe(broker.port_of("huge")) as pipe:
        assert produced(pipe, "huge", bomb(b'{"device": "%s"}' % (b"x" * (15 << 20)), 1)).error_code == 0
    until(lambda: status_of(broker, "grows").get("state") == "FAILED", "the query has failed", 120)
    assert "the record at offset 0 takes 15," in status_of(broker, "grows")["last_error"]
    wait_for(broker, "beside", "huge")
    goes_on(broker, admin)
    assert driver_of(broker) == was


@pytest.mark.long
def test_values_of_two_bytes_that_fill_thousands_of_columns_do_not_take_the_memory(
    broker: Barnabas, admin: Driver
) -> None:
    was = driver_of(broker)
    columns = ", ".join(f"c{n} INT" for n in range(4000))
    elements = f"a ARRAY<STRUCT<{', '.join(f'c{n}: INT' for n in range(4000))}>>"
    for name, schema in {"columns": columns, "elements": elements}.items():
        admin.create_topic(name, 1, {"barnabas.value.format": "json", "barnabas.value.schema": schema})
    admin.create_topic("of_columns", -1, {"barnabas.query": "SELECT c1 FROM columns"})
    admin.create_topic("of_elements", -1, {"barnabas.query": "SELECT size(a) n FROM elements"})
    with Pipe(broker.port_of("columns")) as pipe:
        assert produced(pipe, "columns", bomb(b"{}", 20_000)).error_code == 0
    with Pipe(broker.port_of("elements")) as pipe:
        wide = b'{"a": [%s]}' % b",".join([b"{}"] * 300_000)
        assert produced(pipe, "elements", bomb(wide, 3)).error_code == 0
        assert produced(pipe, "elements", bomb(b'{"a": [{}, {"c7": 1}]}', 1)).error_code == 0
    for name, source in {"of_columns": "columns", "of_elements": "elements"}.items():
        wait_for(broker, name, source, 120)
    assert [value for _, _, value in records(broker, "of_elements")] == [b'{"n":2}']
    assert len(records(broker, "of_elements.dead-letter")) == 3
    goes_on(broker, admin)
    assert driver_of(broker) == was
