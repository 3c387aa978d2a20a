"""CSV and Avro values to typed columns."""

from __future__ import annotations

import csv
import datetime
import io
import json
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.streams.schema import parse_ddl
from barnabas.streams.source import avro_values, csv_values
from barnabas.streams.source.avro_values import parse_avro
from barnabas.streams.source.blocks import Parsed
from barnabas.streams.source.options import parse
from barnabas.streams.source.rows import rows_of
from barnabas.streams.source.typed import Parser
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.wal import WalError, plan

AT = datetime.datetime(2024, 2, 29, 12, 0, 0, 500_000, datetime.UTC)


def csv_rows(values: Sequence[bytes | None], ddl: str, separator: str = ",", null: str = "") -> Parsed:
    return csv_values.parse_csv(pa.array(values, pa.binary()), parse_ddl(ddl), separator=separator, null=null)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a,5", ("a", 5)),
        (b",", (None, None)),
        (b"a,5\n", ("a", 5)),
        (b"a,5\r\n", ("a", 5)),
        (b'"a,b",5', ("a,b", 5)),
        (b'"say ""x""",5', ('say "x"', 5)),
        (b'"two\nlines",5', ("two\nlines", 5)),
        (b'5" pipe,1', ('5" pipe', 1)),
        ("é,1".encode(), ("é", 1)),
        (b"a", None),
        (b"a,5,6", None),
        (b"a,x", None),
        (b"a,1.5", None),
        (b"a,5\nb,6", None),
        (b'"a,5', None),
        (b"\xff,5", None),
        (b"", None),
        (None, (None, None)),
    ],
)
def test_csv_values(value: bytes | None, expected: tuple[object, ...] | None) -> None:
    for values, at in (([value], 0), ([b"x,1", value, b"y,2"], 1)):
        found, bad = csv_rows(values, "a string, b int")
        assert bad == ([at] if expected is None else [])
        assert tuple(found.to_pylist()[at].values()) == (expected or (None, None))
    assert found.to_pylist()[::2] == [{"a": "x", "b": 1}, {"a": "y", "b": 2}]


def test_csv_types_and_options() -> None:
    ddl = (
        "a boolean, b tinyint, c bigint, d float, e double, f decimal(5,2), g date, h timestamp, i timestamp, "
        "j timestamp_ntz, k binary, l string"
    )
    csv_values.check_schema(parse_ddl(ddl))
    line = (
        b"true;-5;9223372036854775807;1.5;-1e10;123.45;2024-02-29;2024-02-29T12:00:00.5Z;2024-02-29 13:00:00.5+01:00;"
        b"2024-02-29 12:00:00;x;NULL"
    )
    ((row,), bad) = (lambda found: (found[0].to_pylist(), found[1]))(csv_rows([line], ddl, ";", "NULL"))
    assert bad == []
    assert tuple(row.values()) == (
        True,
        -5,
        2**63 - 1,
        1.5,
        -1e10,
        Decimal("123.45"),
        datetime.date(2024, 2, 29),
        AT,
        AT,
        datetime.datetime(2024, 2, 29, 12),
        b"x",
        None,
    )
    local, _ = csv_rows([b"2024-02-29 12:00:00.5", b"2024-02-29", b"2024-02-29T12:00:00.5-0000"], "h timestamp")
    assert local["h"].to_pylist() == [AT, AT.replace(hour=0, microsecond=0), AT]
    for ddl in ("a array<int>", "a struct<x: int>"):
        with pytest.raises(WalError, match="format=csv has no type"):
            csv_values.check_schema(parse_ddl(ddl))


fields = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6), min_size=2, max_size=2)


@given(st.lists(fields, min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_what_the_csv_module_writes_is_read(rows: list[list[str]]) -> None:
    values = []
    for row in rows:
        out = io.StringIO()
        csv.writer(out).writerow(row)
        values.append(out.getvalue().encode())
    found, bad = csv_rows(values, "a string, b string", null="no such text")
    assert bad == []
    assert [list(row.values()) for row in found.to_pylist()] == rows


@given(st.lists(st.none() | st.text('a1,"\n\r\\', max_size=8).map(str.encode) | st.binary(max_size=6), max_size=8))
@settings(max_examples=200, deadline=None)
def test_no_csv_value_depends_on_its_neighbours(values: list[bytes | None]) -> None:
    table, bad = csv_rows(values, "a string, b int")
    alone = [csv_rows([value], "a string, b int") for value in values]
    assert table.num_rows == len(values)
    assert table.to_pylist() == [row for one, _ in alone for row in one.to_pylist()]
    assert bad == [number for number, (_, wrong) in enumerate(alone) if wrong]


WRITTEN: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "temp", "type": ["null", "double"]},
        {"name": "n", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "pos", "type": {"type": "record", "name": "Pos", "fields": [{"name": "x", "type": "float"}]}},
        {"name": "path", "type": {"type": "array", "items": ["null", "Pos"]}},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ],
}
COLUMNS = (
    "device string, temp double, n bigint, big bigint, kind string, raw binary, at timestamp, day date, "
    "price decimal(6,2), id string, pos struct<x: float>, path array<struct<x: double>>"
)
DATUM = {
    "device": "a",
    "temp": 1.5,
    "n": 7,
    "big": 2**62,
    "kind": "B",
    "raw": b"abcd",
    "at": AT,
    "day": datetime.date(2024, 2, 29),
    "price": Decimal("123.45"),
    "id": str(uuid.UUID(int=5)),
    "pos": {"x": 0.5},
    "path": [{"x": 1.5}, None],
}


def encoded(datum: dict[str, Any], written: dict[str, Any] = WRITTEN) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(written), datum)
    return out.getvalue()


