"""Record batches, format version 2 (KIP-98): the unit that producers send, segments hold and consumers fetch.

A batch is opaque on the hot path: `validate` reads its 61-byte header and checks the CRC; `patch` sets the two fields
that the CRC does not cover. A producer's records are walked once, by `wire.walk`; only `iter_records` decodes them.

Layout (big-endian): base offset i64, length i32 (of what follows it), partition leader epoch i32, magic i8, CRC32C u32
(of what follows it), attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64,
producer epoch i16, base sequence i32, record count i32, then the records, compressed as one unit. Attributes: bits 0-2
codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from barnabas.wire import walk
from barnabas.wire.aliases import BytesLike
from barnabas.wire.compression import CompressionType, compress, decompress
from barnabas.wire.crc import crc32c
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.varint import read_long_varint, write_varint

MAGIC = 2
HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length: the bytes that the length field does not count
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
CREATE_TIME = 0
LOG_APPEND_TIME = 1

HEADER = struct.Struct(">qiibIhiqqqhii")
OFFSET_AND_LENGTH = struct.Struct(">qi")
PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch: everything that an append changes
PREFIX_SIZE = PREFIX.size
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_CRC = struct.Struct(">I")
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_TIMESTAMP = struct.Struct(">q")
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_MAX_CODEC = max(CompressionType)
_CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
_TRANSACTIONAL_BIT = 0x10
_CONTROL_BIT = 0x20
_DELETE_HORIZON_BIT = 0x40
# Seven one-byte fields: length, attributes, timestamp delta, offset delta, key length, value length, header count.
_MIN_RECORD_SIZE = 7

#: The most that one batch may decompress to, unless a caller gives another limit.
MAX_DECOMPRESSED = 128 * 1024 * 1024


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return last_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Set by compaction: the base timestamp is then the time from which tombstones may be removed."""
        return bool(self.attributes & _DELETE_HORIZON_BIT)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. For `build_batch`, an offset of -1 means the one after its predecessor's."""

    key: bytes | None
    value: bytes | None
    timestamp: int = NO_TIMESTAMP
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


class Marker(NamedTuple):
    """The end of a producer's transaction, as its coordinator writes it into a partition (KIP-98)."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


class ControlType:
    """Types of control records; readers skip types that they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    """The sequence of a batch's last record; sequences wrap from 2^31-1 to 0."""
    return -1 if base_sequence < 0 else (base_sequence + last_offset_delta) & 0x7FFFFFFF


def parse_header(buf: BytesLike, pos: int = 0) -> BatchHeader:
    """The header at `pos`. Only its presence is checked (`KafkaError` CORRUPT_MESSAGE)."""
    try:
        return BatchHeader(*HEADER.unpack_from(buf, pos))
    except struct.error:
        raise _corrupt(f"{max(len(buf) - pos, 0)} bytes are less than a batch header") from None


def check(buf: BytesLike, pos: int = 0) -> BatchHeader:
    """The header of the batch at `pos`, after the checks that any stored batch passes: length, magic and CRC."""
    header = parse_header(buf, pos)
    if header.magic != MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"batch of format version {header.magic}; only version 2 is served")
    end = pos + header.batch_length + LOG_OVERHEAD
    if header.batch_length < _MIN_LENGTH or end > len(buf):
        raise _corrupt(f"batch length {header.batch_length} in {len(buf) - pos} bytes")
    if crc32c(memoryview(buf)[pos + _ATTRIBUTES_AT : end]) != header.crc:
        raise _corrupt("the CRC does not match the batch")
    return header


def size_at(buf: BytesLike, pos: int) -> int:
    """The length that the batch at `pos` claims, but at least that of a header."""
    if pos + LOG_OVERHEAD > len(buf):
        return HEADER_SIZE
    size: int = OFFSET_AND_LENGTH.unpack_from(buf, pos)[1] + LOG_OVERHEAD
    return size


def validate(buf: BytesLike) -> BatchHeader:
    """The header of the batch at the start of `buf`, after the checks of a produce request. No record is decoded.

    Raises `KafkaError`: CORRUPT_MESSAGE for a wrong length or CRC, INVALID_RECORD for an old format, an implausible
    record count, an unknown codec, or a producer id without sequence.
    """
    header = check(buf)
    count = header.records_count
    if count < 1 or count != header.last_offset_delta + 1:
        raise _invalid(f"record count {count} with last offset delta {header.last_offset_delta}")
    codec = header.attributes & _CODEC_MASK
    if codec == 0:
        if count * _MIN_RECORD_SIZE > header.batch_length - _MIN_LENGTH:
            raise _invalid(f"{count} records in {header.batch_length} bytes")
    elif codec > _MAX_CODEC:
        raise _invalid(f"unknown compression codec {codec}")
    if header.producer_id >= 0 and not header.attributes & _CONTROL_BIT and header.base_sequence < 0:
        raise _invalid(f"producer id {header.producer_id} with sequence {header.base_sequence}")
    return header


