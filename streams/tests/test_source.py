"""The data source without a JVM: options, offsets, typed values, and the readers as Spark calls them."""

from __future__ import annotations

import base64
import datetime
import gc
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, InputPartition, LessThan, Not
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from barnabas.streams.source.json_values import check_schema, parse_json
from barnabas.streams.source.offsets import share
from barnabas.streams.source.options import parse
from barnabas.streams.source.rows import _spare_the_collector
from barnabas.streams.source.source import WalDataSource
from barnabas.streams.tests.support import NEXT_TOPIC_ID, NOW, TOPIC_ID, Logs, numbers
from barnabas.streams.wal import DataLossError, LogDir, NewTopicError, NotReadyError, WalError
from barnabas.wire.aliases import TopicPartition


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "data")


def source(logs: Logs, **options: object) -> WalDataSource:
    return WalDataSource({"path": str(logs.path), "topic": "t"} | {k: str(v) for k, v in options.items()})


def rows(reader: Any, partitions: list[InputPartition]) -> list[dict[str, Any]]:
    return [row for partition in partitions for part in reader.read(partition) for row in part.to_pylist()]


def offsets(logs: Logs, filters: tuple[Any, ...] = (), **options: object) -> list[int]:
    made = source(logs, columns="offset,partition,timestamp", **options)
    reader = made.reader(made.schema())
    list(reader.pushFilters(list(filters)))
    return sorted(row["offset"] for row in rows(reader, reader.partitions()))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"colour": "red"}, "there is no option colour: the wal source has path, topic"),
        ({"topics": "t"}, "one of topic, topics, topicPattern is needed, topic and topics is given"),
        ({"topic": " "}, "the option topic names no topic"),
        ({"startingOffsets": "soon"}, "startingOffsets=soon: expected earliest, latest, or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "out of range"),
        ({"startingOffsets": "latest", "startingTimestamp": 3}, "are both given: leave one out"),
        ({"startingTimestamp": "noon"}, "startingTimestamp=noon: expected a whole number"),
        ({"splitBytes": 0}, "splitBytes=0: expected a whole number from 1 on"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss=maybe: expected true or false"),
        ({"format": "avro"}, "format=avro needs the option avroSchema"),
        ({"format": "json", "sep": ";"}, "sep is for format=csv: leave it out"),
        ({"format": "csv", "avroFraming": "none"}, "avroFraming is for format=avro: leave it out"),
        ({"format": "csv", "sep": "::"}, "sep='::': expected one character"),
        ({"format": "avro", "avroSchema": "{}", "avroFraming": "x"}, "avroFraming=x: expected one of none, confluent"),
        ({"format": "xml"}, "format=xml: expected one of kafka, raw, json"),
        ({"mode": "lenient"}, "mode=lenient: expected one of PERMISSIVE"),
        ({"columns": "offset,colour"}, "there is no column colour"),
    ],
)
def test_options_that_make_no_query(logs: Logs, options: dict[str, object], told: str) -> None:
    with pytest.raises(WalError, match=told) as caught:
        source(logs, **options)
    assert "\n" not in str(caught.value)


def test_more_refusals(logs: Logs) -> None:
    logs.write(numbers(0, 3))
    with pytest.raises(WalError, match="the option path is missing"):
        parse({"topic": "t"})
    with pytest.raises(WalError, match="none is given"):
        parse({"path": "x"})
    with pytest.raises(WalError, match="is not a regular expression"):
        parse({"path": "x", "topicPattern": "("})
    with pytest.raises(WalError, match="format=json needs a schema"):
        source(logs, format="json").schema()
    for ddl, told in (("colour string", "there is no column colour"), ("offset string", "of type string cannot be")):
        with pytest.raises(WalError, match=told):
            source(logs).reader(ddl_schema(ddl))
    with pytest.raises(WalError, match="are for streaming queries"):
        source(logs, maxOffsetsPerTrigger=3).reader(source(logs).schema())
    with pytest.raises(WalError, match="are for batch queries"):
        source(logs, endingOffsets="latest").streamReader(source(logs).schema())
    with pytest.raises(WalError, match="startingOffsets names other-0, which the query does not read"):
        offsets(logs, startingOffsets='{"other":{"0":1}}')
    with pytest.raises(DataLossError, match="startingOffsets 9 is outside the offsets 0 to 3"):
        offsets(logs, startingOffsets='{"t":{"0":9}}')
    assert offsets(logs, startingOffsets='{"t":{"0":9}}', failOnDataLoss=False) == []