def avro_rows(values: Sequence[bytes | None], ddl: str = COLUMNS, framing: str = "none") -> Parsed:
    schema, written = parse_ddl(ddl), json.dumps(WRITTEN)
    avro_values.check_schema(written, schema)
    return parse_avro(pa.array(values, pa.binary()), schema, written=written, framing=framing)


def test_avro_types() -> None:
    value = encoded(DATUM | {"labels": {"k": "v"}})
    table, bad = avro_rows([value, None, encoded(DATUM | {"temp": None, "labels": {}})])
    assert bad == []
    assert table.to_pylist() == [DATUM, dict.fromkeys(DATUM), DATUM | {"temp": None}]


def test_avro_values_that_are_malformed() -> None:
    good = encoded(DATUM | {"labels": {}})
    table, bad = avro_rows([good, good[:-1], b"", good + b"\0", b"\xff" * 40, good], "device string, n int")
    assert bad == [1, 2, 3, 4]
    assert [row["n"] for row in table.to_pylist()] == [7, None, None, None, None, 7]


def test_confluents_framing() -> None:
    good = encoded(DATUM | {"labels": {}})
    values = [b"\0\0\0\0\x09" + good, good, b"\0\0", b""]
    assert avro_rows(values, "n int", "confluent")[1] == [1, 2, 3]
    assert avro_rows(values, "n int")[1] == [0, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_damaged_avro_is_malformed_or_a_row(changes: list[tuple[int, int]]) -> None:
    value = bytearray(encoded(DATUM | {"labels": {"k": "v"}}))
    for at, byte in changes:
        value[at % len(value)] = byte
    good = encoded(DATUM | {"labels": {}})
    table, bad = avro_rows([good, bytes(value), good])
    assert table.num_rows == 3
    assert set(bad) <= {1}
    assert table.to_pylist()[::2] == [DATUM, DATUM]


@pytest.mark.parametrize(
    ("written", "ddl", "told"),
    [
        ("{", "a int", "avroSchema is not an Avro schema"),
        ('{"type": "recor"}', "a int", "avroSchema is not an Avro schema"),
        ('"string"', "a int", "avroSchema is not the schema of a record"),
        (WRITTEN, "colour string", "avroSchema has no field colour: it has device, temp"),
        (WRITTEN, "pos struct<y: float>", "avroSchema has no field y in pos: it has x"),
        (WRITTEN, "device int", "the column device of type int32 cannot hold Avro's string"),
        (WRITTEN, "temp float", "the column temp of type float cannot hold Avro's double"),
        (WRITTEN, "at bigint", "the column at of type int64 cannot hold Avro's timestamp-micros"),
        (WRITTEN, "price decimal(9,3)", r"the column price needs DECIMAL\(5,2\)"),
        (WRITTEN, "labels string", "the column labels of type string cannot hold Avro's map"),
        (WRITTEN, "path array<string>", "the column path of type string cannot hold Avro's record"),
        (WRITTEN, "n array<int>", "cannot hold Avro's int"),
    ],
)
def test_avro_schemas_that_do_not_fit(written: Any, ddl: str, told: str) -> None:
    with pytest.raises(WalError, match=told):
        avro_values.check_schema(written if isinstance(written, str) else json.dumps(written), parse_ddl(ddl))


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "data")


def read(logs: Logs, ddl: str, **options: str) -> list[dict[str, Any]]:
    made = rows_of(parse({"path": str(logs.path), "topic": "t"} | options), parse_ddl(ddl))
    log_dir = logs.log_dir()
    splits = plan(log_dir, log_dir.ranges(log_dir.partitions("t")))
    return [row for split in splits for batch in made.batches(split) for row in batch.to_pylist()]


def test_csv_with_the_columns_of_the_record(logs: Logs) -> None:
    logs.write([b"a;1", b"oops", None])
    ddl = "name string, _offset bigint, n int, _timestamp timestamp, _corrupt_record string"
    found = read(logs, ddl, format="csv", sep=";")
    first = datetime.datetime.fromtimestamp(NOW / 1000, datetime.UTC)
    assert found[0] == {"name": "a", "_offset": 0, "n": 1, "_timestamp": first, "_corrupt_record": None}
    assert [(row["name"], row["_corrupt_record"]) for row in found[1:]] == [(None, "oops"), (None, None)]
    assert len(read(logs, ddl, format="csv", sep=";", mode="DROPMALFORMED")) == 2
    with pytest.raises(WalError, match="t-0: the value at offset 1 does not fit the schema: set mode="):
        read(logs, ddl, format="csv", sep=";", mode="FAILFAST")
    assert [row["_offset"] for row in read(logs, "_offset bigint", format="csv")] == [0, 1, 2]


def test_avro_with_the_columns_of_the_record(logs: Logs) -> None:
    logs.write([encoded(DATUM | {"labels": {}}), b"oops"])
    found = read(logs, "device string, _offset bigint", format="avro", avroSchema=json.dumps(WRITTEN))
    assert found == [{"device": "a", "_offset": 0}, {"device": None, "_offset": 1}]


def test_parsers_can_be_sent_to_workers() -> None:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle", reason="pyspark is not installed: make setup-all")
    for options in ({"format": "csv"}, {"format": "avro", "avroSchema": json.dumps(WRITTEN)}, {"format": "json"}):
        made = rows_of(parse({"path": "/", "topic": "t"} | options), parse_ddl("device string"))
        sent: Parser = cloudpickle.loads(cloudpickle.dumps(made)).parser
        assert sent(pa.array([None], pa.binary()))[0].to_pylist() == [{"device": None}]
