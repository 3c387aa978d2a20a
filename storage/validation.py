"""Validation of a producer's batch before it is written, as in Kafka (LogValidator there).

bytes -> size -> header and CRC -> decompressed records, each walked -> rules of the topic -> bytes as they are written

It touches no vnode, so a batch that takes long may be validated in a thread. The time for one batch is bounded by
`max.message.bytes`, by the size to which it may decompress, and by `MAX_RECORDS`.

A header's maximum timestamp is corrected from the records: older Go clients send -1, and look-ups by time, retention
and the roll of segments depend on it. Everything else in a header must be right.
"""

from __future__ import annotations

import threading

import msgspec

from barnabas.storage.config import LogConfig
from barnabas.wire import batch, walk
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import BatchHeader
from barnabas.wire.compression import TooLarge, decompress, decompress_into
from barnabas.wire.errors import ErrorCode, KafkaError

# A batch with more records is refused. Kafka has no such limit; an uncompressed batch of 1 MiB has at most 150,000
# records.
MAX_RECORDS = 500_000
# An answer names at most this many of the records that break a rule.
MOST_RECORD_ERRORS = 1000
MIN_DECOMPRESSED = 16 << 20
MAX_RATIO = 8
# How much one validation may do on the event loop: about 2 ms. A batch that needs more goes to a thread.
LIGHT_BYTES = 2 << 20
LIGHT_COMPRESSED = 256 << 10
LIGHT_DECOMPRESSED = 512 << 10
LIGHT_COMPRESSING = 64 << 10
LIGHT_RECORDS_IN_PYTHON = 1000

# The size of the buffer to which a thread decompresses most batches: reused memory costs no page faults.
SCRATCH_BYTES = 2 << 20


class _Scratch(threading.local):
    """One buffer per thread. A batch no longer needs it when the next one comes."""

    def __init__(self) -> None:
        self.light = bytearray(LIGHT_DECOMPRESSED)
        self.heavy = bytearray()

    def buffer(self, light: bool) -> bytearray:
        if light:
            return self.light
        if not self.heavy:
            self.heavy = bytearray(SCRATCH_BYTES)
        return self.heavy


_scratch = _Scratch()
_LEAST, _MOST = -(2**63), 2**63 - 1
_CODEC = 0x07
_LOG_APPEND_TIME = 0x08
_CONTROL = 0x20
_DELETE_HORIZON = 0x40
_SPECIAL = _LOG_APPEND_TIME | _CONTROL | _DELETE_HORIZON


class TooHeavy(Exception):
    """The validation would take too long here; nothing has been decided."""


class RejectedRecords(KafkaError):
    """Some records of a batch break a rule, so none of the batch is written."""

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        #: (index in the batch, why), for the first `MOST_RECORD_ERRORS`.
        self.records = records


class Rules(msgspec.Struct, frozen=True):
    """The part of a topic's configuration that batches must obey."""

    max_message_bytes: int
    codec: int | None
    compression_level: int | None
    stamps: bool
    keyed: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, config: LogConfig) -> Rules:
        return cls(
            max_message_bytes=config.max_message_bytes,
            codec=config.codec,
            compression_level=config.compression_level,
            stamps=config.message_timestamp_type == "LogAppendTime",
            keyed=config.compacts,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=min(config.message_timestamp_after_max_ms, _MOST // 2),  # the sum with a time fits 64 bits
        )

    @property
    def max_decompressed(self) -> int:
        """The most bytes to which a batch may decompress: generous for text, and a bomb still costs little work."""
        return min(max(MIN_DECOMPRESSED, MAX_RATIO * self.max_message_bytes), batch.MAX_DECOMPRESSED)


class Valid(msgspec.Struct, frozen=True, gc=False):
    """A batch that may be written, except for its base offset and leader epoch."""

    header: BatchHeader
    data: BytesLike


def check_size(size: int, rules: Rules, when: str = "") -> None:
    """Raises KafkaError MESSAGE_TOO_LARGE."""
    if size > rules.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{size} bytes{when} in a topic with max.message.bytes={rules.max_message_bytes}",
        )


