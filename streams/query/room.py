"""How many rows go to the JVM at a time, so that they fit its memory, whatever they decompress to.

Spark gathers a fixed number of rows into each Arrow batch. The driver chooses that number from the size of the source's
batches on disk, but a client may compress a megabyte into a kilobyte. So a task estimates the memory of the rows that
it reads. If the rows of one Arrow batch may be too large together, the task gives up before the JVM gets them and
reports how many would fit; the tick is run again with that number. A single row that is too large ends its query.

Invariant: the rows of an Arrow batch, with all that queries make of them, take at most `MAX_BATCH_BYTES`, or are one
row of at most the bytes that the driver's heap allows.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from barnabas.streams.doors import warn_shut
from barnabas.streams.query.catalyst import SHUT, jvm_of
from barnabas.streams.query.errors import DenseRowsError, RowTooLargeError
from barnabas.streams.query.growth import Bound
from barnabas.streams.query.pace import MAX_ROWS
from barnabas.streams.query.tick import Tick
from barnabas.wire.batch import MAX_DECOMPRESSED

ARROW_BATCH_BYTES, MAX_RESULT_BYTES = 4 << 20, 32 << 20
MAX_BATCH_BYTES = 2 * MAX_RESULT_BYTES
_MIN_ROWS = 16
#: The part of the heap for one row with its results: some tasks run in parallel, and results are copied on their way.
#: The minimum is what a record of 1 MiB may grow to.
_HEAP_PART, _MIN_ROW_BYTES = 8, 72 << 20
_HEADER = 16


def with_room(tick: Tick, bounds: Sequence[Bound], heap: int, most_rows: int) -> Tick:
    """The tick with the number of rows in an Arrow batch, and the most bytes that these may have as read."""
    size = max(tick.bytes, 1) / max(tick.records, 1)
    rows = max(_MIN_ROWS, min(int(ARROW_BATCH_BYTES / size), MAX_ROWS))
    grows, adds = sum(bound.grows for bound in bounds), sum(bound.adds for bound in bounds)
    rows = max(1, min(rows, int(MAX_RESULT_BYTES / max(grows * size + adds, 1)), most_rows))
    limit = MAX_BATCH_BYTES if rows > 1 else max(_MIN_ROW_BYTES, heap // _HEAP_PART)
    return msgspec.structs.replace(tick, rows=rows, room=max(int((limit - rows * adds) / (1 + grows)), 1))


def heap_of(spark: SparkSession) -> int:
    """The bytes of heap for tasks: that of the JVM here, or of an executor."""
    context, jvm = spark.sparkContext, jvm_of(spark)
    if (context.master or "").startswith("local"):
        return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    memory = context.getConf().get("spark.executor.memory", "1g")
    try:
        return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(memory))
    except SHUT as error:
        warn_shut("how Spark tells an executor's memory", "a row may be as large as the least heap allows", error)
        return 0


class Room:
    """Weighs the rows of one task.

    Which rows share an Arrow batch depends on what queries leave out, so the largest ones may be together.
    """

    most_in_batch = MAX_DECOMPRESSED

    def __init__(self, tick: Tick) -> None:
        self._rows, self._room = tick.rows, tick.room
        self._largest: list[int] = []  # a heap of the largest rows, as many as fit in an Arrow batch
        self._total = 0

    def take(self, offsets: pa.Array, sizes: pa.Array) -> None:
        """Count rows of these sizes in bytes.

        Raises DenseRowsError if too many large ones may come together, RowTooLargeError for a single row that is too
        large.
        """
        small = self._room // (2 * self._rows)  # such rows take at most half of the room together
        if not len(sizes) or pc.max(sizes).as_py() <= small:
            return
        for size in sizes.filter(pc.greater(sizes, small)).to_pylist():
            self._total += size
            if len(self._largest) < self._rows:
                heapq.heappush(self._largest, size)
            else:
                self._total -= heapq.heappushpop(self._largest, size)
        if self._total + small * (self._rows - len(self._largest)) <= self._room:
            return
        largest = self._largest[0] if self._rows == 1 else max(self._largest)
        if self._rows > 1:
            raise DenseRowsError(max(1, min(self._rows // 2, self._room // largest)))
        at = offsets[pc.index(sizes, largest).as_py()].as_py()
        raise RowTooLargeError(
            f"the record at offset {at} takes {largest:,} bytes, and the results that the query may make of it more "
            "than there is memory for: make it again with fewer columns, or raise barnabas.streams.driver.memory"
        )


def sizes_of(records: pa.RecordBatch, each: int, weights: pa.Array | None) -> pa.Array:
    """The bytes of rows: those of the records' parts, `each` for the cells of the columns, plus `weights`."""
    total = pa.repeat(pa.scalar(each, pa.int64()), records.num_rows)
    for name in ("key", "value"):
        if name in records.schema.names:
            lengths = pc.binary_length(records.column(name)).cast(pa.int64())
            total = pc.add(total, lengths.fill_null(0))
    if "headers" in records.schema.names and records.column("headers").null_count < records.num_rows:
        total = pc.add(total, _of_headers(records.column("headers")))
    return total if weights is None else pc.add(total, weights)


def _of_headers(headers: pa.ListArray) -> pa.Array:
    pairs = headers.flatten().flatten()
    each = [pc.binary_length(part).cast(pa.int64()).fill_null(0) for part in pairs]
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(pc.add(pc.add(*each), _HEADER))])
    counts = pc.list_value_length(headers).cast(pa.int64()).fill_null(0)
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])
    at = sums.take(ends)
    return pc.subtract(at.slice(1), at.slice(0, len(at) - 1))
