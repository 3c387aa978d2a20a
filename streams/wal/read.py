"""A split to Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from barnabas.storage.log_reader import OpenPlace, SegmentReader, opened
from barnabas.streams import decode
from barnabas.streams.decode import Aborted, AbortedSet, Records
from barnabas.streams.wal.errors import NewTopicError, TooMuchError, WalError
from barnabas.streams.wal.plan import Split, found_again
from barnabas.wire.batch import HEADER_SIZE, LOG_OVERHEAD, MAX_DECOMPRESSED, OFFSET_AND_LENGTH
from barnabas.wire.compression import TooLarge
from barnabas.wire.errors import KafkaError

#: The columns' names and types, in the order of Spark's Kafka connector.
COLUMNS: Mapping[str, pa.DataType] = {
    "key": decode.SCHEMA.field("key").type,
    "value": decode.SCHEMA.field("value").type,
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": decode.SCHEMA.field("offset").type,
    "timestamp": decode.SCHEMA.field("timestamp").type,
    "timestampType": decode.SCHEMA.field("timestampType").type,
    "headers": decode.SCHEMA.field("headers").type,
}
# Arrow batches: a new one begins after _BATCH_BYTES of records, and none is much larger than _MAX_BATCH_BYTES. A batch
# of _BATCH_BYTES stays in a core's cache from the decoder to the socket, and again from the socket to Spark's rows.
_BATCH_BYTES = 1 << 20
_MAX_BATCH_BYTES = 4 << 20
_READ_BYTES = 4 << 20


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of batches with these columns. Raises WalError for an unknown one."""
    if not columns:
        raise WalError("no column is requested: name at least one")
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise WalError(f"there is no column {unknown[0]}: a record has {', '.join(COLUMNS)}")
    return pa.schema([pa.field(name, COLUMNS[name]) for name in columns])


def read(
    split: Split, columns: Sequence[str], *, fail_on_data_loss: bool = True, most: int = MAX_DECOMPRESSED
) -> Iterator[pa.RecordBatch]:
    """The records of a split with the requested columns, in batches of about 1 MiB, at most 8 MiB or one record.

    Timestamps are in ms UTC. Raises DataLossError if the records are gone, unless told to skip them; TooMuchError for a
    batch that decompresses to more than `most` bytes; WalError for a damaged one.
    """
    schema = schema_of(columns)
    held: list[Records] = []
    size = 0
    try:
        for records in _records(split, fail_on_data_loss, most):
            held.append(records)
            size += len(records.data)
            if size >= _BATCH_BYTES:
                yield from _batches(split, held, schema)
                held, size = [], 0
        if held:
            yield from _batches(split, held, schema)
    except NewTopicError:
        if fail_on_data_loss:
            raise
    except TooLarge as error:
        if most < MAX_DECOMPRESSED:
            raise TooMuchError(str(error)) from None
        raise WalError(f"{_damaged(split)}: {error}") from None
    except KafkaError as error:
        raise WalError(f"{_damaged(split)}: {error}") from None


def _records(split: Split, fail_on_data_loss: bool, most: int) -> Iterator[Records]:
    """The batches of the split with wanted records. Raises DataLossError if some are gone."""
    aborted = AbortedSet(Aborted(*each) for each in split.aborted)
    planned = _as_planned(split)
    if planned is not None:
        yield from _records_of(planned, split, aborted, most)
        return
    for segment, part in found_again(split, fail_on_data_loss=fail_on_data_loss):
        yield from _records_of(segment, part, aborted, most)


def _as_planned(split: Split) -> OpenPlace | None:
    """The segment of a split; None if its file was replaced or is missing."""
    try:
        segment = opened(split.place)
    except FileNotFoundError:
        return None
    # The open file belongs to the current topic or to an earlier one.
    if split.topic_id and segment.topic_id() not in ("", split.topic_id):
        raise NewTopicError(split.topic, split.partition, f"offsets {split.lo} to {split.hi - 1} are gone")
    return segment if not split.identity or segment.is_still(split.identity) else None


def _records_of(segment: OpenPlace | SegmentReader, split: Split, aborted: AbortedSet, most: int) -> Iterator[Records]:
    position = split.start
    size = _READ_BYTES
    while position < split.end:
        data = segment.read(position, min(size, split.end - position))
        at = 0
        while at + HEADER_SIZE <= len(data):
            length = OFFSET_AND_LENGTH.unpack_from(data, at)[1] + LOG_OVERHEAD
            if at + length > len(data) and length <= split.end - position - at:
                break
            records, at = decode.open_batch(data, at, lo=split.lo, hi=split.hi, aborted=aborted, most=most)
            if records is not None:
                yield records
        if at == 0:
            size *= 2  # one batch is larger than what was read
            if len(data) < min(size // 2, split.end - position):
                raise WalError(f"{_damaged(split)}: it ends at byte {position + len(data)}")
        position += at


def _batches(split: Split, records: Sequence[Records], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    count, found = decode.decode(records, [name for name in schema.names if name in decode.SCHEMA.names])
    if not count:
        return
    if "topic" in schema.names:
        found["topic"] = pa.repeat(pa.scalar(split.topic), count)
    if "partition" in schema.names:
        found["partition"] = pa.repeat(pa.scalar(split.partition, pa.int32()), count)
    made = pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)
    parts = min(count, -(-made.nbytes // _MAX_BATCH_BYTES)) or 1
    rows = -(-count // parts)
    for start in range(0, count, rows):
        yield from _halved(made.slice(start, rows))


def _halved(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts that are not too large, if some records are much larger than others."""
    if rows.num_rows < 2 or rows.nbytes <= 2 * _MAX_BATCH_BYTES:
        yield rows
        return
    middle = rows.num_rows // 2
    yield from _halved(rows.slice(0, middle))
    yield from _halved(rows.slice(middle))


def _damaged(split: Split) -> str:
    return (
        f"{split.place} is damaged between bytes {split.start} and {split.end} "
        f"(`barnabas log dump {split.place}` shows where)"
    )
