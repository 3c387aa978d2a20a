"""The two encoders: equal to each other, and read back by `wire.batch`, `streams.decode` and kafka-python."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from barnabas.streams.decode import decode, open_batch
from barnabas.streams.decode.types import HEADERS
from barnabas.streams.encode import Encoded, batches, empty, encode
from barnabas.streams.encode.batches import Backend
from barnabas.streams.encode.python import writer_in_python
from barnabas.wire.batch import HEADER_SIZE, Record, check, iter_records, parse_header, validate
from barnabas.wire.compression import CompressionType

try:
    from barnabas.streams.encode.native import writer_in_c
except ImportError:
    BACKENDS: list[Backend] = [writer_in_python]
else:
    BACKENDS = [writer_in_python, writer_in_c]

# Gap to the previous offset, timestamp, key, value, headers.
Row = tuple[int, int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

MAX_INT32 = 2**31 - 1
blobs = st.none() | st.binary(max_size=200)
headers = st.none() | st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)
times = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**42)
gaps = st.integers(1, 3) | st.integers(1, 2**32)
fields = st.tuples(gaps, times, blobs, blobs, headers)


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.__name__)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    chosen: Backend = request.param
    monkeypatch.setattr(batches, "backend", lambda: chosen)
    return chosen


def rows_of(records: list[Row], base: int, large: bool = False) -> pa.RecordBatch:
    """The records as columns, as the encoders take them."""
    offsets = [base - 1]
    for gap, *_ in records:
        offsets.append(offsets[-1] + gap)
    kind = pa.large_binary() if large else pa.binary()
    headers = [None if one[4] is None else [{"key": name, "value": value} for name, value in one[4]] for one in records]
    return pa.record_batch(
        {
            "offset": pa.array(offsets[1:], pa.int64()),
            "timestamp": pa.array([one[1] for one in records], pa.int64()).cast(pa.timestamp("ms", "UTC")),
            "key": pa.array([one[2] for one in records], kind),
            "value": pa.array([one[3] for one in records], kind),
            "headers": pa.array(headers, HEADERS),
        }
    )


def records_in(rows: pa.RecordBatch) -> list[Record]:
    """The same rows, taken from Arrow one by one."""
    times = rows.column("timestamp").cast(pa.int64())
    return [
        Record(
            row["key"],
            row["value"],
            -1 if time is None else time,
            tuple((pair["key"], pair["value"]) for pair in row["headers"] or ()),
            row["offset"],
        )
        for row, time in zip(rows.drop_columns("timestamp").to_pylist(), times.to_pylist(), strict=True)
    ]


def checked(made: Iterator[Encoded], base: int) -> list[Encoded]:
    """The batches, after checks that they are consecutive from `base` on and agree with their headers."""
    found = list(made)
    for one in found:
        header = check(one.data)
        assert header.size_in_bytes == len(one.data)
        assert (one.base_offset, one.next_offset) == (base, header.last_offset + 1)
        assert (one.base_offset, one.count) == (header.base_offset, header.records_count)
        assert (header.base_sequence, header.partition_leader_epoch) == (-1, 0)
        base = one.next_offset
    return found


@given(
    records=st.lists(fields, min_size=1, max_size=12),
    base=st.integers(0, 2**40),
    codec=st.sampled_from(list(CompressionType)),
    max_bytes=st.integers(62, 1500),
    large=st.booleans(),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_round_trip(
    records: list[Row], base: int, codec: CompressionType, max_bytes: int, large: bool, data: st.DataObject
) -> None:
    rows = rows_of(records, base, large)
    start = data.draw(st.integers(0, rows.num_rows - 1), "start of a slice")
    rows = rows.slice(start, data.draw(st.integers(1, rows.num_rows - start), "length of the slice"))
    with pytest.MonkeyPatch.context() as patch:
        made = []
        for chosen in BACKENDS:
            patch.setattr(batches, "backend", lambda: chosen)
            encoded = encode(rows, base_offset=base, compression=codec, max_bytes=max_bytes, producer_id=7)
            made.append(checked(encoded, base))
    assert all(one == made[0] for one in made)
    assert [record for one in made[0] for record in iter_records(one.data)] == records_in(rows)
    assert made[0][-1].next_offset == rows.column("offset")[-1].as_py() + 1
    for one in made[0]:
        header = parse_header(one.data)
        assert header.producer_id == 7
        if codec == CompressionType.NONE and one.count > 1:
            assert len(one.data) <= max_bytes
        if one.count:
            stamps = [record.timestamp for record in iter_records(one.data)]
            assert (header.base_timestamp, header.max_timestamp) == (stamps[0], max(-1, *stamps))


@given(st.lists(fields, min_size=1, max_size=12), st.integers(0, 2**40))
@settings(max_examples=50, deadline=None)
def test_the_decoder_gives_the_rows_back(records: list[Row], base: int) -> None:
    rows = rows_of(records, base)
    opened = [open_batch(one.data, 0)[0] for one in encode(rows, base_offset=base, max_bytes=300)]
    count, found = decode([one for one in opened if one is not None], ["offset", "key", "value", "headers"])
    assert count == rows.num_rows
    for name in ("offset", "key", "value"):
        assert found[name].equals(rows.column(name))
    assert found["headers"].to_pylist() == [pairs or None for pairs in rows.column("headers").to_pylist()]


@given(
    st.lists(fields, min_size=1, max_size=8),
    st.sampled_from([CompressionType.NONE, CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD]),
)
@settings(max_examples=50, deadline=None)
def test_kafka_python_reads_the_same(records: list[Row], codec: CompressionType) -> None:
    records = [(gap, time and time % 2**41, key, value, headers) for gap, time, key, value, headers in records]
    rows = rows_of(records, 0)
    stored = MemoryRecords(b"".join(one.data for one in encode(rows, base_offset=0, compression=codec, max_bytes=400)))
    found = []
    while stored.has_next():
        one = stored.next_batch()
        assert one.validate_crc()
        found += [
            Record(record.key, record.value, record.timestamp, tuple(record.headers), record.offset) for record in one
        ]
    # kafka-python returns None for a timestamp of -1
    assert [(r.offset, r.key, r.value, r.headers) for r in found] == [
        (r.offset, r.key, r.value, r.headers) for r in records_in(rows)
    ]
    assert [r.timestamp if r.timestamp is not None else -1 for r in found] == [r.timestamp for r in records_in(rows)]


def test_missing_columns_are_nulls(backend: Backend) -> None:
    (one,) = encode(pa.record_batch({"offset": pa.array([4, 6])}), base_offset=3)
    assert list(iter_records(one.data)) == [Record(None, None, -1, (), 4), Record(None, None, -1, (), 6)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_bytes_of_every_width(backend: Backend, kind: pa.DataType) -> None:
    values = pa.array(["", "é", None, "x" * 300], pa.string()).cast(kind)
    (one,) = encode(pa.record_batch({"offset": pa.array(range(4)), "value": values}), base_offset=0)
    assert [record.value for record in iter_records(one.data)] == [b"", "é".encode(), None, b"x" * 300]


def test_microseconds_are_cut_to_milliseconds(backend: Backend) -> None:
    times = pa.array([1_700_000_000_000_999, None], pa.timestamp("us", "UTC"))
    (one,) = encode(pa.record_batch({"offset": pa.array([0, 1]), "timestamp": times}), base_offset=0)
    assert [record.timestamp for record in iter_records(one.data)] == [1_700_000_000_000, -1]


def test_headers_under_nulls_and_in_large_lists(backend: Backend) -> None:
    """Buffer content under a null list or before a slice is not a header of any row."""
    pairs = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "c", "value": b""}])
    lists = pa.LargeListArray.from_arrays(pa.array([0, None, 2, 3], pa.int64()), pairs)
    rows = pa.record_batch({"offset": pa.array([0, 1, 2]), "headers": lists})
    (one,) = encode(rows, base_offset=0)
    found = [record.headers for record in iter_records(one.data)]
    assert found == [(("a", b"1"), ("b", None)), (), (("c", b""),)]
    (one,) = encode(rows.slice(2), base_offset=0)
    assert [record.headers for record in iter_records(one.data)] == [(("c", b""),)]


def test_a_batch_ends_before_max_bytes_and_a_larger_record_stands_alone(backend: Backend) -> None:
    values = [b"x" * 100] * 3 + [b"y" * 5000] + [b"z" * 100] * 2
    rows = pa.record_batch({"offset": pa.array(range(6)), "value": pa.array(values)})
    sizes = [len(one.data) for one in encode(rows, base_offset=0, max_bytes=1 << 20)]
    (first, *_) = encode(rows.slice(0, 2), base_offset=0)
    exact = len(first.data)
    made = checked(encode(rows, base_offset=0, max_bytes=exact), 0)
    assert [one.count for one in made] == [2, 1, 1, 2]
    assert [one.count for one in encode(rows, base_offset=0, max_bytes=exact - 1)] == [1] * 6
    assert len(sizes) == 1


def test_without_gaps_the_broker_takes_the_batches_as_a_producers(backend: Backend) -> None:
    rows = pa.record_batch({"offset": pa.array(range(5, 9)), "value": pa.array(["v"] * 4)})
    for one in encode(rows, base_offset=5, compression=CompressionType.LZ4):
        assert validate(one.data).last_offset == 8


def test_a_gap_too_long_for_one_batch_is_covered_by_empty_ones(backend: Backend) -> None:
    far = 2 * MAX_INT32 + 10
    rows = pa.record_batch({"offset": pa.array([1, MAX_INT32, MAX_INT32 + 1, 2**40])})
    made = checked(encode(rows.slice(0, 3), base_offset=0), 0)
    assert [one.count for one in made] == [2, 1]
    lone = pa.record_batch({"offset": pa.array([far]), "timestamp": pa.array([77], pa.timestamp("ms"))})
    made = checked(encode(lone, base_offset=0), 0)
    assert [one.count for one in made] == [0, 0, 1]
    assert parse_header(made[0].data).max_timestamp == 77


def test_no_rows_are_no_batches(backend: Backend) -> None:
    assert list(encode(pa.record_batch({"offset": pa.array([], pa.int64())}), base_offset=9)) == []


def test_empty_batches_cover_a_range() -> None:
    one = empty(10, 15, producer_id=3, producer_epoch=2, timestamp_ms=99)
    (same,) = checked(iter([one]), 10)
    header = parse_header(same.data)
    assert (len(one.data), header.last_offset_delta, header.records_count) == (HEADER_SIZE, 4, 0)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (3, 2, 99)
    assert list(iter_records(one.data)) == []
    assert parse_header(empty(0, MAX_INT32, timestamp_ms=0).data).last_offset_delta == MAX_INT32 - 1


@pytest.mark.parametrize(("base", "end"), [(5, 5), (5, 4), (0, 2**31), (-1, 3)])
def test_empty_batches_of_impossible_ranges_are_refused(base: int, end: int) -> None:
    with pytest.raises(ValueError, match="no batch covers"):
        empty(base, end, timestamp_ms=0)


OFFSETS = pa.array([3, 4])


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({"value": pa.array(["a"])}, "need a column offset"),
        ({"offset": pa.array([3], pa.int32())}, "need a column offset"),
        ({"offset": pa.array([3, None])}, "a row without an offset"),
        ({"offset": pa.array([2, 4])}, "below the base offset 3"),
        ({"offset": pa.array([3, 3])}, "do not go up"),
        ({"offset": pa.array([3, 5, 4])}, "do not go up"),
        ({"offset": OFFSETS, "value": pa.array([1, 2])}, "value is of type int64"),
        ({"offset": OFFSETS, "key": pa.array([1.5, 2])}, "key is of type double"),
        ({"offset": OFFSETS, "timestamp": pa.array([1, 2])}, "timestamp is of type int64"),
        ({"offset": OFFSETS, "timestamp": pa.array([1, 2], pa.timestamp("ns"))}, "expected timestamp"),
        ({"offset": OFFSETS, "headers": pa.array(["a", "b"])}, "headers is of type string"),
        ({"offset": OFFSETS, "headers": pa.array([[{"key": b"a", "value": b""}], None])}, "expected string"),
        ({"offset": OFFSETS, "headers": pa.array([[{"key": None, "value": b""}], None], HEADERS)}, "without a key"),
    ],
)
def test_rows_that_make_no_records_are_refused(backend: Backend, rows: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        next(encode(pa.record_batch(rows), base_offset=3))


def test_a_negative_base_offset_is_refused(backend: Backend) -> None:
    with pytest.raises(ValueError, match="offsets begin at 0"):
        next(encode(pa.record_batch({"offset": pa.array([3])}), base_offset=-1))


def test_arrays_that_do_not_hold_together_are_refused() -> None:
    if len(BACKENDS) < 2:
        pytest.skip("the encoder in C is not built")
    long = pa.py_buffer(b"".join(n.to_bytes(8, "little") for n in (0, 99, 3)))
    broken = pa.Array.from_buffers(pa.large_binary(), 2, [None, long, pa.py_buffer(b"abc")])
    with pytest.raises(ValueError, match="do not hold its rows"):
        list(encode(pa.record_batch({"offset": pa.array([0, 1]), "value": broken}), base_offset=0))


def test_the_fall_back_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    batches.backend.cache_clear()
    monkeypatch.setitem(sys.modules, "barnabas.streams.encode.native", None)
    with caplog.at_level(logging.WARNING, "barnabas.streams"):
        assert batches.backend() is writer_in_python
        assert batches.backend() is writer_in_python
    batches.backend.cache_clear()
    assert sum("not built" in message for message in caplog.messages) == 1


def test_batches_of_a_transaction_have_sequences_one_after_the_other() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(10), pa.int64()),
            "value": [b"x" * 30] * 10,
            "timestamp": pa.array([5] * 10, pa.timestamp("ms")),
        }
    )
    found = list(encode(rows, base_offset=0, producer_id=7, producer_epoch=2, max_bytes=250, transaction_sequence=4))
    headers = [validate(batch.data) for batch in found]
    assert len(headers) > 1
    assert all(header.is_transactional for header in headers)
    assert [h.base_sequence for h in headers] == [4 + batch.base_offset for batch in found]
    assert {(h.producer_id, h.producer_epoch) for h in headers} == {(7, 2)}
    assert not validate(next(encode(rows, base_offset=0)).data).is_transactional
