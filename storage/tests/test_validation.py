"""The reasons for which a producer's batch is refused, and the corrections to it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage import validation
from barnabas.storage.config import LogConfig
from barnabas.storage.tests.support import NOW, created
from barnabas.storage.validation import RejectedRecords, Rules, TooHeavy, Valid, validate
from barnabas.storage.vnode import Origin
from barnabas.wire import batch, walk
from barnabas.wire.batch import Record
from barnabas.wire.compression import CompressionType, compress
from barnabas.wire.errors import ErrorCode, KafkaError

RULES = Rules.of(LogConfig())
COMPACTED = Rules.of(LogConfig(cleanup_policy="compact"))


def batch_of(*values: bytes, timestamp: int = NOW, compression: int = CompressionType.NONE) -> bytes:
    return batch.build_batch([Record(b"k", value, timestamp) for value in values], compression=compression)


def lying(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    """The batch after a change, with its CRC corrected."""
    out = bytearray(data)
    change(out)
    batch.seal(out)
    return bytes(out)


def with_body(
    body: bytes, count: int, codec: int = CompressionType.NONE, last_offset_delta: int | None = None
) -> bytes:
    """A batch with any bytes in place of records."""
    return batch.assemble_batch(
        body,
        records_count=count,
        base_offset=0,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp=NOW,
        max_timestamp=NOW,
        attributes=codec,
    )


def set_int32(at: int, value: int) -> Callable[[bytearray], None]:
    return lambda out: struct.pack_into(">i", out, at, value)


BODY = batch_of(b"a", b"b")[batch.HEADER_SIZE :]
#: A function that makes each batch, as some are large, and the expected error.
LIES: dict[str, tuple[Callable[[], bytes], ErrorCode]] = {
    "garbage": (lambda: with_body(b"\x00garbage" * 9, 5), ErrorCode.INVALID_RECORD),
    "garbage that is compressed": (
        lambda: with_body(b"\x00garbage" * 9, 5, CompressionType.ZSTD),
        ErrorCode.INVALID_RECORD,
    ),
    "data that does not decompress": (
        lambda: lying(with_body(b"", 1, CompressionType.ZSTD), lambda out: out.__setitem__(slice(-4, None), b"nope")),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "fewer records than stated": (lambda: with_body(BODY, 5), ErrorCode.INVALID_RECORD),
    "more records than stated": (lambda: with_body(BODY, 1), ErrorCode.INVALID_RECORD),
    "many records stated for compressed ones": (
        lambda: with_body(BODY, 2**31 - 1, CompressionType.LZ4),
        ErrorCode.INVALID_RECORD,
    ),
    "a last offset far away": (lambda: with_body(BODY, 2, last_offset_delta=2**31 - 1), ErrorCode.INVALID_RECORD),
    "a last offset far away, compressed": (
        lambda: with_body(BODY, 2, CompressionType.GZIP, last_offset_delta=2**31 - 1),
        ErrorCode.INVALID_RECORD,
    ),
    "a base offset": (
        lambda: lying(batch_of(b"a"), lambda out: struct.pack_into(">q", out, 0, 7)),
        ErrorCode.INVALID_RECORD,
    ),
    "a control batch": (lambda: lying(batch_of(b"a"), lambda out: out.__setitem__(22, 0x20)), ErrorCode.INVALID_RECORD),
    "a delete horizon": (
        lambda: lying(batch_of(b"a"), lambda out: out.__setitem__(22, 0x40)),
        ErrorCode.INVALID_RECORD,
    ),
    "an unknown codec": (lambda: lying(batch_of(b"a"), lambda out: out.__setitem__(22, 5)), ErrorCode.INVALID_RECORD),
    "its own append time": (
        lambda: lying(batch_of(b"a"), lambda out: out.__setitem__(22, 0x08)),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "offset deltas of -1": (
        lambda: with_body(BODY[:3] + b"\x01" + BODY[4:], 2),
        ErrorCode.INVALID_RECORD,
    ),
    "no records": (lambda: with_body(b"", 0), ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
    "a header that is no text": (
        lambda: lying(
            batch.build_batch([Record(b"k", b"v", NOW, (("ab", b""),))]),
            lambda out: out.__setitem__(slice(-3, -1), b"\xff\xff"),
        ),
        ErrorCode.INVALID_RECORD,
    ),
    "a bomb": (lambda: with_body(bytes(200 << 20), 1, CompressionType.ZSTD), ErrorCode.INVALID_RECORD),
    "too many records": (
        lambda: batch.build_batch(
            [Record(None, None, NOW)] * (validation.MAX_RECORDS + 1), compression=CompressionType.ZSTD
        ),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_and_leaves_the_log_as_it_was(lie: str, tmp_path: Path) -> None:
    make, code = LIES[lie]
    vnode = created(tmp_path / "t-0", LogConfig(max_message_bytes=64 << 20))
    with pytest.raises(KafkaError) as refused:
        vnode.append(make(), now_ms=NOW)
    assert refused.value.code is code
    assert vnode.log_end_offset == 0
    assert vnode.append(batch_of(b"a"), now_ms=NOW).base_offset == 0


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_every_timestamp_is_held_to_the_bounds_not_only_the_first(codec: CompressionType) -> None:
    rules = Rules.of(LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500))
    stamps = [NOW, NOW - 1001, NOW - 1000, NOW + 500, NOW + 501, -1]
    data = batch.build_batch([Record(b"k", b"v", stamp) for stamp in stamps], compression=codec)
    with pytest.raises(RejectedRecords) as refused:
        validate(data, rules, NOW)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.records] == [1, 4]
    assert f"not within {NOW - 1000} to {NOW + 500}" in refused.value.records[0][1]


def test_a_million_bad_records_are_counted_and_some_of_them_named() -> None:
    data = batch.build_batch([Record(None, None, NOW)] * 5000)
    with pytest.raises(
        RejectedRecords, match=r"^5000 records of the batch are refused; the first is record 0"
    ) as refused:
        validate(data, COMPACTED, NOW)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert len(refused.value.records) == validation.MOST_RECORD_ERRORS


def test_timestamps_do_not_matter_where_the_broker_stamps() -> None:
    rules = Rules.of(LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0))
    data = batch_of(b"v", timestamp=NOW + 10**9)
    assert validate(data, rules, NOW).data == data


@pytest.mark.parametrize("stated", [-1, 0, NOW + 77])
def test_a_wrong_maximum_timestamp_is_set_right(stated: int, tmp_path: Path) -> None:
    honest = batch.build_batch([Record(b"k", b"v", NOW - 5), Record(b"k", b"w", NOW), Record(b"k", b"x", NOW - 9)])
    data = lying(honest, lambda out: struct.pack_into(">q", out, 35, stated))
    vnode = created(tmp_path / "t-0", LogConfig())
    for number in range(3):
        assert vnode.append(data, now_ms=NOW).base_offset == 3 * number
    vnode.flush()
    assert len(vnode.segments) == 1, "a segment was rolled for a timestamp that no record has"
    assert vnode.offset_for_timestamp(NOW - 1) == (1, NOW)
    assert vnode.max_timestamp_offset() == (1, NOW)
    assert vnode.offset_for_timestamp(NOW + 1) is None
    found = vnode.read(0, 1 << 20).slice
    assert found is not None
    assert batch.check(found.read()).max_timestamp == NOW


def test_the_coordinators_own_batches_may_hold_control_records(tmp_path: Path) -> None:
    control = batch.build_batch(
        [Record(batch.control_key(1), b"", NOW)],
        is_control=True,
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
    )
    vnode = created(tmp_path / "t-0", LogConfig())
    assert vnode.append(control, now_ms=NOW, origin=Origin.COORDINATOR).base_offset == 0


def test_what_takes_long_is_left_to_a_thread_undecided() -> None:
    many = [bytes(validation.LIGHT_DECOMPRESSED)]
    heavy = [
        batch_of(*many, compression=CompressionType.ZSTD),
        batch.build_batch([Record(b"k", bytes(validation.LIGHT_BYTES))]),
        LIES["a bomb"][0](),
    ]
    rules = Rules.of(LogConfig(max_message_bytes=64 << 20))
    for data in heavy:
        with pytest.raises(TooHeavy):
            validate(data, rules, NOW, light=True)
    packed = Rules.of(LogConfig(compression_type="gzip"))
    with pytest.raises(TooHeavy):
        validate(batch_of(bytes(validation.LIGHT_COMPRESSING + 1)), packed, NOW, light=True)
    assert validate(batch_of(b"small"), packed, NOW, light=True).header.compression == CompressionType.GZIP
    assert validate(heavy[0], rules, NOW).data == heavy[0]


def test_without_the_walk_in_c_many_records_are_left_to_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "NATIVE", False)
    monkeypatch.setattr(walk, "check", walk.check_in_python)
    assert validate(batch_of(b"v"), RULES, NOW, light=True).header.records_count == 1
    with pytest.raises(TooHeavy):
        validate(batch_of(*[b"v"] * (validation.LIGHT_RECORDS_IN_PYTHON + 1)), RULES, NOW, light=True)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.sampled_from(list(CompressionType)), st.data())
def test_a_batch_that_passes_reads_back_whole(values: list[bytes], codec: CompressionType, data: st.DataObject) -> None:
    """A batch is changed at random, and its CRC corrected: if it passes, every reader can read it."""
    bad = bytearray(batch_of(*values, compression=codec))
    for _ in range(data.draw(st.integers(0, 2))):
        bad[data.draw(st.integers(8, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    batch.seal(bad)
    try:
        valid = validate(bytes(bad), RULES, NOW)
    except KafkaError:
        return
    assert isinstance(valid, Valid)
    read = list(batch.iter_records(valid.data))
    assert [record.offset for record in read] == list(range(valid.header.last_offset_delta + 1))
    assert valid.header.max_timestamp == max(-1, *(record.timestamp for record in read))


def test_compressed_records_behind_a_second_member_count_too() -> None:
    """A gzip stream may have several members; all of them are read."""
    whole = with_body(b"", 2, CompressionType.GZIP)[: batch.HEADER_SIZE]
    body = compress(CompressionType.GZIP, BODY) + compress(CompressionType.GZIP, b"more")
    data = lying(whole + body, set_int32(8, len(whole) + len(body) - 12))
    with pytest.raises(KafkaError, match="4 bytes after the last record"):
        validate(data, RULES, NOW)
