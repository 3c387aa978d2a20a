"""The rows of a stream's source with event time and watermark; all of them are counted.

Invariant: every record with a usable time moves the watermark, and so does every mark, whether or not it gives a
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.streams.windows.panes import STANDS_FOR
from barnabas.wire.streams.clauses import RECORD_TIME, Clauses

#: A column of the source that is null except in marks. A mark moves the watermark, and is not a record.
CLOSE = "__close"
#: A column of the source for windows by the clock: when the record is read.
CLOCK = "__clock"
#: The counts of each batch: records, and those without a time, too far ahead, or with a value that does not fit.
OBSERVED = "barnabas"
RECORDS, NO_TIME, AHEAD, MALFORMED = "records", "no_time", "ahead", "malformed"
#: The event time.
TIME = "__event_time"


class Looked(NamedTuple):
    """What is checked in each row: its event time, the record's own time, and whether its value does not fit."""

    time: Column
    own_time: Column
    malformed: Column


def is_kept(looked: Looked, clauses: Clauses) -> Column:
    """Whether a row is a record with a valid value and a valid time."""
    return F.col(CLOSE).isNull() & ~looked.malformed & ~_is_ahead(looked, clauses) & looked.time.isNotNull()


def _is_ahead(looked: Looked, clauses: Clauses) -> Column:
    """Whether a record's time is too far in the future. The broker limits a record's own time."""
    if clauses.time == RECORD_TIME:
        return F.lit(False)
    limit = F.unix_millis(looked.own_time) + F.lit(clauses.max_ahead_ms)
    return F.col(CLOSE).isNull() & F.coalesce(F.unix_millis(looked.time) > limit, looked.time.isNotNull())


def watched(
    frame: DataFrame, looked: Looked, clauses: Clauses, given: Column, kept: Mapping[str, Column] | None = None
) -> DataFrame:
    """A row for each struct in the array `given`: its columns, those to keep, and the event time with its watermark."""
    kept = kept or {}
    record = F.col(CLOSE).isNull()
    ahead = _is_ahead(looked, clauses)
    stands_for = F.col(STANDS_FOR) if STANDS_FOR in frame.columns else F.lit(1)
    rows = frame.select(
        F.when(record, F.when(~looked.malformed & ~ahead, looked.time)).otherwise(F.col(CLOSE)).alias(TIME),
        given.alias("__given"),
        *(column.alias(name) for name, column in kept.items()),
        F.when(record, F.coalesce(stands_for, F.lit(1))).alias("__records"),
        looked.malformed.alias("__malformed"),
        (record & ~looked.malformed & looked.time.isNull()).alias("__no_time"),
        ahead.alias("__ahead"),
    )
    if frame.isStreaming:
        rows = rows.observe(
            OBSERVED,
            F.coalesce(F.sum("__records"), F.lit(0)).alias(RECORDS),
            F.count_if(F.col("__no_time")).alias(NO_TIME),
            F.count_if(F.col("__ahead")).alias(AHEAD),
            F.count_if(F.col("__malformed")).alias(MALFORMED),
        )
        rows = rows.withWatermark(TIME, f"{clauses.watermark_ms} milliseconds")
    # Marks, and records that WHERE leaves out, move the watermark. Spark would move a filter below it, except for one
    # on generated rows.
    return rows.select(TIME, *kept, F.inline("__given"))
