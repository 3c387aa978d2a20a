"""Record batches: compared with other implementations in both directions, and with damage."""

from __future__ import annotations

import struct
from collections.abc import Callable

import construct as c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from barnabas.wire import batch
from barnabas.wire.batch import Record
from barnabas.wire.compression import CompressionType
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.tests.strategies import examples

HEADER_FORMAT = c.Struct(
    "base_offset" / c.Int64sb,
    "batch_length" / c.Int32sb,
    "partition_leader_epoch" / c.Int32sb,
    "magic" / c.Int8sb,
    "crc" / c.Int32ub,
    "attributes" / c.Int16sb,
    "last_offset_delta" / c.Int32sb,
    "base_timestamp" / c.Int64sb,
    "max_timestamp" / c.Int64sb,
    "producer_id" / c.Int64sb,
    "producer_epoch" / c.Int16sb,
    "base_sequence" / c.Int32sb,
    "records_count" / c.Int32sb,
)

codecs = st.sampled_from(list(CompressionType))
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
record_lists = st.lists(
    st.builds(
        Record,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.integers(0, 2**47),
        headers,
    ),
    min_size=1,
    max_size=8,
)


def expected(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [Record(r.key, r.value, r.timestamp, r.headers, base_offset + i) for i, r in enumerate(records)]


def refusal(act: Callable[[], object]) -> ErrorCode | None:
    try:
        act()
    except KafkaError as error:
        return error.code
    return None


def code_of(data: bytes | bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        batch.validate(data)
    return caught.value.code


@given(st.binary(min_size=61, max_size=70))
def test_the_header_struct_is_the_declared_format(data: bytes) -> None:
    assert HEADER_FORMAT.sizeof() == batch.HEADER_SIZE
    parsed = HEADER_FORMAT.parse(data)
    header = batch.parse_header(data)
    assert {name: getattr(header, name) for name in header.__struct_fields__} == {
        name: parsed[name] for name in header.__struct_fields__
    }


@given(record_lists, codecs, st.integers(0, 2**40))
def test_what_is_built_validates_and_reads_back(records: list[Record], codec: CompressionType, base: int) -> None:
    data = batch.build_batch(records, compression=codec, base_offset=base)
    header = batch.validate(data)
    assert (header.base_offset, header.records_count, header.compression) == (base, len(records), codec)
    assert header.size_in_bytes == len(data)
    assert header.last_offset == base + len(records) - 1
    assert header.max_timestamp == max(r.timestamp for r in records)
    assert list(batch.iter_records(data)) == expected(records, base)
    for wanted in (0, records[-1].timestamp):
        first = next((r.offset, r.timestamp) for r in expected(records, base) if r.timestamp >= wanted)
        assert batch.find_time(data, wanted, 0, 2**62) == first


@given(record_lists, codecs)
def test_kafka_python_and_aiokafka_read_what_is_built(records: list[Record], codec: CompressionType) -> None:
    data = batch.build_batch(records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=5)
    aio = AioBatch(data)
    assert aio.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in aio] == [
        (r.offset, r.timestamp, r.key, r.value) for r in expected(records)
    ]
    if codec is CompressionType.SNAPPY:
        return  # kafka-python needs one more library to read it
    theirs = MemoryRecords(data).next_batch()
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 1, 5)
    found = [Record(r.key, r.value, r.timestamp, tuple(r.headers), r.offset) for r in theirs]
    assert found == expected(records)


# kafka-python needs one more library to write snappy.
@given(record_lists, codecs.filter(lambda codec: codec is not CompressionType.SNAPPY))
def test_what_kafka_python_builds_reads_back(records: list[Record], codec: CompressionType) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=9,
        producer_epoch=2,
        base_sequence=3,
        batch_size=1 << 20,
    )
    for i, r in enumerate(records):
        builder.append(i, r.timestamp, r.key, r.value, list(r.headers))
    data = bytes(builder.build())
    header = batch.validate(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (9, 2, 3, True)
    assert list(batch.iter_records(data)) == expected(records)


@given(record_lists, codecs, st.data())
def test_no_mutation_passes_the_checks_or_escapes_as_another_error(
    records: list[Record], codec: CompressionType, data: st.DataObject
) -> None:
    """Inside the CRC every change is detected; with the CRC repaired, decoding gives records or KafkaError."""
    good = batch.build_batch(records, compression=codec)
    bad = bytearray(good)
    at = data.draw(st.integers(0, len(bad) - 1))
    bad[at] ^= data.draw(st.integers(1, 255))
    if at >= 16:
        with pytest.raises(KafkaError):
            batch.validate(bad)
    batch.seal(bad)
    for act in (
        lambda: batch.validate(bad),
        lambda: batch.find_time(bad, 2**62, 0, 2**62, max_decompressed=1 << 16),
        lambda: list(batch.iter_records(bad, max_decompressed=1 << 16)),
    ):
        assert refusal(act) in (None, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


@examples(100, 300)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_hostile_records_behind_a_right_crc(payload: bytes, count: int) -> None:
    data = bytearray(batch.build_batch([Record(None, b"")]))[:61] + payload
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">ii", data, 53, -1, count)
    batch.seal(data)
    assert refusal(lambda: list(batch.iter_records(data))) in (None, ErrorCode.INVALID_RECORD)
    assert refusal(lambda: batch.find_time(data, 2**62, 0, 2**62)) in (None, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48, 2**31 - 1])
