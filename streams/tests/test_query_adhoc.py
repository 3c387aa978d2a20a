"""SELECTs from the terminal over the topics of a running broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from barnabas.client.admin import create_topic, set_topic_config
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.streams.tests.test_wal import produce
from compat_tests.broker_process import Barnabas
from compat_tests.tools import ROOT

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.scripts import cli
from barnabas.streams import adhoc
from barnabas.streams.captured_output import in_one_line
from barnabas.streams.query.session import SUBSTITUTE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Barnabas]:
    del spark  # one session for all: it must be created first
    with Barnabas(tmp_path_factory.mktemp("adhoc")) as made:
        produce(made, [b'{"device": "d%d", "temp": %d}' % (n % 3, n) for n in range(30)], "my.sensors")
        yield made


def selected(*asked: object) -> tuple[list[str], list[tuple[object, ...]]]:
    """Names and rows."""
    found = adhoc.select(*asked)  # type: ignore[arg-type]
    return found.column_names, list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_nothing_is_put_into_a_text(broker: Barnabas, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    spark.conf.set(SUBSTITUTE, "true")
    where = ["--server", broker.address, "--data-dir", str(broker.data_dir), "--master", "local[2]"]
    assert cli.main(["sql", *where, "--engine", "spark", "SELECT '${env:HOME}' AS x, '${system:user.home}' AS y"]) == 0
    assert capsys.readouterr().out.split() == ["x", "y", "${env:HOME}", "${system:user.home}"]


def test_a_schema_is_inferred_and_any_sql_runs_over_topics(
    broker: Barnabas, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--server", broker.address, "--data-dir", str(broker.data_dir), "--master", "local[2]"]
    assert cli.main(["sql", *where, "ALTER TOPIC `my.sensors` INFER SCHEMA"]) == 0
    assert "device STRING, temp BIGINT" in capsys.readouterr().out
    query = (
        "SELECT s.device, count(*) AS n, max(s.temp) AS top FROM `my.sensors` s "
        "JOIN (SELECT DISTINCT device FROM `my.sensors`) d ON s.device = d.device GROUP BY s.device ORDER BY 1"
    )
    assert cli.main(["sql", *where, query]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert [line.split() for line in lines[:4]] == [
        ["device", "n", "top"],
        ["d0", "10", "27"],
        ["d1", "10", "28"],
        ["d2", "10", "29"],
    ]
    assert cli.main(["sql", *where, "--limit", "2", "SELECT _offset FROM `my.sensors` ORDER BY _offset"]) == 0
    told = capsys.readouterr()
    assert told.out.split() == ["_offset", "0", "1"]
    assert "raise --limit" in told.err


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT * FROM nothing", "there is no topic nothing"),
        ("SELECT nothing FROM `my.sensors`", "there is no column `nothing`"),
        ("SELECT * FROM my.sensors", "`my.sensors`"),
        ("SELECT FROM WHERE (", "line 1, column 20, at the end"),
        ("SELECT lenght(device) FROM `my.sensors`", "there is no function lenght; did you mean length?"),
    ],
)
def test_what_cannot_run_is_told_in_one_line(broker: Barnabas, query: str, told: str) -> None:
    with pytest.raises(ClientError) as caught:
        adhoc.select(broker.address, str(broker.data_dir), "local[2]", query, 10)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_broker_says_where_its_logs_are(broker: Barnabas) -> None:
    assert adhoc.select(broker.address, None, "local[2]", "SELECT count(*) FROM `my.sensors`", 10).to_pylist() == [
        {"count(1)": 30}
    ]


def test_a_folder_that_is_not_the_brokers_is_told_before_spark_starts(
    broker: Barnabas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adhoc, "start_session", None)
    other = Barnabas(tmp_path / "other")
    other.start()
    assert other.stop() == 0
    for folder, told in [
        (tmp_path, "is not a data directory of a broker"),
        (other.data_dir, "set --data-dir to the broker's log.dir"),
    ]:
        with pytest.raises(ClientError, match=told):
            adhoc.select(broker.address, str(folder), "local[2]", "SELECT 1", 10)
        with pytest.raises(ClientError, match=told):
            adhoc.infer(broker.address, str(folder), "my.sensors")
    monkeypatch.setattr("barnabas.streams.wal.local_broker.log_dir", lambda cluster: "/not/here")
    with pytest.raises(ClientError, match="keeps its logs in /not/here, which is not on this machine"):
        adhoc.select(broker.address, None, "local[2]", "SELECT 1", 10)


def test_what_a_worker_met_is_told_in_one_line() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in plan\n    raise\nKeyError: 1\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "b.py", line 2, in read\n    raise\n'
        "barnabas.streams.wal.errors.WalError: /data is not a data directory: set path\n\n\tat org.apache.spark.X\n"
    )
    assert in_one_line(Exception(text)) == "/data is not a data directory: set path"
    assert in_one_line(Exception("[COLUMN] no such column\nin line 1")) == "[COLUMN] no such column"


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (
            "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, "
            "most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).",
            "Python worker exited unexpectedly (crashed).",
        ),
        ("java.lang.IllegalStateException: Cannot call methods", "Cannot call methods"),
    ],
)
def test_what_java_met_is_told_in_one_line(what: str, told: str) -> None:
    stack = "\tat org.apache.spark.A.b(A.scala:1)\nCaused by: java.io.EOFException\n\t... 22 more\n"
    assert in_one_line(Exception(f"An error occurred while calling z:org.apache.A.b.\n: {what}\n{stack}")) == told
    assert in_one_line(ValueError()) == "ValueError()"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"PYSPARK_SUBMIT_ARGS": "--driver-memory 900000g pyspark-shell"},
            "Error occurred during initialization of VM; ",
        ),
        ({}, 'Exception in thread "main" org.apache.spark.SparkException: '),
    ],
)
def test_why_java_ended_at_its_start_is_told(broker: Barnabas, given: dict[str, str], told: str) -> None:
    at = ["--server", broker.address, "--data-dir", str(broker.data_dir)]
    master = "local[2]" if given else "nonsense"
    command = [sys.executable, "-m", "barnabas", "sql", *at, "--master", master, "SELECT hash(1)"]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | given, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert f"Spark does not start: {told}" in ran.stderr.splitlines()[-1]
    assert "; at " not in ran.stderr


def test_a_topic_without_a_schema_has_its_parts(broker: Barnabas) -> None:
    produce(broker, [b"x", b"y"], "plain")
    with Cluster(broker.address) as cluster:
        set_topic_config(cluster, "plain", {"barnabas.value.format": "raw"})
    query = "SELECT _value, _partition, _offset FROM plain ORDER BY _offset"
    columns, rows = selected(broker.address, str(broker.data_dir), "local[2]", query, 10)
    assert columns == ["_value", "_partition", "_offset"]
    assert rows == [("x", 0, 0), ("y", 0, 1)]


@pytest.mark.parametrize("small_bytes", [0, 16 << 20], ids=["by the source", "read here"])
def test_a_small_topic_and_a_large_one_give_the_same_rows(
    broker: Barnabas, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adhoc, "SMALL_BYTES", small_bytes)
    name = f"kinds-{small_bytes}"
    schema = "n INT, text STRING, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, money DECIMAL(10,2), tags ARRAY<STRING>"
    with Cluster(broker.address) as cluster:
        settings = {"barnabas.value.format": "json", "barnabas.value.schema": schema}
        assert create_topic(cluster, name, settings, partitions=1).error_code == 0
    full = (
        b'{"n": 1, "text": "\xc3\xa9", "at": "2026-01-02T03:04:05.678901+01:00", "local": "2026-01-02T03:04:05", '
        b'"day": "2026-01-02", "money": 12.34, "tags": ["a", null]}'
    )
    producer = Producer({"bootstrap.servers": broker.address, "compression.type": "zstd"})
    headers: list[tuple[str, bytes | None]] = [("h", b"\xff"), ("none", None)]
    producer.produce(name, full, b"k", 0, timestamp=1_700_000_000_123, headers=headers)
    producer.produce(name, b"no json", b"\xff\xfe", 0, timestamp=5)
    producer.produce(name, None, None, 0, timestamp=6)
    assert producer.flush(30) == 0
    query = (
        "SELECT n, text, CAST(at AS STRING), CAST(local AS STRING), CAST(day AS STRING), CAST(money AS STRING), "
        "to_json(tags), hex(_key), hex(CAST(_key AS BINARY)), _topic, _partition, _offset, "
        "unix_millis(_timestamp), size(_headers), hex(_headers[0].value), _headers[1].value IS NULL, "
        f"typeof(local), typeof(at) FROM `{name}` ORDER BY _offset"
    )
    kinds = ("timestamp_ntz", "timestamp")
    nothing = (None,) * 7
    assert selected(broker.address, None, "local[2]", query, 10)[1] == [
        (1, "é", "2026-01-02 02:04:05.678901", "2026-01-02 03:04:05", "2026-01-02", "12.34", '["a",null]', "6B", "6B",
         name, 0, 0, 1_700_000_000_123, 2, "FF", True, *kinds),
        (*nothing, "FFFE", "FFFE", name, 0, 1, 5, -1, None, True, *kinds),
        (*nothing, None, None, name, 0, 2, 6, -1, None, True, *kinds),
    ]  # fmt: skip


@pytest.mark.parametrize("small_bytes", [0, 16 << 20], ids=["by the source", "read here"])
def test_an_empty_topic_has_no_rows(broker: Barnabas, small_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adhoc, "SMALL_BYTES", small_bytes - 1)
    name = f"void-{small_bytes}"
    with Cluster(broker.address) as cluster:
        assert create_topic(cluster, name, {}, partitions=2).error_code == 0
    columns, rows = selected(broker.address, None, "local[2]", f"SELECT * FROM `{name}`", 10)
    assert (columns, rows) == (["_key", "_value", "_topic", "_partition", "_offset", "_timestamp", "_headers"], [])


def test_csv_is_read_as_its_topic_says(broker: Barnabas) -> None:
    settings = {
        "barnabas.value.format": "csv",
        "barnabas.value.schema": "device STRING, temp DOUBLE",
        "barnabas.value.csv.separator": ";",
        "barnabas.value.csv.null": "-",
    }
    with Cluster(broker.address) as cluster:
        assert create_topic(cluster, "semicolons", settings, partitions=1).error_code == 0
    produce(broker, [b"a;1.5", b"-;2"], "semicolons")
    rows = selected(broker.address, None, "local[2]", "SELECT device, temp FROM semicolons ORDER BY _offset", 10)[1]
    assert rows == [("a", 1.5), (None, 2.0)]
