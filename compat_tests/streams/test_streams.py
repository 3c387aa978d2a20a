"""Streams with a real broker, a real Spark driver and common clients."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from datetime import datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster
from compat_tests.broker_process import Barnabas
from compat_tests.conftest import NewServer
from compat_tests.driver import Driver, Record, Refused
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.streams.support import (
    BASE,
    DEADLINE,
    SENSORS,
    SETTINGS,
    Reading,
    in_order,
    records,
    results,
    send,
    status_of,
    wait_for_results,
    wait_for_state,
    windows,
)
from compat_tests.streams.support import (
    text as written_out,
)
from compat_tests.tools import missing
from compat_tests.waiting import until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
from barnabas.scripts import cli
from barnabas.scripts.status import last_status
from barnabas.wire.streams.plan import stream_plan_of

if reason := missing("java"):
    pytest.skip(reason, allow_module_level=True)

EXAMPLE = (
    "CREATE STREAM avg10 WATERMARK 5s FILL_HISTORY 1 INTO avg_by_device PARTITIONS 2 AS "
    "SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM sensors "
    "PARTITION BY device INTERVAL(10s) SLIDING(5s)"
)


@pytest.fixture(scope="module")
def broker(new_server: NewServer) -> Barnabas:
    server = new_server(SETTINGS)
    assert isinstance(server, Barnabas)
    with pytest.raises(Refused):  # Spark starts at the same time
        KafkaPythonDriver(server.address).create_topic(
            "x", 1, {"barnabas.stream": "SELECT count(*) FROM x SESSION(1s)"}
        )
    return server


@pytest.fixture(scope="module")
def admin(broker: Barnabas) -> Driver:
    return KafkaPythonDriver(broker.address)


def readings(first: int, count: int) -> list[Reading]:
    """One reading a second, from `first` on, over two devices and partitions."""
    return [Reading(BASE + 1000 * n, "ab"[n % 2], n + 0.5, n // 2 % 2) for n in range(first, first + count)]


def closing(second: int) -> list[Reading]:
    return [Reading(BASE + 1000 * second, "end", 0, p) for p in range(2)]


def sql(broker: Barnabas, capsys: pytest.CaptureFixture[str], statement: str) -> str:
    capsys.readouterr()
    status = cli.main(["sql", "--server", broker.address, statement])
    told = capsys.readouterr()
    assert status == 0, told.err
    return told.out


def refused(broker: Barnabas, capsys: pytest.CaptureFixture[str], statement: str) -> str:
    capsys.readouterr()
    assert cli.main(["sql", "--server", broker.address, statement]) == 1
    return capsys.readouterr().err


def folders(broker: Barnabas) -> list[Path]:
    """The folders of all queries."""
    return sorted(path for path in (broker.data_dir / "streams").iterdir() if path.is_dir())


def test_the_life_of_a_stream(broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    admin.create_topic("sensors", 2, SENSORS)
    first = readings(0, 40)
    send(broker, "sensors", [*first, *closing(60)])
    told = sql(broker, capsys, EXAMPLE)
    assert "Created stream avg10 into topic avg_by_device" in told
    assert "_wstart timestamp, _wend timestamp, device string, s double, c bigint" in told
    assert told.endswith("Its event time: _timestamp, the record's own time.\n")
    expected = windows(first, 10_000, 5000)
    assert wait_for_results(broker, "avg_by_device", 2, len(expected)) == expected
    assert {key for key, _ in records(broker, "avg_by_device", 2)} == {b"a", b"b"}
    by_another = KafkaPythonDriver(broker.address).consume("avg_by_device", len(expected), partition=None)
    assert len(by_another) == len(expected)

    shown = sql(broker, capsys, "SHOW STREAMS")
    assert "avg10" in shown
    assert "RUNNING" in shown
    assert "sensors, from offsets 0, 0" in sql(broker, capsys, "DESCRIBE STREAM avg10")
    assert "Time:    _timestamp, the record's own time" in sql(broker, capsys, "DESCRIBE STREAM avg10")
    assert "windows of 10s, one each 5s" in sql(broker, capsys, "EXPLAIN STREAM avg10")
    # A batch's results are counted when they are there, its other figures when Spark has told of it.
    figures = wait_for_state(broker, "avg10", "RUNNING", rows=len(expected), state_rows=1, watermark=BASE + 55_000)
    assert (figures["lag"], figures["late"], figures["ignored"], figures["last_error"]) == (0, 0, 0, None)
    assert figures["watermark"] == BASE + 55_000
    assert figures["batch_ms"] > 0

    sql(broker, capsys, "PAUSE STREAM avg10")
    wait_for_state(broker, "avg10", "PAUSED")
    second = readings(61, 20)
    send(broker, "sensors", [*second, *closing(120)])
    wait_for_state(broker, "avg10", "PAUSED", lag=22)
    assert len(results(broker, "avg_by_device", 2)) == len(expected)
    sql(broker, capsys, "RESUME STREAM avg10")  # its state is kept: windows from before the pause go on
    expected = windows([*first, *closing(60), *second], 10_000, 5000)
    assert wait_for_results(broker, "avg_by_device", 2, len(expected)) == expected

    (folder,) = folders(broker)
    assert stat.S_IMODE(os.stat(folder).st_mode) == stat.S_IMODE(os.stat(folder.parent).st_mode) == 0o700
    told = sql(broker, capsys, "DROP STREAM avg10")
    assert "Topic avg_by_device keeps its results" in told
    until(lambda: not folders(broker), "the state is removed", DEADLINE)
    assert len(results(broker, "avg_by_device", 2)) == len(expected)
    assert "there is no stream avg10" in refused(broker, capsys, "DROP STREAM avg10")
    sql(broker, capsys, "DROP STREAM IF EXISTS avg10")
    sql(broker, capsys, "DROP TOPIC avg_by_device")


def test_a_time_that_was_perhaps_meant_is_told(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    sql(broker, capsys, "CREATE TOPIC timed (at TIMESTAMP, n INT) PARTITIONS 1")
    own = sql(broker, capsys, "CREATE STREAM by_own AS SELECT count(*) AS c FROM timed INTERVAL(10s)")
    assert "timed has a time at, too: write EVENT_TIME at for windows by that one." in own
    by_at = sql(broker, capsys, "CREATE STREAM by_at EVENT_TIME at AS SELECT count(*) AS c FROM timed INTERVAL(10s)")
    assert by_at.endswith("Its event time: at.\n")
    until(lambda: "stream.event_time" in broker.log_file.read_text(), "the driver says so, too", DEADLINE)
    for name in ("by_own", "by_at"):
        sql(broker, capsys, f"DROP STREAM {name}")


@pytest.mark.long
def test_a_stream_is_calculated_again_and_made_again(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.create_topic("measured", 2, SENSORS)
    send(broker, "measured", [*readings(0, 40), *closing(60)])
    example = EXAMPLE.replace("sensors", "measured").replace("avg_by_device", "averages")
    sql(broker, capsys, example)
    expected = windows(readings(0, 40), 10_000, 5000)
    assert wait_for_results(broker, "averages", 2, len(expected)) == expected
    (folder,) = folders(broker)
    sql(broker, capsys, "RECALCULATE STREAM avg10")
    again = wait_for_results(broker, "averages", 2, 2 * len(expected))
    assert again[::2] == again[1::2] == expected
    until(lambda: len(folders(broker)) == 1 and folders(broker) != [folder], "the old state is removed", DEADLINE)
    sql(broker, capsys, "DROP STREAM avg10")
    until(lambda: not folders(broker), "the state is removed", DEADLINE)
    assert len(results(broker, "averages", 2)) == 2 * len(expected)

    # A new stream with the same name, topic and another number of state stores: it inherits nothing.
    sql(broker, capsys, example.replace(" PARTITIONS 2", "").replace("WATERMARK", "PARALLELISM 2 WATERMARK"))
    assert len(wait_for_results(broker, "averages", 2, 3 * len(expected))) == 3 * len(expected)
    (folder,) = folders(broker)
    assert sorted(path.name for path in folder.glob("*/state/0/[0-9]*")) == ["0", "1"]
    sql(broker, capsys, "DROP TOPIC averages")
    until(lambda: not folders(broker), "the state is removed with the topic", DEADLINE)


def test_a_topic_that_others_read_is_dropped_with_cascade_only(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.create_topic("read", 1, SENSORS)
    sql(broker, capsys, "CREATE TOPIC reading AS SELECT device FROM read")
    sql(broker, capsys, "CREATE TOPIC matching AS SELECT device FROM topics('read')")
    sql(broker, capsys, "CREATE STREAM counting INTO counts AS SELECT count(*) AS c FROM read INTERVAL(10s)")
    table = (
        "CREATE STREAM joining AS SELECT count(*) AS c FROM reading JOIN read r WITHIN 1s ON reading.device = r.device"
    )
    sql(broker, capsys, f"{table} INTERVAL(10s)")
    told = refused(broker, capsys, "DROP TOPIC read")
    assert "read is read by stream counting, stream joining, query topic reading, which would end" in told
    assert "DROP TOPIC read CASCADE" in told
    assert "read" in admin.topics()
    broker.expected_errors += ["the source read was deleted", "topic=reading", "topic=counts", "topic=joining"]
    for statement in ("DROP STREAM joining", "DROP TOPIC matching", "DROP TOPIC read CASCADE"):
        sql(broker, capsys, statement)
    assert "the source read was deleted" in wait_for_state(broker, "counting", "FAILED")["last_error"]
    for statement in ("DROP TOPIC reading", "DROP TOPIC counts", "DROP TOPIC joining"):
        sql(broker, capsys, statement)
    assert "read" not in admin.topics()


def test_what_is_no_stream_is_refused_with_the_reason(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    if "sensors" not in admin.topics():
        admin.create_topic("sensors", 2, SENSORS)
    admin.create_topic("typed", 1, {"barnabas.value.format": "json", "barnabas.value.schema": "c STRING"})
    admin.create_topic("bytes", 1)
    admin.produce("bytes", [Record(b"x")])
    told = refused(broker, capsys, "CREATE STREAM x AS SELECT count(*) FROM sensors INTERVAL(10x)")
    assert 'line 1, column 42, at "10x)": 10x: x is no unit' in told
    count = "SELECT count(*) AS c FROM sensors INTERVAL(10s)"
    assert "typed has the columns c STRING, and the stream gives c bigint" in refused(
        broker, capsys, f"CREATE STREAM x INTO typed AS {count}"
    )
    assert "bytes has held records" in refused(broker, capsys, f"CREATE STREAM x INTO bytes AS {count}")
    for statement, why in [
        ("SELECT temp FROM sensors INTERVAL(10s)", "there is no column `temp` in a window"),
        ("SELECT nothing(temp) FROM sensors INTERVAL(10s)", "there is no function nothing"),
        ("SELECT collect_list(temp) c FROM sensors INTERVAL(10s)", "its state grows with the number of records"),
        ("SELECT `collect_list`(temp) c FROM sensors INTERVAL(10s)", "its state grows with the number of records"),
        ("SELECT count(DISTINCT temp) c FROM sensors INTERVAL(10s)", "use approx_count_distinct"),
        ("SELECT max(avg(temp)) c FROM sensors INTERVAL(10s)", "an aggregate in an aggregate"),
        ("SELECT sum(rand()) c FROM sensors INTERVAL(10s)", "the function rand is not possible"),
        ("SELECT max(reflect('java.lang.System', 'getenv', 'HOME')) c FROM sensors INTERVAL(10s)", "reflect"),
        ("SELECT max(now()) c FROM sensors INTERVAL(10s)", "use _timestamp"),
        ("SELECT max(repeat(device, 2000000000)) c FROM sensors INTERVAL(10s)", "its result may have"),
        ("SELECT max(nope) c FROM sensors INTERVAL(10s)", "there is no column `nope`"),
        ("SELECT count(*) c FROM sensors WHERE device RLIKE '(?=a)b' INTERVAL(10s)", "not a regular expression"),
        ("SELECT count(*) c FROM nothing INTERVAL(10s)", "there is no topic nothing"),
        ("SELECT count(*) c FROM sensors SESSION(device, 1s)", "is a string: it must be a TIMESTAMP"),
        ("SELECT count(*) c FROM sensors STATE_WINDOW(temp)", "STATE_WINDOW is over whole numbers"),
        ("SELECT count(*) c FROM sensors STATE_WINDOW(nope)", "there is no column `nope`"),
        ("SELECT count(*) c FROM sensors STATE_WINDOW(temp > rand())", "the function rand is not possible"),
        (
            "SELECT count(*) c FROM sensors EVENT_WINDOW(START WITH temp > 1 END WITH device)",
            'column 77, at "device)": expected a condition, and this is a string',
        ),
        ("SELECT _timestamp, count(*) FROM sensors INTERVAL(10s) HAVING x > 1", "there is no column `x` in a window"),
    ]:
        with pytest.raises(Refused, match="INVALID_CONFIG"):
            admin.create_topic("x", 1, {"barnabas.stream": statement})
        assert why in refused(broker, capsys, f"CREATE STREAM x AS {statement}"), statement
    assert "x" not in admin.topics()


@pytest.mark.long
def test_a_stream_over_a_stream_over_a_query(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("raw", 2, SENSORS)
    admin.create_topic("hot", -1, {"barnabas.query": "SELECT device, temp FROM raw WHERE temp >= 10"})
    made = "FILL_HISTORY 1 AS SELECT _wstart, device, count(*) AS c FROM hot PARTITION BY device INTERVAL(5s)"
    admin.create_topic("fives", 2, {"barnabas.stream": made})
    above = "FILL_HISTORY 1 EVENT_TIME `_wstart` AS SELECT sum(c) AS c FROM fives INTERVAL(1m)"
    with pytest.raises(Refused):  # a result's timestamp is the beginning of its window
        admin.create_topic("minutes", 1, {"barnabas.stream": above.replace("_wstart", "nope")})
    admin.create_topic("minutes", 1, {"barnabas.stream": above})
    send(broker, "raw", [*readings(0, 60), *closing(300)])
    send(broker, "raw", [Reading(BASE + 300_000, "end", 99, 0), Reading(BASE + 600_000, "end", 99, 0)])
    found = wait_for_results(broker, "minutes", 1, 1)
    assert found[0] == {"c": 50}


def test_a_quiet_topic_closes_its_windows_and_bad_times_close_none(broker: Barnabas, admin: Driver) -> None:
    schema = {"barnabas.value.format": "json", "barnabas.value.schema": "n INT, ts TIMESTAMP"}
    admin.create_topic("quiet", 1, schema)
    text = "MAX_DELAY 3s EVENT_TIME ts AS SELECT _wstart, count(*) AS c FROM quiet INTERVAL(10s)"
    admin.create_topic("closed", 1, {"barnabas.stream": text})
    wait_for_state(broker, "closed", "RUNNING")
    values = [
        b'{"n": 1, "ts": "2024-01-01T00:00:01Z"}',
        b'{"n": 1, "ts": "2024-01-01T00:00:13Z"}',
        b'{"n": 1, "ts": "9999-01-01T00:00:00Z"}',
        b'{"n": 1, "ts": null}',
        b'{"n": 1}',
        b"nothing",
        b'{"n": 1, "ts": "2024-01-01T00:00:02Z"}',
    ]
    admin.produce("quiet", [Record(value) for value in values])
    expected = [
        {"_wstart": "2024-01-01T00:00:00.000000Z", "c": 2},
        {"_wstart": "2024-01-01T00:00:10.000000Z", "c": 1},
    ]
    assert wait_for_results(broker, "closed", 1, 2) == expected
    until(lambda: status_of(broker, "closed")["state_rows"] == 0, "no window is open", DEADLINE)
    assert status_of(broker, "closed")["ignored"] == 4
    admin.produce("quiet", [Record(b'{"n": 1, "ts": "2024-01-01T00:00:03Z"}')])  # its window has closed
    wait_for_state(broker, "closed", "RUNNING", late=1)
    assert len(results(broker, "closed", 1)) == 2


@pytest.mark.long
def test_a_late_record_has_its_window_calculated_again(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.create_topic("tardy", 1, SENSORS)
    text = "IGNORE EXPIRED 0 AS SELECT _wstart, count(*) AS c, last(temp) AS l FROM tardy INTERVAL(10s)"
    admin.create_topic("again", 1, {"barnabas.stream": text})
    assert "again      windows that closed at most 1d ago" in sql(broker, capsys, "EXPLAIN STREAM again")
    wait_for_state(broker, "again", "RUNNING")
    send(broker, "tardy", [Reading(BASE + 1000 * second, "a", second, 0) for second in (1, 2, 11, 21)])
    first = [{"_wstart": written_out(BASE + 10_000 * n), "c": 2 - n, "l": (2, 11)[n]} for n in range(2)]
    assert wait_for_results(broker, "again", 1, 2) == first
    send(broker, "tardy", [Reading(BASE + 5000, "a", 5, 0)])
    wait_for_results(broker, "again", 1, 3)
    assert results(broker, "again", 1) == [*first, {"_wstart": written_out(BASE), "c": 3, "l": 5}]
    assert wait_for_state(broker, "again", "RUNNING", late=1)["rows"] == 3


@pytest.mark.long
def test_what_comes_with_the_mark_of_a_quiet_topic_is_closed_by_the_next_one(broker: Barnabas, admin: Driver) -> None:
    """Records may be older than the mark, and still be in windows that the mark does not close."""
    schema = {"barnabas.value.format": "json", "barnabas.value.schema": "ts TIMESTAMP"}
    admin.create_topic("resting", 1, schema)
    text = "WATERMARK 5s MAX_DELAY 3s EVENT_TIME ts AS SELECT _wstart, count(*) AS c FROM resting INTERVAL(10s)"
    admin.create_topic("ended", 1, {"barnabas.stream": text})
    wait_for_state(broker, "ended", "RUNNING")
    admin.produce("resting", [Record(b'{"ts": "2024-01-01T00:00:16Z"}')])
    wait_for_results(broker, "ended", 1, 1)  # the mark's time is 31 s, and the watermark 26 s
    admin.produce("resting", [Record(b'{"ts": "2024-01-01T00:00:27Z"}')])
    assert wait_for_results(broker, "ended", 1, 2)[1] == {"_wstart": "2024-01-01T00:00:20.000000Z", "c": 1}


def test_a_stream_whose_state_outgrows_its_limit_stops(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("keys", 1, SENSORS)
    text = "MAX_STATE_ROWS 5 AS SELECT device, count(*) AS c FROM keys PARTITION BY device INTERVAL(10s)"
    admin.create_topic("counted", 1, {"barnabas.stream": text})
    wait_for_state(broker, "counted", "RUNNING")
    send(broker, "keys", [Reading(BASE, f"device {n}", 1, 0) for n in range(9)])
    figures = wait_for_state(broker, "counted", "FAILED")
    assert "its state has 9 rows, more than MAX_STATE_ROWS (5)" in figures["last_error"]
    broker.expected_errors.append("stream.failed")


@pytest.mark.long
def test_windows_that_records_open_and_close(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """The streams are stopped in the middle of a window. One with too much state fails, and the others go on.

    In a quiet topic, MAX_DELAY closes the windows whose last record has come.
    """
    admin.create_topic("valves", 1, SENSORS)
    select = "AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM valves PARTITION BY device"
    streams = {
        "states": f"WATERMARK 2s {select} STATE_WINDOW(temp > 5)",
        "events": f"WATERMARK 2s {select} EVENT_WINDOW(START WITH temp > 5 END WITH temp < 2)",
        "counts": f"WATERMARK 2s {select} COUNT_WINDOW(4, 2)",
        "long": f"WATERMARK 1h MAX_DELAY 3s {select} EVENT_WINDOW(START WITH temp > 5 END WITH temp < 2) TRUE_FOR(2s)",
        "large": f"WATERMARK 2s MAX_STATE_ROWS 20 {select} COUNT_WINDOW(1000)",
    }
    for name, select in streams.items():
        admin.create_topic(name, 1, {"barnabas.stream": select})
    assert "from a record with temp > 5 to one with temp < 2" in sql(broker, capsys, "EXPLAIN STREAM events")
    assert "of at least 2s" in sql(broker, capsys, "EXPLAIN STREAM long")
    temps = [1, 9, 8, 7, 1, 0, 6, 6, 3, 4, 1, 9, 1, 2]
    written = [Reading(BASE + 1000 * n, "a", temp, 0) for n, temp in enumerate(temps)]
    expected = {
        "states": [(0, 0), (1, 3), (4, 5), (6, 7), (8, 10), (11, 11)],
        "events": [(1, 4), (6, 10), (11, 12)],
        "long": [(1, 4), (6, 10)],
        "counts": [(0, 3), (2, 5), (4, 7), (6, 9), (8, 11), (10, 13)],
    }
    send(broker, "valves", [written[n] for n in (1, 0, 3, 2, 5, 4, 7, 6, 8)])
    for name in expected:
        wait_for_results(broker, name, 1, 1)
        sql(broker, capsys, f"STOP STREAM {name}")
        wait_for_state(broker, name, "STOPPED")
    send(broker, "valves", [*written[9:], Reading(BASE + 60_000, "end", 0, 0)])
    for name in expected:
        sql(broker, capsys, f"START STREAM {name}")
    for name, places in expected.items():
        found = [
            {
                "_wstart": written_out(written[lo].ts),
                "_wend": written_out(written[hi].ts),
                "device": "a",
                "s": float(sum(temps[lo : hi + 1])),
                "c": hi + 1 - lo,
            }
            for lo, hi in places
        ]
        assert wait_for_results(broker, name, 1, len(found)) == found, name
    assert len({status_of(broker, name)["query"] for name in streams}) == len(streams), "each has one of its own"
    send(broker, "valves", [Reading(BASE + 60_000 + n, "b", 1, 0) for n in range(30)])
    figures = wait_for_state(broker, "large", "FAILED")
    assert "a part of its state has 30 records, more than MAX_STATE_ROWS (20): drop the stream" in figures["last_error"]
    broker.expected_errors.append("stream.failed")
    for name in expected:
        wait_for_state(broker, name, "RUNNING", lag=0)
        sql(broker, capsys, f"DROP STREAM {name}")


@pytest.mark.long
def test_windows_without_records_are_filled(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stream is stopped between two windows."""
    admin.create_topic("gaps", 1, SENSORS)
    text = (
        "MAX_DELAY 3s AS SELECT _wstart, device, avg(temp) AS t, count(*) AS c FROM gaps PARTITION BY device "
        "INTERVAL(1m) FILL(LINEAR)"
    )
    admin.create_topic("filled", 1, {"barnabas.stream": text})
    assert "fill       windows without records: linear" in sql(broker, capsys, "EXPLAIN STREAM filled")
    send(broker, "gaps", [Reading(BASE, "a", 1, 0), Reading(BASE + 120_000, "a", 3, 0), Reading(BASE, "b", 7, 0)])
    wait_for_results(broker, "filled", 1, 4)
    sql(broker, capsys, "STOP STREAM filled")
    wait_for_state(broker, "filled", "STOPPED")
    send(broker, "gaps", [Reading(BASE + 360_000, "a", 5, 0)] * 4)
    sql(broker, capsys, "START STREAM filled")
    found = wait_for_results(broker, "filled", 1, 8)
    expected: list[tuple[int, str, float, int]] = [(0, "a", 1, 1), (1, "a", 2, 1), (2, "a", 3, 1), (0, "b", 7, 1)]
    expected += [(3, "a", 3.5, 1), (4, "a", 4, 2), (5, "a", 4.5, 3), (6, "a", 5, 4)]
    assert found == in_order(
        {"_wstart": written_out(BASE + 60_000 * n), "device": device, "t": float(t), "c": c}
        for n, device, t, c in expected
    )
    sql(broker, capsys, "DROP STREAM filled")


