"""From rows to whole batches: where each batch begins and ends, compression, header and CRC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import pyarrow as pa

from barnabas.streams.encode.columns import Columns, columns_of
from barnabas.streams.encode.python import writer_in_python
from barnabas.streams.encode.written import Writer
from barnabas.streams.native import warn_not_built
from barnabas.wire.batch import HEADER_SIZE, NO_PRODUCER_ID, assemble_batch
from barnabas.wire.compression import CompressionType

_MAX_INT32 = 2**31 - 1
TRANSACTIONAL = 0x10  # a flag in a batch's attributes
_LEADER_EPOCH = 0  # the broker sets it

Backend = Callable[[Columns], Writer]


class Encoded(NamedTuple):
    """One record batch, and the offsets that it covers."""

    data: bytes  # magic 2, with a valid CRC32C
    base_offset: int  # the first covered offset
    next_offset: int  # the offset after the last covered one
    count: int  # type: ignore[assignment]  # records in it; hides a method of tuples that nobody needs


@cache
def backend() -> Backend:
    """The C encoder if it was built, otherwise the one in Python. The latter is logged once."""
    try:
        from barnabas.streams.encode.native import writer_in_c
    except ImportError:
        warn_not_built("record encoder", "in Python")
        return writer_in_python
    return writer_in_c


def encode(
    rows: pa.RecordBatch,
    *,
    base_offset: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    compression: CompressionType = CompressionType.NONE,
    max_bytes: int = 1 << 20,
    transaction_sequence: int | None = None,
) -> Iterator[Encoded]:
    """Batches with the records of `rows`, in order and without gaps between the batches, starting at `base_offset`.

    `rows` has the columns `offset` (int64, strictly increasing, from `base_offset` on), `timestamp` (ms or us; null is
    no timestamp), `key`, `value` (binary or string) and `headers` (list<struct<key: string, value: binary>>). All
    except `offset` may be missing or null, and there may be other columns. A batch has at most `max_bytes` before
    compression, including its header, or a single record. A gap in the offsets that is too long for a batch is covered
    by empty batches. With `transaction_sequence` the batches belong to a transaction, and the first record has this
    sequence number.

    Raises ValueError for invalid rows, before the first batch, and for a record that no batch can hold.
    """
    columns = columns_of(rows, base_offset)
    transactional = transaction_sequence is not None
    sequence = -1 if transaction_sequence is None else transaction_sequence
    write = backend()(columns)
    row = 0
    while row < rows.num_rows:
        offset, timestamp = columns.offset[row].as_py(), columns.timestamp[row].as_py()
        while offset - base_offset > _MAX_INT32:
            yield empty(
                base_offset,
                base_offset + _MAX_INT32,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                timestamp_ms=timestamp,
            )
            base_offset += _MAX_INT32
        records, end, max_timestamp = write(row, base_offset, min(max_bytes, _MAX_INT32) - HEADER_SIZE)
        if len(records) > _MAX_INT32 - HEADER_SIZE:
            raise ValueError(f"a record of {len(records)} bytes at offset {offset}: less than 2 GiB fit a batch")
        last = columns.offset[end - 1].as_py()
        data = assemble_batch(
            records,
            records_count=end - row,
            base_offset=base_offset,
            last_offset_delta=last - base_offset,
            base_timestamp=timestamp,
            max_timestamp=max_timestamp,
            attributes=compression | (TRANSACTIONAL if transactional else 0),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            leader_epoch=_LEADER_EPOCH,
        )
        yield Encoded(data, base_offset, last + 1, end - row)
        if transactional:
            sequence += end - row
        row, base_offset = end, last + 1


def empty(
    base_offset: int,
    next_offset: int,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    timestamp_ms: int,
) -> Encoded:
    """A batch without records that covers `base_offset` to `next_offset - 1`, as Kafka's log cleaner keeps them.
    Raises ValueError for a range without offsets, or with more than 2^31 - 1.
    """
    if base_offset < 0 or not 0 < next_offset - base_offset <= _MAX_INT32:
        raise ValueError(f"no batch covers the offsets from {base_offset} to before {next_offset}: 1 to 2^31 - 1 fit")
    data = assemble_batch(
        b"",
        records_count=0,
        base_offset=base_offset,
        last_offset_delta=next_offset - 1 - base_offset,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        attributes=CompressionType.NONE,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=_LEADER_EPOCH,
    )
    return Encoded(data, base_offset, next_offset, 0)