def iter_batches(buf: BytesLike) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches in `buf`, with their bytes. One cut off at the end, as in fetch responses, is left out."""
    view = memoryview(buf)
    pos = 0
    while len(view) - pos >= HEADER_SIZE:
        header = parse_header(view, pos)
        if header.batch_length < _MIN_LENGTH:
            raise _corrupt(f"batch length {header.batch_length}")
        end = pos + header.size_in_bytes
        if end > len(view):
            return
        yield header, view[pos:end]
        pos = end


def iter_records(buf: BytesLike, *, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[Record]:
    """The records of the batch at the start of `buf`. Strict: a wrong length, count or order is INVALID_RECORD.

    The CRC is not checked here: first call `check` for untrusted bytes.
    """
    header, data = records_data(buf, max_decompressed)
    return decode_records(header, data)


def decode_records(header: BatchHeader, data: bytes) -> Iterator[Record]:
    """Like `iter_records`, for records that are already decompressed."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    size = len(data)
    pos = 0
    previous = -1
    # One-byte varints are decoded in line: a call for each of the seven fields would double the time.
    try:
        for _ in range(header.records_count):
            byte = data[pos]
            if byte < 0x80:
                end = pos + 1 + ((byte >> 1) ^ -(byte & 1))
                pos += 1
            else:
                length, pos = read_long_varint(data, pos, 32)
                end = pos + length
            if not pos < end <= size:
                raise _invalid(f"record length {end - pos} with {size - pos} bytes left")
            pos += 1  # attributes: unused
            byte = data[pos]
            if byte < 0x80:
                timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
                pos += 1
            else:
                delta, pos = read_long_varint(data, pos, 64)
                timestamp = base_timestamp + delta
            byte = data[pos]
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                delta, pos = read_long_varint(data, pos, 32)
            if not previous < delta <= header.last_offset_delta:
                raise _invalid(f"offset delta {delta} after {previous}, in a batch up to {header.last_offset_delta}")
            previous = delta
            byte = data[pos]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                length, pos = read_long_varint(data, pos, 32)
            key: bytes | None = None
            if length >= 0:
                key = data[pos : pos + length]
                pos += length
            elif length != -1:
                raise _invalid(f"key length {length}")
            if pos >= end:
                raise _invalid("the key is longer than its record")
            byte = data[pos]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                length, pos = read_long_varint(data, pos, 32)
            value: bytes | None = None
            if length >= 0:
                value = data[pos : pos + length]
                pos += length
            elif length != -1:
                raise _invalid(f"value length {length}")
            if pos >= end:
                raise _invalid("the value is longer than its record")
            byte = data[pos]
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if byte == 0:
                pos += 1
            else:
                headers, pos = _decode_headers(data, pos, end)
            if pos != end:
                raise _invalid(f"record length differs from its content by {end - pos} bytes")
            yield Record(key, value, timestamp if append_time is None else append_time, headers, base_offset + delta)
    except IndexError:
        raise _invalid("a record is cut off") from None
    except ValueError as error:
        raise _invalid(str(error)) from None
    if pos != size:
        raise _invalid(f"{size - pos} bytes after the last record")


