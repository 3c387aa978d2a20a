"""The part of decoding that handles whole batches: CRC, what to skip, decompression."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.wire import batch
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import HEADER_SIZE, MAX_DECOMPRESSED, BatchHeader
from barnabas.wire.compression import CompressionType, TooLarge, decompress
from barnabas.wire.errors import ErrorCode, KafkaError

_MAX_OFFSET = 2**63 - 1


class Aborted(NamedTuple):
    """An aborted transaction: its producer, and the first and last offset (inclusive) that may belong to it."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedSet:
    """The aborted transactions, for checking each batch."""

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[Aborted] = ()) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for one in sorted(aborted, key=lambda each: each.first_offset):  # those of one producer do not overlap
            self._by_producer.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))

    def covers(self, producer_id: int, offset: int) -> bool:
        """Whether what the producer wrote at this offset was aborted."""
        ranges = self._by_producer.get(producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges, (offset, _MAX_OFFSET)) - 1
        return at >= 0 and offset <= ranges[at][1]


NONE_ABORTED = AbortedSet()


class Records(NamedTuple):
    """The decompressed records of one batch. Those with `lo <= offset < hi` are wanted."""

    header: BatchHeader
    data: BytesLike
    lo: int
    hi: int


def open_batch(
    buf: BytesLike,
    position: int,
    *,
    lo: int = 0,
    hi: int = _MAX_OFFSET,
    aborted: AbortedSet = NONE_ABORTED,
    most: int = MAX_DECOMPRESSED,
) -> tuple[Records | None, int]:
    """The records of the batch at `position` of `buf`, and the position in bytes after it.

    The records are None if nothing of the batch is wanted: it is outside [lo, hi), a control batch, or aborted. The CRC
    is checked even then, because the fields that decide this are covered by it. Raises KafkaError: CORRUPT_MESSAGE,
    INVALID_RECORD, or `TooLarge` for records of more than `most` bytes.
    """
    header = batch.check(buf, position)
    end = position + header.size_in_bytes
    if header.last_offset < lo or header.base_offset >= hi:
        return None, end
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset > _MAX_OFFSET:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"a batch with offsets {header.base_offset} to {header.last_offset}")
    if header.is_control or (header.is_transactional and aborted.covers(header.producer_id, header.base_offset)):
        return None, end
    if header.records_count < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"record count {header.records_count}")
    view = memoryview(buf)[position + HEADER_SIZE : end]
    if header.records_count == 0 and not view:
        return None, end
    if header.compression == CompressionType.NONE:
        if len(view) > most:
            raise TooLarge(most)
        return Records(header, view, lo, hi), end
    return Records(header, decompress(header.compression, view, most), lo, hi), end