@pytest.mark.long
def test_periods_by_the_clock(broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    """The records' timestamps, which are years old, do not matter. Quiet periods have no result."""
    admin.create_topic("clocked", 1, SENSORS)
    text = "AS SELECT _wstart, _wend, count(*) AS c, sum(temp) AS s FROM clocked PERIOD(2s)"
    admin.create_topic("periods", 1, {"barnabas.stream": text})
    assert "periods of 2s by the clock" in sql(broker, capsys, "EXPLAIN STREAM periods")
    wait_for_state(broker, "periods", "RUNNING")
    began, found = time.time(), list[dict[str, Any]]()

    def has_counted(total: int) -> bool:
        found[:] = results(broker, "periods", 1)
        return sum(int(each["c"]) for each in found) == total

    for number in range(3):
        if number == 2:
            sql(broker, capsys, "STOP STREAM periods")
            wait_for_state(broker, "periods", "STOPPED")
        send(broker, "clocked", [Reading(BASE - 3_600_000 * number + n, "a", n, 0) for n in range(5)])
        if number == 2:
            sql(broker, capsys, "START STREAM periods")
        until(partial(has_counted, 5 * number + 5), "all are in", DEADLINE)
    ended = time.time()
    assert sum(each["s"] for each in found) == 30
    starts = [datetime.fromisoformat(each["_wstart"]).timestamp() for each in found]
    assert [datetime.fromisoformat(each["_wend"]).timestamp() - 2 for each in found] == starts
    assert len(set(starts)) == len(starts) >= 3
    assert all(start % 2 == 0 and began - 2 <= start <= ended - 2 for start in starts)
    sql(broker, capsys, "DROP STREAM periods")


@pytest.mark.long
def test_periods_that_are_told_at_once_and_periods_that_are_filled(broker: Barnabas, admin: Driver) -> None:
    admin.create_topic("ticking", 1, SENSORS)
    admin.create_topic(
        "changes", 1, {"barnabas.stream": "TRIGGER AT_ONCE SELECT _wstart, count(*) c FROM ticking PERIOD(1h)"}
    )
    admin.create_topic(
        "each", 1, {"barnabas.stream": "SELECT _wstart, count(*) c, max(temp) m FROM ticking PERIOD(1s) FILL(PREV)"}
    )
    for topic in ("changes", "each"):
        wait_for_state(broker, topic, "RUNNING")

    def has_counted(total: int) -> bool:
        last = {each["_wstart"]: each["c"] for each in results(broker, "changes", 1)}
        return bool(sum(last.values()) == total)

    for number in range(2):
        send(broker, "ticking", [Reading(BASE, "a", 10 * number + n, 0) for n in range(5)])
        until(partial(has_counted, 5 * number + 5), "all are told of at once", DEADLINE)
        sent = time.time()
        until(lambda: time.time() > sent + 4, "some periods are over", DEADLINE)  # noqa: B023

    def are_in() -> bool:
        return any(each["m"] == 14 for each in results(broker, "each", 1))

    until(are_in, "the last period is in", DEADLINE)
    found = results(broker, "each", 1)
    starts = [datetime.fromisoformat(each["_wstart"]).timestamp() for each in found]
    assert len(found) >= 4
    assert starts == [starts[0] + n for n in range(len(starts))], "no period is left out"
    assert {each["m"] for each in found} <= {0, 1, 2, 3, 4, 10, 11, 12, 13, 14}
    values = [(each["c"], each["m"]) for each in found]
    assert sum(one == other for one, other in pairwise(values)) >= 2, "some are filled"


class Sender:
    """Writes a record for each second of event time to a topic, until `finish`."""

    def __init__(self, broker: Barnabas, topic: str) -> None:
        self.written: list[Reading] = []
        self._broker, self._topic, self._ends = broker, topic, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(0.1):
            more = readings(number, 10)
            send(self._broker, self._topic, more)
            self.written += more
            number += 10

    def finish(self) -> list[Reading]:
        """Stop; returns all records that it has written."""
        self._ends.set()
        self._thread.join(120)
        return self.written


def query_of(broker: Barnabas, name: str) -> str:
    return str(wait_for_state(broker, name, "RUNNING", batch_ms=1)["query"])


SHARED = (
    "PARALLELISM 2 WATERMARK 10m AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM shared "
    "PARTITION BY device INTERVAL(1m) SLIDING({})"
)


@pytest.mark.long
def test_streams_over_one_source_share_a_query_which_they_join_and_leave(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records come all the while, and each stream's results are those of its own records."""
    admin.create_topic("shared", 2, SENSORS)
    for name in ("first", "paused"):
        admin.create_topic(name, 2, {"barnabas.stream": SHARED.format("30s")})
    sender = Sender(broker, "shared")
    try:
        assert query_of(broker, "first") == query_of(broker, "paused")
        wait_for_results(broker, "paused", 2, 1)
        admin.create_topic("joined", 1, {"barnabas.stream": SHARED.format("20s")})
        assert query_of(broker, "joined") == query_of(broker, "first")
        wait_for_results(broker, "joined", 1, 1)
        sql(broker, capsys, "PAUSE STREAM paused")
        wait_for_state(broker, "paused", "PAUSED")
        count = len(results(broker, "first", 2))
        wait_for_results(broker, "first", 2, count + 10)
        sql(broker, capsys, "RESUME STREAM paused")
        assert query_of(broker, "paused") != query_of(broker, "first")
        admin.create_topic("dropped", 1, {"barnabas.stream": SHARED.format("10s")})
        assert query_of(broker, "dropped") in (query_of(broker, "first"), query_of(broker, "paused"))
        sql(broker, capsys, "DROP STREAM dropped")
        sql(broker, capsys, "RECALCULATE STREAM joined")
        until(lambda: len(folders_of(broker, "first", "paused", "joined")) == 3, "it has a query of its own", DEADLINE)
    finally:
        written = sender.finish()
    send(broker, "shared", closing(10**5))
    expected = windows(written, 60_000, 30_000)
    for name in ("first", "paused"):
        assert wait_for_results(broker, name, 2, len(expected)) == expected, name
    with Cluster(broker.address) as cluster:
        plan = stream_plan_of(topic_configs(cluster, ["joined"], ["barnabas.stream.plan"])["joined"])
    assert plan is not None
    seen = [0, 0]
    after = []
    for reading in written:
        if seen[reading.partition] >= plan.starts[reading.partition]:
            after.append(reading)
        seen[reading.partition] += 1
    assert 0 < len(after) < len(written)
    expected = windows(after, 60_000, 20_000)
    both = wait_for_results(broker, "joined", 1, len(expected))
    until(lambda: set(map(str, results(broker, "joined", 1))) == set(map(str, expected)), "all come again", DEADLINE)
    assert len(both) >= len(expected)
    for name in ("first", "paused", "joined"):
        sql(broker, capsys, f"DROP STREAM {name}")


def folders_of(broker: Barnabas, *names: str) -> set[str]:
    return {status_of(broker, name).get("query", "") for name in names}


@pytest.mark.long
def test_of_streams_that_share_a_query_only_the_one_stops_whose_state_outgrows_its_limit(
    broker: Barnabas, admin: Driver
) -> None:
    admin.create_topic("many", 1, SENSORS)
    text = "MAX_STATE_ROWS {} AS SELECT device, _wstart, count(*) AS c FROM many PARTITION BY {} INTERVAL(10s)"
    admin.create_topic("all", 1, {"barnabas.stream": text.format(1000, "device")})
    admin.create_topic("few", 1, {"barnabas.stream": text.format(8, "device")})
    admin.create_topic("two", 1, {"barnabas.stream": text.format(8, "least(device, 'device 1') AS device")})
    for name in ("all", "few", "two"):
        wait_for_state(broker, name, "RUNNING")
    assert len(folders_of(broker, "all", "few", "two")) == 1
    send(broker, "many", [Reading(BASE, f"device {n}", 1, 0) for n in range(9)])
    figures = wait_for_state(broker, "few", "FAILED")
    assert "its state has 9 rows, more than MAX_STATE_ROWS (8)" in figures["last_error"]
    broker.expected_errors.append("stream.failed")
    send(broker, "many", [Reading(BASE + 60_000, "end", 1, 0)])
    assert len(wait_for_results(broker, "all", 1, 9)) == 9
    assert {row["device"]: row["c"] for row in wait_for_results(broker, "two", 1, 2)}["device 1"] == 8
    assert results(broker, "few", 1) == []
    for name in ("all", "two"):
        wait_for_state(broker, name, "RUNNING")
    for name in ("all", "few", "two"):
        admin.delete_topic(name)


@pytest.mark.long
def test_a_checkpoint_that_does_not_fit_stops_its_stream_and_no_other(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.create_topic("some", 1, SENSORS)
    text = "FILL_HISTORY 1 AS SELECT _wstart, count(*) AS c FROM some INTERVAL(10s)"
    admin.create_topic("kept", 1, {"barnabas.stream": text})
    one = [Reading(BASE + 1000 * n, "a", 1, 0) for n in range(0, 40, 5)]
    send(broker, "some", one)
    wait_for_results(broker, "kept", 1, 3)
    sql(broker, capsys, "STOP STREAM kept")
    wait_for_state(broker, "kept", "STOPPED")
    (folder,) = (f for f in folders(broker) if f.name.startswith(status_of(broker, "kept")["query"]))
    shutil.copytree(folder, folder.parent.parent / "copy")
    sql(broker, capsys, "START STREAM kept")
    send(broker, "some", [Reading(BASE + 1000 * n, "a", 1, 0) for n in range(40, 80, 5)])
    before = wait_for_results(broker, "kept", 1, 7)
    for state, told in [("older", "is older than the results"), ("gone", "is gone")]:
        sql(broker, capsys, "STOP STREAM kept")
        wait_for_state(broker, "kept", "STOPPED")
        shutil.rmtree(folder)
        if state == "older":
            shutil.copytree(folder.parent.parent / "copy", folder)
        sql(broker, capsys, "START STREAM kept")
        figures = wait_for_state(broker, "kept", "FAILED")
        assert told in figures["last_error"]
        assert "RECALCULATE STREAM" in figures["last_error"]
    broker.expected_errors.append("stream.failed")
    assert in_order(results(broker, "kept", 1)) == before
    sql(broker, capsys, "RECALCULATE STREAM kept")
    assert len(wait_for_results(broker, "kept", 1, 14)) == 14
    admin.delete_topic("some")
    figures = wait_for_state(broker, "kept", "FAILED")
    assert "the source some was deleted" in figures["last_error"]


def test_nobody_else_uses_the_names_of_a_stream(broker: Barnabas, admin: Driver) -> None:
    from confluent_kafka import KafkaException, Producer

    admin.create_topic("places", 1, SENSORS)
    text = "AS SELECT count(*) AS c FROM places INTERVAL(10s)"
    admin.create_topic("owned", 1, {"barnabas.stream": text})
    wait_for_state(broker, "owned", "RUNNING")
    stranger = Producer({"bootstrap.servers": broker.address, "transactional.id": "barnabas.streams/owned"})
    with pytest.raises(KafkaException, match="Transactional Id authorization"):
        stranger.init_transactions(30)
    with Cluster(broker.address) as cluster:
        told: dict[str, Any] = topic_configs(cluster, ["owned"])
    assert "barnabas.stream" in told["owned"]
    assert status_of(broker, "owned")["state"] == "RUNNING"


@pytest.mark.long
def test_after_a_restart_the_lag_of_a_quiet_stream_is_none(
    broker: Barnabas, admin: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lag is not the length of the topic: the stream's position is in its checkpoint."""
    admin.create_topic("resting_two", 2, SENSORS)
    sql(broker, capsys, "CREATE STREAM rests FILL_HISTORY 1 AS SELECT count(*) AS c FROM resting_two INTERVAL(10s)")
    send(broker, "resting_two", [*readings(0, 20), *closing(60)])
    wait_for_results(broker, "rests", 1, 2)
    until(lambda: status_of(broker, "rests")["lag"] == 0, "it has read all", DEADLINE)
    broker.stop()
    stopped = time.time() * 1000
    broker.start()
    lags: list[int | None] = []

    def has_read() -> bool:
        with Cluster(broker.address) as cluster:
            status = last_status(cluster)
        told = [each for each in status.streams if each.name == "rests"] if status and status.at_ms > stopped else []
        lags.extend(each.lag for each in told)
        return [(each.state, each.lag is None) for each in told] == [("RUNNING", False)]

    until(has_read, "it is known how far it is", DEADLINE)
    assert set(lags) <= {None, 0}