def _decode_headers(data: bytes, pos: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = read_long_varint(data, pos, 32)
    if not 0 <= count <= end - pos:
        raise _invalid(f"{count} record headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, pos = read_long_varint(data, pos, 32)
        if not 0 <= length <= end - pos:
            raise _invalid(f"header key length {length}")
        name = data[pos : pos + length].decode()
        pos += length
        length, pos = read_long_varint(data, pos, 32)
        if length == -1:
            headers.append((name, None))
            continue
        if not 0 <= length <= end - pos:
            raise _invalid(f"header value length {length}")
        headers.append((name, data[pos : pos + length]))
        pos += length
    return tuple(headers), pos


def control_type(key: bytes | None) -> int:
    """The type of a control record from its key (version i16, type i16)."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise _invalid("control record without a type")
    version, kind = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise _invalid(f"control record key of version {version}")
    return int(kind)


def control_key(kind: int) -> bytes:
    """The key of a control record."""
    return _CONTROL_KEY.pack(0, kind)


def build_marker(marker: Marker, timestamp: int) -> bytes:
    """The control batch that ends a transaction."""
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(control_key(kind), value, timestamp)],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def marker_of(buf: BytesLike) -> Marker | None:
    """The marker in the control batch at the start of `buf`; None for other control records.

    Raises KafkaError INVALID_RECORD if it is neither.
    """
    header = parse_header(buf)
    record = next(iter_records(buf), None)
    if record is None:  # compaction keeps the empty batch to preserve the producer's state
        return None
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise _invalid("a marker without its coordinator's epoch")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return Marker(header.producer_id, header.producer_epoch, kind == ControlType.COMMIT, coordinator_epoch)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: int = CompressionType.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    last_offset_delta: int | None = None,
) -> bytes:
    """One batch with `records`.

    `last_offset_delta` defaults to that of the last record: compaction keeps the original, and an empty batch that only
    carries an offset range has no record. `append_time` is the batch's timestamp under LOG_APPEND_TIME.
    """
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    max_timestamp = NO_TIMESTAMP
    body = bytearray()
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset < 0 else record.offset - base_offset
        if record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        body += encode_record(record, record.timestamp - base_timestamp, delta)
    if last_offset_delta is None:
        if not records:
            raise ValueError("an empty batch needs last_offset_delta")
        last_offset_delta = delta
    attributes = compression
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
        max_timestamp = append_time
    if is_transactional:
        attributes |= _TRANSACTIONAL_BIT
    if is_control:
        attributes |= _CONTROL_BIT
    return assemble_batch(
        body,
        records_count=len(records),
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        attributes=attributes,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
    )


def encode_record(record: Record, timestamp_delta: int, offset_delta: int) -> bytearray:
    """A record as stored in a batch, with its length first. The deltas are to the batch's base timestamp and offset."""
    content = bytearray(1)  # attributes: unused
    write_varint(content, timestamp_delta)
    write_varint(content, offset_delta)
    _write_blob(content, record.key)
    _write_blob(content, record.value)
    write_headers(content, record.headers)
    out = bytearray()
    write_varint(out, len(content))
    out += content
    return out


def write_headers(out: bytearray, headers: Sequence[tuple[str, bytes | None]]) -> None:
    """The headers of a record, as stored at its end."""
    write_varint(out, len(headers))
    for name, value in headers:
        _write_blob(out, name.encode())
        _write_blob(out, value)


def assemble_batch(
    records: BytesLike,
    *,
    records_count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    """One batch of consecutive encoded records. They are compressed with the codec that `attributes` name."""
    codec = attributes & _CODEC_MASK
    payload = compress(codec, records, level) if codec else records
    out = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        out,
        0,
        base_offset,
        _MIN_LENGTH + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    out += payload
    seal(out)
    return bytes(out)


def seal(buf: bytearray | memoryview) -> None:
    """Set the CRC of the batch that fills `buf`."""
    with memoryview(buf) as view:
        _CRC.pack_into(buf, _CRC_AT, crc32c(view[_ATTRIBUTES_AT:]))


def with_append_time(header: BatchHeader, buf: BytesLike, base_offset: int, leader_epoch: int, now_ms: int) -> bytes:
    """A new 61-byte header for the batch in `buf`, with this `base_offset`, and `now_ms` as the time of all records."""
    out = bytearray(
        HEADER.pack(
            base_offset,
            header.batch_length,
            leader_epoch,
            MAGIC,
            0,
            header.attributes | TIMESTAMP_TYPE_BIT,
            header.last_offset_delta,
            header.base_timestamp,
            now_ms,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.records_count,
        )
    )
    with memoryview(buf) as view:
        _CRC.pack_into(out, _CRC_AT, crc32c(view[HEADER_SIZE : header.size_in_bytes], crc32c(out[_ATTRIBUTES_AT:])))
    return bytes(out)


def with_max_timestamp(buf: BytesLike, max_timestamp: int) -> bytes:
    """A copy of the batch with another maximum timestamp."""
    out = bytearray(buf)
    _TIMESTAMP.pack_into(out, _MAX_TIMESTAMP_AT, max_timestamp)
    seal(out)
    return bytes(out)


def repack(header: BatchHeader, records: BytesLike, codec: int, level: int | None = None) -> bytes:
    """The batch with this header and these decompressed records, compressed with another codec."""
    return assemble_batch(
        records,
        records_count=header.records_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        attributes=(header.attributes & ~_CODEC_MASK) | codec,
        level=level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
    )


def find_time(
    buf: BytesLike, wanted: int, lo: int, hi: int, *, max_decompressed: int = MAX_DECOMPRESSED
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from offset `lo` to `hi` that is not older than `wanted`.

    The batch is at the start of `buf`. Raises KafkaError INVALID_RECORD if it is damaged.
    """
    header, data = records_data(buf, max_decompressed)
    try:
        return walk.find_time(
            data,
            header.records_count,
            header.base_timestamp,
            header.base_offset,
            header.max_timestamp,
            bool(header.attributes & TIMESTAMP_TYPE_BIT),
            wanted,
            lo,
            hi,
        )
    except ValueError as error:
        raise _invalid(str(error)) from None


def records_data(buf: BytesLike, max_decompressed: int = MAX_DECOMPRESSED) -> tuple[BatchHeader, bytes]:
    """The header of the batch at the start of `buf`, and its records, decompressed. Raises KafkaError."""
    header = parse_header(buf)
    size = header.size_in_bytes
    if header.magic != MAGIC or not HEADER_SIZE <= size <= len(buf):
        raise _corrupt(f"format version {header.magic}, batch length {header.batch_length} in {len(buf)} bytes")
    if header.records_count < 0:
        raise _invalid(f"record count {header.records_count}")
    view = memoryview(buf)[HEADER_SIZE:size]
    if header.records_count == 0 and not view:
        return header, b""
    return header, decompress(header.attributes & _CODEC_MASK, view, max_decompressed)


def _write_blob(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1
    else:
        write_varint(out, len(value))
        out += value


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
