"""The data source inside a real Spark: batch and streaming queries, with a broker process beside them and without."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.streams.schema import parse_ddl
from barnabas.streams.schema.ddl import ddl_text
from barnabas.streams.tests.support import NOW, Logs, numbers
from barnabas.streams.tests.test_wal import produce
from barnabas.streams.uncaught import in_one_line
from compat_tests.broker_process import Barnabas
from compat_tests.waiting import changed, until

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("there is no Java on this machine", allow_module_level=True)

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "data")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Barnabas]:
    with Barnabas(tmp_path) as made:
        yield made


def batch(spark: SparkSession, path: Path, schema: str = "", **options: object) -> DataFrame:
    reader = spark.read.format("wal").options(**{"topic": "t"} | {k: str(v) for k, v in options.items()})
    return (reader.schema(schema) if schema else reader).load(str(path))


def run_available(spark: SparkSession, data: Path, place: Path, **options: object) -> list[dict[str, Any]]:
    """Run a streaming query to its end, with its rows in parquet files. Returns the progress of its batches."""
    reader = spark.readStream.format("wal").options(topic="t", startingOffsets="earliest")
    query = (
        reader.options(**{k: str(v) for k, v in options.items()})
        .schema("partition int, offset bigint, value string")
        .load(str(data))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(place / "out"))
    )
    assert query.awaitTermination(60)
    return [json.loads(progress.json) for progress in query.recentProgress]


def out(spark: SparkSession, place: Path) -> list[tuple[int, str]]:
    return sorted((row.offset, row.value) for row in spark.read.parquet(str(place / "out")).collect())


def arrow_of(ddl: str) -> pa.Schema:
    """What Spark makes of a schema text."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return to_arrow_schema(schema, timezone="UTC")


def test_batch_has_the_columns_of_the_kafka_connector(spark: SparkSession, logs: Logs) -> None:
    logs.write([b"a", None, b"c"])
    frame = batch(spark, logs.path, includeHeaders=True)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = frame.orderBy("offset").collect()
    assert [bytes(row.value) if row.value is not None else None for row in rows] == [b"a", None, b"c"]
    assert [row.timestamp.timestamp() * 1000 for row in rows] == [NOW, NOW + 1, NOW + 2]
    assert rows[0].headers is None
    assert [(h.key, bytes(h.value)) for h in rows[1].headers] == [("h", b"1")]
    assert batch(spark, logs.path).columns[-1] == "timestampType"
    assert batch(spark, logs.path, columns="offset,topic").columns == ["offset", "topic"]


def test_parts_that_every_record_has_are_never_null(spark: SparkSession, logs: Logs) -> None:
    logs.write([None, b"v"])
    found = batch(spark, logs.path, includeHeaders="true")
    never = {field.name for field in found.schema if not field.nullable}
    assert never == {"topic", "partition", "offset", "timestampType"}
    assert [(row.topic, row.offset, row.value) for row in found.collect()] == [
        ("t", 0, None),
        ("t", 1, b"v"),
    ]
    assert batch(spark, logs.path, "offset bigint").schema["offset"].nullable  # a schema given by the caller is used


def test_filters_are_pushed_down(spark: SparkSession, logs: Logs) -> None:
    for partition in range(3):
        logs.write(numbers(0, 60), partition=partition)
    frame = batch(spark, logs.path, splitBytes=200)
    found = frame.where("partition = 1 and offset >= 20 and offset < 23")
    assert sorted((row.partition, row.offset) for row in found.collect()) == [(1, 20), (1, 21), (1, 22)]
    late = frame.where("timestamp >= timestamp'2023-11-14 22:13:20.050'")
    assert late.count() == 30
    assert frame.where("partition in (0, 2) and offset = 7").count() == 2
    assert frame.where("partition > 1").count() == 60


def test_typed_json(spark: SparkSession, logs: Logs) -> None:
    logs.write([b'{"device":"a","temp":1.5}', b'{"device":"b"}', b"oops", b'{"device":7}', None])
    schema = "device string, temp double, _offset bigint, _corrupt_record string"
    rows = batch(spark, logs.path, schema, format="json").orderBy("_offset").collect()
    assert [tuple(row) for row in rows] == [
        ("a", 1.5, 0, None),
        ("b", None, 1, None),
        (None, None, 2, "oops"),
        (None, None, 3, '{"device":7}'),
        (None, None, 4, None),
    ]
    assert batch(spark, logs.path, schema, format="json", mode="DROPMALFORMED").count() == 3
    with pytest.raises(Exception, match=r"t-0: the value at offset 2 does not fit the schema: set mode="):
        batch(spark, logs.path, schema, format="json", mode="FAILFAST").collect()