def validate(data: BytesLike, rules: Rules, now_ms: int, *, light: bool = False) -> Valid:
    """Validate a batch; gives it as it will be written.

    Raises KafkaError: MESSAGE_TOO_LARGE, CORRUPT_MESSAGE (length, CRC, compressed data), INVALID_RECORD,
    INVALID_TIMESTAMP; the last two as `RejectedRecords` if records break a rule of the topic. With `light` it raises
    TooHeavy instead of holding up an event loop.
    """
    size = len(data)
    check_size(size, rules)
    if light and size > LIGHT_BYTES:
        raise TooHeavy
    header = batch.validate(data)
    attributes = header.attributes
    if attributes & _SPECIAL or header.base_offset or header.size_in_bytes != size:
        _check_header(header, size, rules)
    if header.records_count > MAX_RECORDS:
        raise _invalid(f"{header.records_count} records; a batch has at most {MAX_RECORDS}")
    codec = attributes & _CODEC
    packs = rules.codec is not None and rules.codec != codec
    records, start = data, batch.HEADER_SIZE
    if codec:
        records, start = _decompressed(codec, memoryview(data)[start:], rules, light), 0
    if light and (
        (packs and len(records) > LIGHT_COMPRESSING)
        or (not walk.NATIVE and header.records_count > LIGHT_RECORDS_IN_PYTHON)
    ):
        raise TooHeavy
    oldest, newest = (_LEAST, _MOST) if rules.stamps else (now_ms - rules.before_max_ms, now_ms + rules.after_max_ms)
    try:
        newest_seen, listed, bad = walk.check(
            records, start, header.records_count, header.base_timestamp, oldest, newest, rules.keyed, MOST_RECORD_ERRORS
        )
    except ValueError as error:
        raise _invalid(str(error)) from None
    if bad:
        raise _rejected(listed, bad, oldest, newest)
    if packs:
        assert rules.codec is not None
        data = batch.repack(header, memoryview(records)[start:], rules.codec, rules.compression_level)
        check_size(len(data), rules, " after recompression")
        header = batch.parse_header(data)
    if newest_seen != header.max_timestamp and not rules.stamps:
        data = batch.with_max_timestamp(data, newest_seen)
        header = batch.parse_header(data)
    return Valid(header, data)


def _check_header(header: BatchHeader, size: int, rules: Rules) -> None:
    attributes = header.attributes
    if header.size_in_bytes != size:
        raise _invalid(f"{size - header.size_in_bytes} bytes after the batch: a partition takes exactly one")
    if header.base_offset:
        raise _invalid(f"base offset {header.base_offset}: a producer's batch begins at 0")
    if attributes & (_CONTROL | _DELETE_HORIZON):
        raise _invalid("a producer may not send a control batch, or a delete horizon")
    if attributes & _LOG_APPEND_TIME and not rules.stamps:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")


def _decompressed(codec: int, body: memoryview, rules: Rules, light: bool) -> BytesLike:
    if light and len(body) > LIGHT_COMPRESSED:
        raise TooHeavy
    buffer = _scratch.buffer(light)
    try:
        size = decompress_into(codec, body, buffer)
    except TooLarge:
        if light:
            raise TooHeavy from None
        return decompress(codec, body, rules.max_decompressed)
    return memoryview(buffer)[:size]


def _rejected(listed: tuple[tuple[int, int], ...], bad: int, oldest: int, newest: int) -> RejectedRecords:
    reasons = {
        walk.NO_KEY: "a record of a compacted topic needs a key",
        walk.BAD_TIMESTAMP: f"the timestamp is not within {oldest} to {newest}",
    }
    only_times = all(reason == walk.BAD_TIMESTAMP for _, reason in listed)
    index, reason = listed[0]
    return RejectedRecords(
        ErrorCode.INVALID_TIMESTAMP if only_times else ErrorCode.INVALID_RECORD,
        f"{bad} records of the batch are refused; the first is record {index}: {reasons[reason]}",
        [(at, reasons[why]) for at, why in listed],
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