def test_a_wrong_length_is_refused(length: int) -> None:
    data = bytearray(batch.build_batch([Record(b"k", b"v")]))
    struct.pack_into(">i", data, 8, length)
    assert code_of(data) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", range(70))
def test_a_cut_batch_is_refused(size: int) -> None:
    assert code_of(batch.build_batch([Record(b"key", b"value" * 10)])[:size]) is ErrorCode.CORRUPT_MESSAGE


def test_checks_that_need_no_decoding() -> None:
    def changed(at: int, fmt: str, value: int) -> bytes:
        data = bytearray(batch.build_batch([Record(b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0))
        struct.pack_into(fmt, data, at, value)
        batch.seal(data)
        return bytes(data)

    assert code_of(changed(16, ">b", 1)) is ErrorCode.INVALID_RECORD  # old format
    assert code_of(changed(57, ">i", 2)) is ErrorCode.INVALID_RECORD  # count differs from the offset range
    assert code_of(changed(57, ">i", 0)) is ErrorCode.INVALID_RECORD
    assert code_of(changed(21, ">h", 5)) is ErrorCode.INVALID_RECORD  # codec
    assert code_of(changed(53, ">i", -1)) is ErrorCode.INVALID_RECORD  # sequence
    many = bytearray(changed(23, ">i", 999))
    struct.pack_into(">i", many, 57, 1000)
    batch.seal(many)
    assert code_of(many) is ErrorCode.INVALID_RECORD  # more records than bytes


def test_append_time_replaces_every_timestamp() -> None:
    data = batch.build_batch([Record(b"k", b"v", 5), Record(b"k", b"w", 6)], compression=CompressionType.LZ4)
    stamped = batch.with_append_time(batch.validate(data), data, 40, 3, 999) + data[61:]
    header = batch.validate(stamped)
    assert (header.timestamp_type, header.max_timestamp) == (batch.LOG_APPEND_TIME, 999)
    assert [(r.offset, r.timestamp) for r in batch.iter_records(stamped)] == [(40, 999), (41, 999)]


@given(record_lists, codecs)
def test_repacking_keeps_the_records(records: list[Record], target: CompressionType) -> None:
    data = batch.build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
    again = batch.repack(batch.validate(data), data[batch.HEADER_SIZE :], target)
    assert batch.validate(again).compression == target
    assert list(batch.iter_records(again)) == expected(records)


def test_another_maximum_timestamp_leaves_the_crc_valid() -> None:
    data = batch.build_batch([Record(b"k", b"v", 5)])
    assert batch.validate(batch.with_max_timestamp(data, 77)).max_timestamp == 77


def test_batches_are_walked_up_to_the_cut_one() -> None:
    one = batch.build_batch([Record(b"k", b"v")])
    two = batch.build_batch([Record(b"k", b"w")], base_offset=1)
    found = list(batch.iter_batches(one + two + one[:-1]))
    assert [bytes(data) for _, data in found] == [one, two]
    assert [header.base_offset for header, _ in found] == [0, 1]


def test_offsets_keep_their_gaps_and_empty_batches_carry_a_range() -> None:
    data = batch.build_batch(
        [Record(b"a", b"", offset=12), Record(b"b", b"", offset=17)], base_offset=10, last_offset_delta=9
    )
    assert [r.offset for r in batch.iter_records(data)] == [12, 17]
    assert batch.check(data).last_offset == 19
    empty = batch.build_batch([], base_offset=10, last_offset_delta=9)
    assert batch.check(empty).last_offset == 19
    assert list(batch.iter_records(empty)) == []


def test_control_records_name_their_type() -> None:
    data = batch.build_batch([Record(batch.control_key(1), b"\0\0\0\0\0\0")], is_control=True, is_transactional=True)
    assert batch.validate(data).is_control
    assert [batch.control_type(r.key) for r in batch.iter_records(data)] == [batch.ControlType.COMMIT]
    with pytest.raises(KafkaError):
        batch.control_type(b"\0")


def test_sequences_wrap() -> None:
    assert batch.last_sequence(2**31 - 1, 0) == 2**31 - 1
    assert batch.last_sequence(2**31 - 1, 1) == 0
    assert batch.last_sequence(2**31 - 2, 3) == 1


def test_a_batch_that_decompresses_to_too_much_is_refused() -> None:
    data = batch.build_batch([Record(None, bytes(10_000_000))], compression=CompressionType.ZSTD)
    with pytest.raises(KafkaError, match="more than 100000 bytes"):
        list(batch.iter_records(data, max_decompressed=100_000))