def test_typed_csv_and_avro(spark: SparkSession, logs: Logs) -> None:
    logs.write([b"a,1.5", b"oops"], "lines")
    schema = "device string, temp double, _offset bigint, _corrupt_record string"
    found = batch(spark, logs.path, schema, topic="lines", format="csv").orderBy("_offset").collect()
    assert [tuple(row) for row in found] == [("a", 1.5, 0, None), (None, None, 1, "oops")]
    written = {"type": "record", "name": "R", "fields": [{"name": "device", "type": "string"}]}
    logs.write([b"\0\0\0\0\1\2a", b"\2b"], "data")
    options = {"topic": "data", "format": "avro", "avroSchema": json.dumps(written), "avroFraming": "confluent"}
    assert [row.device for row in batch(spark, logs.path, "device string", **options).collect()] == ["a", None]
    with pytest.raises(Exception, match="avroSchema has no field colour: it has device"):
        batch(spark, logs.path, "colour string", **options).collect()


@pytest.mark.parametrize(
    "ddl",
    [
        "device string, temp double, pos struct<x: double, `y z` array<date>>",
        "a long, b short, c byte, d real, `e``f` dec(5,2), g numeric, h boolean, i binary, j integer",
        "at timestamp, local timestamp_ntz, both timestamp_ltz, `select` int, order int, 1st int, e struct<>",
    ],
)
def test_schema_texts_are_understood_as_spark_does(spark: SparkSession, ddl: str) -> None:
    schema = arrow_of(ddl)
    assert parse_ddl(ddl) == schema
    assert arrow_of(ddl_text(schema)) == schema


def test_refusals_are_one_clear_line(spark: SparkSession, logs: Logs, tmp_path: Path) -> None:
    logs.write(numbers(0, 3))
    for options, told in (
        ({"topic": "none"}, "there is no topic none"),
        ({"colour": "red"}, "there is no option colour"),
        ({"startingOffsets": "{"}, "expected earliest, latest, or JSON like"),
    ):
        with pytest.raises(Exception, match=told) as caught:
            batch(spark, logs.path, **options).collect()
        assert told in (in_one_line(caught.value) or "").splitlines()[0], "what a program that catches nothing says"
    with pytest.raises(Exception, match="is not a data directory of a broker"):
        batch(spark, tmp_path).collect()


def test_batch_beside_a_writing_broker_and_after_its_end(spark: SparkSession, broker: Barnabas) -> None:
    for end in (40, 80):
        produce(broker, numbers(end - 40, end))
        assert batch(spark, broker.data_dir).count() == end
    broker.kill()
    rows = batch(spark, broker.data_dir, "offset bigint, value string").orderBy("offset").collect()
    assert [(row.offset, row.value) for row in rows] == [(n, str(n)) for n in range(80)]


def test_a_stream_goes_on_from_its_checkpoint(spark: SparkSession, broker: Barnabas, tmp_path: Path) -> None:
    produce(broker, numbers(0, 50))
    told = run_available(spark, broker.data_dir, tmp_path, maxOffsetsPerTrigger=20)
    assert [batch["numInputRows"] for batch in told if batch["numInputRows"]] == [20, 20, 10]
    assert out(spark, tmp_path) == [(n, str(n)) for n in range(50)]
    produce(broker, numbers(50, 70))
    broker.kill()  # the next run finds the end without it
    told = run_available(spark, broker.data_dir, tmp_path)
    assert told[-1]["sources"][0]["latestOffset"] == {"t": {"0": 70}}
    broker.start()
    produce(broker, numbers(70, 75))
    run_available(spark, broker.data_dir, tmp_path)
    assert out(spark, tmp_path) == [(n, str(n)) for n in range(75)]


def test_a_stream_beside_a_broker_that_keeps_writing(spark: SparkSession, tmp_path: Path) -> None:
    """Every record once, in order, while segments roll during the reading."""
    broker = Barnabas(tmp_path, {"log.segment.bytes": "4096"})
    broker.start()
    seen: list[int] = []
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            produce(broker, numbers(written, written + 50))
            written += 50
            changed()

    def take(frame: DataFrame, number: int) -> None:
        seen.extend(int(row.value) for row in frame.collect())
        if number == 4:
            stop.set()
        changed()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: written > 0, "the topic is there")
        rows = spark.readStream.format("wal").options(topic="t", startingOffsets="earliest")
        stream = rows.schema("value string").load(str(broker.data_dir)).writeStream.foreachBatch(take)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        until(lambda: not writer.is_alive() and len(seen) >= written, "the stream has all", 120)
        query.stop()
    finally:
        stop.set()
        writer.join()
        broker.kill()
    assert seen == list(range(written))
    assert len(list((broker.data_dir / "t-0").glob("*.log"))) > 1


@pytest.mark.long
def test_retention_under_a_stream(spark: SparkSession, logs: Logs, tmp_path: Path) -> None:
    logs.write(numbers(0, 30))
    run_available(spark, logs.path, tmp_path)
    logs.write(numbers(30, 90))
    logs.vnode().truncate_prefix(60)
    first = logs.vnode().segments[0].base_offset
    assert first > 30
    with pytest.raises(Exception, match=f"t-0: offsets 30 to {first - 1} are gone"):
        run_available(spark, logs.path, tmp_path)
    run_available(spark, logs.path, tmp_path, failOnDataLoss="false")
    assert [offset for offset, _ in out(spark, tmp_path)] == [*range(30), *range(first, 90)]
