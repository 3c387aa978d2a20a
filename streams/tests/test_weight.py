"""Data that a client makes large with few bytes is bounded before memory is allocated for it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from barnabas.storage.config import LogConfig
from barnabas.streams.query.errors import DenseRowsError, RowTooLargeError
from barnabas.streams.query.growth import Bound
from barnabas.streams.query.room import MAX_BATCH_BYTES, Room, sizes_of, with_room
from barnabas.streams.query.scan import Scan
from barnabas.streams.query.tick import Part, Tick, piece_of
from barnabas.streams.schema import parse_ddl
from barnabas.streams.source import avro_values
from barnabas.streams.source.json_values import parse_json, why_malformed
from barnabas.streams.source.options import parse as options_of
from barnabas.streams.source.rows import rows_of
from barnabas.streams.source.weight import (
    MAX_VALUE_BYTES,
    PIECE_BYTES,
    element_width,
    elements_of_json,
    width,
    without_heavy_ones,
)
from barnabas.streams.tests.support import Logs
from barnabas.streams.wal import WalError, plan, read
from barnabas.wire.compression import CompressionType
from barnabas.wire.queries.plan import Values

WIDE = parse_ddl(", ".join(f"c{n} BIGINT" for n in range(5000)))
WIDE_ARRAY = parse_ddl("a ARRAY<STRUCT<" + ", ".join(f"c{n}: BIGINT" for n in range(5000)) + ">>")


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path, LogConfig())


def test_a_value_is_weighed_before_it_is_parsed() -> None:
    assert (width(WIDE), element_width(WIDE)) == (40_001, 0)
    assert element_width(WIDE_ARRAY) == 40_001
    heaviest = MAX_VALUE_BYTES // 40_001
    for element in (b"{}", b"null", b'{"c1":1}', b"\n {}"):
        values = [b'{"a":[' + b",".join([element] * count) + b"]}" for count in (2, heaviest, heaviest + 1, 300_000)]
        taken = [value for value in values if len(value) < 1 << 10]
        table, bad = parse_json(pa.array([*taken, *values[2:]]), WIDE_ARRAY)
        assert bad == list(range(len(taken), len(taken) + 2))
        assert len(table["a"][0]) == 2
        assert "as columns: at most" in why_malformed(values[3], WIDE_ARRAY)


def test_elements_that_are_not_wide_are_not_counted() -> None:
    honest = b'{"a":[' + b",".join([b'{"x":1,"t":"[{,{"}'] * 30_000) + b"]}"
    _, bad = parse_json(pa.array([honest]), parse_ddl("a ARRAY<STRUCT<x: INT, t: STRING>>"))
    assert bad == []
    weights = elements_of_json(pa.array([honest, b'{"a":[' + b"{}," * 9_000_000]), WIDE_ARRAY)
    light = without_heavy_ones(weights)
    assert light is not None
    assert light.to_pylist() == [0, 0]
    numbers = b'{"a":[' + b",".join([b"1"] * 300_000) + b"]}"
    assert parse_json(pa.array([numbers]), parse_ddl("a ARRAY<BIGINT>"))[1] == []


def test_avro_whose_elements_take_no_bytes_is_refused() -> None:
    columns = parse_ddl("a ARRAY<STRUCT<x: INT>>")

    def written(items: object) -> str:
        return json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": items}]})

    item = {"type": "record", "name": "i", "fields": [{"name": "x", "type": "null"}]}
    for items in (item, {"type": "record", "name": "i", "fields": [{"name": "x", "type": item | {"name": "j"}}]}):
        with pytest.raises(WalError, match=r"take no bytes|cannot hold|no field"):
            avro_values.check_schema(written({"type": "array", "items": items}), columns)
    with pytest.raises(WalError, match="take no bytes"):
        avro_values.check_schema(written(["null", {"type": "array", "items": item}]), columns)
    item = {"type": "record", "name": "i", "fields": [{"name": "x", "type": ["null", "int"]}]}
    avro_values.check_schema(written({"type": "array", "items": item}), columns)


def test_avro_elements_that_would_be_too_much_are_malformed() -> None:
    fields = [{"name": f"c{n}", "type": "long"} for n in range(5000)]
    item = {"type": "record", "name": "i", "fields": fields}
    written = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {
                    "name": "a",
                    "type": {
                        "type": "array",
                        "items": {"type": "record", "name": "o", "fields": [{"name": "o", "type": ["null", item]}]},
                    },
                }
            ],
        }
    )
    schema = pa.schema([pa.field("a", pa.list_(pa.struct([pa.field("o", WIDE_ARRAY.field("a").type.value_type)])))])
    avro_values.check_schema(written, schema)
    one, many = b"\x02\x00\x00", b"\x80\x89\x7a" + bytes(1_000_000) + b"\x00"
    table, bad = avro_values.parse_avro(pa.array([one, many]), schema, written=written, framing="none")
    assert bad == [1]
    assert table["a"].to_pylist() == [[{"o": None}], None]


def test_arrow_batches_are_bounded_whatever_the_records_decompress_to(logs: Logs) -> None:
    """A batch of some KB that decompresses to 16 MiB, with small and large records."""
    values = [b"{}"] * 20_000 + [b"x" * 3_000_000] * 5
    logs.write(values, "s", each=len(values), codec=CompressionType.ZSTD)
    log_dir = logs.log_dir()
    (split,) = plan(log_dir, log_dir.ranges(log_dir.partitions("s")))
    assert split.end - split.start < 200_000
    found = list(read(split, ["value", "offset"]))
    assert [value for batch in found for value in batch.column("value").to_pylist()] == values
    assert max(batch.nbytes for batch in found) <= 8 << 20


def test_few_rows_of_many_columns_are_made_at_a_time(logs: Logs) -> None:
    logs.write([b"{}"] * 2000, "s", each=2000, codec=CompressionType.ZSTD)
    log_dir = logs.log_dir()
    (split,) = plan(log_dir, log_dir.ranges(log_dir.partitions("s")))
    rows = rows_of(options_of({"path": str(logs.path), "topic": "s", "format": "json"}), WIDE)
    made = [(batch.num_rows, batch.nbytes) for batch in rows.batches(split)]
    assert sum(count for count, _ in made) == 2000
    assert max(size for _, size in made) <= PIECE_BYTES * 1.1  # plus the validity bits
    scan = Scan(pa.schema([*WIDE, pa.field("_offset", pa.int64())]), WIDE, Values(format="json"))
    tick = Tick(1, [Part("s", 0, 0, 2000, [piece_of(split)], [0])])
    assert max(batch.nbytes for batch in scan.records(tick, 0)) <= PIECE_BYTES * 1.1


def test_rows_are_weighed_with_all_their_parts() -> None:
    pairs = [None, [{"key": "ab", "value": b"c"}, {"key": "", "value": None}], [], [{"key": "k", "value": b"12"}]]
    headers = pa.array(pairs, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    records = pa.RecordBatch.from_arrays(
        [pa.array([b"k", None, b"", b"kk"]), pa.array([None, b"v" * 5, b"", b"v"]), headers],
        names=["key", "value", "headers"],
    )
    assert sizes_of(records, 8, None).to_pylist() == [9, 8 + 5 + 35, 8, 8 + 3 + 19]
    assert sizes_of(records.slice(1), 0, pa.array([0, 7, 0])).to_pylist() == [40, 7, 22]


def taken(tick: Tick, sizes: list[list[int]]) -> None:
    room = Room(tick)
    for some in sizes:
        room.take(pa.array(range(len(some))), pa.array(some, pa.int64()))


def test_rows_that_spark_may_put_into_one_batch_must_fit_together() -> None:
    tick = Tick(1, [Part("s", 0, 0, 10_000, [("", 0, 10_000, 0, 10_000, "", "", ())], [0])])
    plain = with_room(tick, [Bound({"a": 1}, 0)], 1 << 29, 4096)
    assert (plain.rows, plain.room) == (4096, MAX_BATCH_BYTES // 2)
    taken(plain, [[8000] * 100] * 1000)  # any 4096 of them fit
    taken(plain, [[10] * 10_000, [1_000_000] * 15, [10] * 10_000])
    with pytest.raises(DenseRowsError) as told:
        taken(plain, [[10] * 10_000, [1_000_000] * 10, [10] * 10_000, [1_000_000] * 10])
    assert told.value.rows == 33
    assert DenseRowsError.told(f"barnabas.streams.query.errors.DenseRowsError: {told.value}") == 33
    fewer = with_room(tick, [Bound({"a": 1}, 0)], 1 << 29, 33)
    taken(fewer, [[10] * 10_000, [1_000_000] * 10_000])


def test_a_row_that_is_too_large_alone_ends_its_query() -> None:
    tick = Tick(1, [Part("s", 0, 0, 10_000, [("", 0, 10_000, 0, 10_000, "", "", ())], [0])])
    one = with_room(tick, [Bound({"a": 16}, 0)], 1 << 29, 1)
    taken(one, [[4 << 20] * 1000])
    with pytest.raises(RowTooLargeError, match="offset 1 takes 16,777,216 bytes"):
        taken(one, [[4 << 20, 16 << 20]])
    taken(with_room(tick, [Bound({"a": 16}, 0)], 4 << 30, 1), [[16 << 20]])  # a larger heap


def test_the_headers_of_records_do_not_make_their_values_heavy(logs: Logs) -> None:
    values = [json.dumps({"t": "[{" * 25_000}).encode() for _ in range(60)]
    logs.write(values, "s", each=60, codec=CompressionType.ZSTD)
    log_dir = logs.log_dir()
    (split,) = plan(log_dir, log_dir.ranges(log_dir.partitions("s")))
    options = options_of({"path": str(logs.path), "topic": "s", "format": "json"})
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = rows_of(options, pa.schema([("t", pa.string()), ("_headers", headers)]))
    assert [batch.num_rows for batch in rows.batches(split)] == [60]