def ddl_schema(text: str) -> StructType:
    """A schema of `name type` pairs; Spark's own parser for these needs a JVM."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (pair.split() for pair in text.split(","))
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def test_offsets_and_times_of_a_batch(logs: Logs) -> None:
    logs.write(numbers(0, 40))
    assert offsets(logs) == list(range(40))
    assert offsets(logs, startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":9}}') == [5, 6, 7, 8]
    assert offsets(logs, startingOffsets='{"t":{"0":-1}}') == []
    assert offsets(logs, startingoffsets="latest") == []
    assert offsets(logs, startingTimestamp=NOW + 35) == [35, 36, 37, 38, 39]
    assert offsets(logs, startingTimestamp=NOW + 99) == []
    assert offsets(logs, endingTimestamp=NOW + 2) == [0, 1]


def test_topics_by_list_and_pattern(logs: Logs) -> None:
    for topic in ("orders-eu", "orders-us", "other", "__offsets"):
        logs.write([b"1"], topic)
    for options, found in (
        ({"topics": "other, orders-eu"}, {"other", "orders-eu"}),
        ({"topicPattern": "orders-.*"}, {"orders-eu", "orders-us"}),
        ({"topicPattern": ".*"}, {"orders-eu", "orders-us", "other"}),
    ):
        made = WalDataSource({"path": str(logs.path), **options})
        reader = made.reader(made.schema())
        assert {row["topic"] for row in rows(reader, reader.partitions())} == found


def test_filters_narrow_what_is_planned(logs: Logs) -> None:
    for partition in range(3):
        logs.write(numbers(0, 40), partition=partition)
    utc = datetime.datetime.fromtimestamp((NOW + 30) / 1000, datetime.UTC)
    assert offsets(logs, (EqualTo(("partition",), 1), GreaterThan(("offset",), 36))) == [37, 38, 39]
    assert offsets(logs, (In(("partition",), (0, 2)), LessThan(("offset",), 1))) == [0, 0]
    assert offsets(logs, (EqualTo(("partition",), 0), GreaterThanOrEqual(("timestamp",), utc))) == list(range(30, 40))
    made = source(logs, columns="offset,partition,timestamp,key")
    reader = made.reader(made.schema())
    undecided = [
        GreaterThanOrEqual(("timestamp",), utc),
        Not(EqualTo(("offset",), 3)),
        EqualTo(("key",), b"k"),
        GreaterThan(("partition",), 1),
    ]
    assert list(reader.pushFilters([EqualTo(("offset",), 3), *undecided])) == undecided


def stream(logs: Logs, **options: object) -> Any:
    made = source(logs, columns="offset", **options)
    return made.streamReader(made.schema())


def wire(offsets: dict[str, int], topic_id: bytes = TOPIC_ID) -> dict[str, Any]:
    """Offsets of the topic t as in a checkpoint."""
    return {"t": offsets, "#ids": {"t": base64.urlsafe_b64encode(topic_id).decode().rstrip("=")}}


def test_micro_batches_cover_everything_once(logs: Logs) -> None:
    logs.write(numbers(0, 30))
    logs.write(numbers(0, 10), partition=1)
    reader = stream(logs, startingOffsets="earliest")
    at = reader.initialOffset()
    assert at == wire({"0": 0, "1": 0})
    seen: list[int] = []
    for _ in range(20):
        end = reader.latestOffset(at, ReadMaxRows(8))
        parts = reader.partitions(at, end)
        assert [p.split for p in reader.partitions(at, end)] == [p.split for p in parts]
        seen += [row["offset"] for row in rows(reader, parts)]
        if end == at:
            break
        at = json.loads(json.dumps(end))
    assert at == wire({"0": 30, "1": 10})
    assert sorted(seen) == sorted([*range(30), *range(10)])
    assert reader.reportLatestOffset() == {"t": at["t"]}, "for the progress, beside the end of the batch"


def test_micro_batches_by_bytes(logs: Logs) -> None:
    logs.write(numbers(0, 60))
    reader = stream(logs, startingOffsets="earliest", maxBytesPerTrigger=300)
    at = reader.initialOffset()
    ends = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        sizes = [p.split.end - p.split.start for p in reader.partitions(at, end)]
        assert sum(sizes) < 300 + 120
        ends.append(end["t"]["0"])
        at = end
    assert ends[-1] == 60
    assert len(ends) == 5
    assert reader.latestOffset({"t": {"0": 0}}, ReadMaxBytes(1)) == wire({"0": 3})
    assert stream(logs, maxOffsetsPerTrigger=5, maxBytesPerTrigger=1).latestOffset(
        {"t": {"0": 0}}, ReadMaxRows(5)
    ) == wire({"0": 3})


def test_available_now_ends_where_it_began(logs: Logs) -> None:
    logs.write(numbers(0, 10))
    reader = stream(logs)
    assert reader.initialOffset() == wire({"0": 10})
    reader.prepareForTriggerAvailableNow()
    logs.write(numbers(10, 20))
    logs.write(numbers(0, 5), partition=1)
    assert reader.latestOffset({"t": {"0": 4}}, ReadAllAvailable()) == wire({"0": 10, "1": 0})
    later = stream(logs)
    end = later.latestOffset({"t": {"0": 10}}, ReadAllAvailable())
    assert end == wire({"0": 20, "1": 5})
    assert len(rows(later, later.partitions({"t": {"0": 10}}, end))) == 15


def test_loss_stops_a_stream_unless_told_otherwise(logs: Logs) -> None:
    logs.write(numbers(0, 30))
    with pytest.raises(DataLossError, match="the query is at offset 99, the log ends at 30"):
        stream(logs).latestOffset({"t": {"0": 99}}, ReadAllAvailable())
    with pytest.raises(DataLossError, match="t-7: the partition is gone"):
        stream(logs).latestOffset({"t": {"0": 0, "7": 3}}, ReadAllAvailable())
    kept = stream(logs, failOnDataLoss=False)
    assert kept.latestOffset({"t": {"0": 99, "7": 3}}, ReadAllAvailable()) == wire({"0": 99, "7": 3})


@pytest.mark.parametrize("count", [10, 50], ids=["shorter", "longer"])
def test_a_topic_made_again_is_another_one(logs: Logs, count: int) -> None:
    logs.write(numbers(0, 30))
    begun = stream(logs)
    start = begun.initialOffset()
    logs.make_again(numbers(0, count))
    for reader in (begun, stream(logs)):
        with pytest.raises(NewTopicError, match=r"t-0: .* at offset 30 of a topic that is gone; .* made again"):
            reader.latestOffset(start, ReadAllAvailable())
    kept = stream(logs, failOnDataLoss=False)
    end = kept.latestOffset(start, ReadAllAvailable())
    assert end == wire({"0": count}, NEXT_TOPIC_ID)
    assert sorted(row["offset"] for row in rows(kept, kept.partitions(start, end))) == list(range(count))
    assert kept.latestOffset(end, ReadAllAvailable()) == end


def test_an_unfinished_batch_is_not_read_from_a_topic_made_again(logs: Logs) -> None:
    logs.write(numbers(0, 30))
    begun = stream(logs)
    start, end = wire({"0": 10}), wire({"0": 20})
    planned = begun.partitions(start, end)
    logs.make_again(numbers(0, 50))
    for parts in (planned, begun.partitions(start, end)):
        with pytest.raises(NewTopicError, match=r"t-0: offsets 10 to 19 are gone; .* made again"):
            rows(begun, parts)
    kept = stream(logs, failOnDataLoss=False)
    assert rows(kept, kept.partitions(start, end)) == []


@pytest.mark.parametrize("loss", [True, False])
def test_the_checkpoint_of_another_query(logs: Logs, loss: bool) -> None:
    logs.write(numbers(0, 30))
    logs.write(numbers(0, 30), "u")
    other = source(logs, columns="offset", failOnDataLoss=loss, topic="u")
    reader = other.streamReader(other.schema())
    for ask in (
        lambda: reader.latestOffset(wire({"0": 10}), ReadAllAvailable()),
        lambda: reader.partitions(wire({"0": 10}), wire({"0": 20})),
    ):
        with pytest.raises(WalError, match="is of a query that reads t, and this one does not: give this one a check"):
            ask()


def test_an_id_is_looked_up_once_for_each_topic(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    for partition in range(5):
        logs.write(numbers(0, 3), partition=partition)
    asked = []
    real = LogDir.topic_id

    def topic_id(log_dir: LogDir, key: TopicPartition) -> str:
        asked.append(key[0])
        return real(log_dir, key)

    monkeypatch.setattr(LogDir, "topic_id", topic_id)
    reader = stream(logs, startingOffsets="earliest")
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert asked == ["t", "t"]


def test_the_end_of_a_batch_can_be_given_as_a_start(logs: Logs) -> None:
    logs.write(numbers(0, 30))
    assert stream(logs, startingOffsets=json.dumps(wire({"0": 7}))).initialOffset() == wire({"0": 7})


def test_while_a_broker_starts_a_running_stream_sees_nothing_new(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.write(numbers(0, 10))
    reader = stream(logs)
    assert reader.initialOffset() == wire({"0": 10})
    monkeypatch.setattr("barnabas.storage.log_reader.is_locked", lambda path: True)
    assert reader.latestOffset({"t": {"0": 10}}, ReadAllAvailable()) == wire({"0": 10})
    with pytest.raises(NotReadyError, match="does not say where it listens: wait until it is ready"):
        stream(logs).initialOffset()
    monkeypatch.undo()
    logs.write(numbers(10, 12))
    assert reader.latestOffset({"t": {"0": 10}}, ReadAllAvailable()) == wire({"0": 12})


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 1000), min_size=1), st.integers(1, 500))
def test_shares_are_fair_and_make_progress(backlog: dict[int, int], limit: int) -> None:
    ranges = {("t", partition): (10, 10 + size) for partition, size in backlog.items()}
    cut = share(ranges, limit)
    taken = sum(hi - lo for lo, hi in cut.values())
    assert taken <= limit + len(ranges)
    assert taken >= min(limit, sum(backlog.values()))
    for key, (lo, hi) in ranges.items():
        assert lo <= cut[key][1] <= hi
        assert hi == lo or cut[key][1] > lo


SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
values = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.sampled_from([b"", b" ", b"{}", b"{}{}", b'{"a":1}\n{"a":2}', b"[1]", b"7", b'{"a":1}\0', b'{"a":"x"}', b"\n",
                     b'{"a":1} ', b' {"a":2}', b'{"a":1,\n"b":"x"}', b'{"a":1', b'{"c":[{"d":1}]}', b'{"c":{}}']),
    st.builds(lambda a, b: json.dumps({"a": a, "b": b}).encode(), st.integers(-9, 9) | st.none(), st.text(max_size=5)),
)  # fmt: skip


@given(st.lists(values, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_a_value_is_parsed_the_same_among_any_others(some: list[bytes | None]) -> None:
    together, bad = parse_json(pa.array(some, pa.binary()), SCHEMA)
    assert together.num_rows == len(some)
    for number, value in enumerate(some):
        alone, alone_bad = parse_json(pa.array([value], pa.binary()), SCHEMA)
        assert together.slice(number, 1).to_pylist() == alone.to_pylist()
        assert (number in bad) == bool(alone_bad)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a":1,"b":"x"}', {"a": 1, "b": "x"}),
        (b' \n{"a":1,\n "b":"x"}', {"a": 1, "b": "x"}),
        (b'{"b":null,"z":{"y":[1]}}', {"a": None, "b": None}),
        (None, {"a": None, "b": None}),
        (b'{"a":1}{"a":2}', None),
        (b'{"a":1.5}', None),
        (b'{"a":1} x', None),
        (b"", None),
        (b"null", None),
    ],
)
def test_json_values(value: bytes | None, expected: dict[str, Any] | None) -> None:
    found, bad = parse_json(pa.array([value], pa.binary()), SCHEMA)
    assert bad == ([0] if expected is None else [])
    assert found.to_pylist() == [expected or {"a": None, "b": None}]


def test_json_types() -> None:
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("list", pa.list_(pa.struct([("x", pa.int32()), ("day", pa.date32())]))),
        ]
    )
    check_schema(schema)
    value = b'{"day":"2024-02-29","at":"2024-02-29T12:00:00.5Z","list":[{"x":1},{"day":"2024-02-29"}]}'
    (row,) = parse_json(pa.array([value], pa.binary()), schema)[0].to_pylist()
    assert row["day"] == datetime.date(2024, 2, 29)
    assert row["at"] == datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000, datetime.UTC)
    assert row["list"] == [{"x": 1, "day": None}, {"x": None, "day": datetime.date(2024, 2, 29)}]
    with pytest.raises(WalError, match="format=json has no type map"):
        check_schema(pa.schema([("m", pa.map_(pa.string(), pa.int64()))]))


def test_times_that_spark_cannot_hold_are_null(logs: Logs) -> None:
    logs.write([b"x"], timestamp=2**60)
    logs.write([b"y"])
    made = source(logs, columns="timestamp,offset")
    reader = made.reader(made.schema())
    assert [row["timestamp"] is None for row in rows(reader, reader.partitions())] == [True, False]


def test_a_worker_takes_its_modules_from_the_collector(logs: Logs) -> None:
    """Otherwise the collection after each of Spark's tasks costs more than a small task itself."""
    logs.write([b"x"])
    _spare_the_collector.cache_clear()
    gc.unfreeze()
    made = source(logs, columns="offset")
    reader = made.reader(made.schema())
    assert [row["offset"] for row in rows(reader, reader.partitions())] == [0]
    assert gc.get_freeze_count() > 0
    gc.unfreeze()
