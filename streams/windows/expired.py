"""Recalculates closed windows from the log when late records arrive for them (IGNORE EXPIRED 0).

    batch -> its own records, read again -> the windows of theirs that were closed before the batch
    the log, from the first record of these windows to the end of the batch -> the same windows -> their results

Spark leaves a record out of a window that was closed before the batch. The same rule finds these windows here, so Spark
has no result for any of them in this batch. The results depend on the batch's offsets and on what the log still holds:
a batch that runs twice has the same results.

Invariant: if older records were deleted, a window that begins before the oldest record in the log is left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from barnabas.streams.wal import LogDir, Planner, offset_at
from barnabas.streams.windows import batches
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.frames import log_frame
from barnabas.streams.windows.plan import Logged, Member
from barnabas.streams.windows.slots import Slot
from barnabas.streams.windows.source import ends_of, first_time
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.clauses import RECORD_TIME
from barnabas.wire.streams.plan import StreamPlan

_WINDOW = ["__stream", "__w", "__keys"]


class Expired:
    """Recalculates expired windows for the streams of one query, which begins in its source where `plan` says."""

    def __init__(
        self,
        data_dir: str,
        server: str,
        plan: StreamPlan,
        folder: Folder,
        members: Sequence[Member],
        slots: Sequence[Slot],
    ) -> None:
        self._data_dir, self._server, self._plan, self._checkpoint = data_dir, server, plan, folder.checkpoint
        self._members, self._slots = members, slots
        clauses = members[0].clauses
        self._expired_us = clauses.expired_ms * 1000
        #: How far a record's event time may be after its own time.
        self._ahead_ms = 0 if clauses.time == RECORD_TIME else clauses.max_ahead_ms

    def results(self, spark: SparkSession, batch: int) -> DataFrame | None:
        """The results of the windows for which a batch's records came too late; None if there are none.

        Raises OSError, WalError, QueryError, and Spark's errors.
        """
        if batch < 1:
            return None
        before, now = (batches.text_of(self._checkpoint, number) for number in (batch - 1, batch))
        closed_ms = batches.watermark_ms(before)
        starts, ends = (ends_of(batches.source_offset(text)) for text in (before, now))
        if not closed_ms or starts == ends:
            return None
        starts = {key: starts.get(key, 0) for key in ends}
        log_dir = LogDir(self._data_dir, bootstrap=self._server)
        held = log_dir.ranges(ends)
        since = self._whole_since(log_dir, held)
        if since is None:
            return None
        came = self._over(spark, starts, ends).windows.where(self._is_expired(closed_ms, since))
        (least,) = came.agg(F.min("__start")).collect()[0]
        if least is None:
            return None
        begins = {
            key: self._first(log_dir, key, least // 1000 - self._ahead_ms, held[key][0], ends[key]) for key in ends
        }
        logged = self._over(spark, begins, ends)
        return logged.results(logged.windows.join(came.select(*_WINDOW).distinct(), _WINDOW, "left_semi"))

    def _over(
        self, spark: SparkSession, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Logged:
        frame = log_frame(spark, self._data_dir, self._server, self._plan, starts, ends)
        return Logged(spark, self._members, self._slots, frame, self._plan.values)

    def _is_expired(self, closed_ms: int, since_ms: int) -> Column:
        """Whether a window was closed, not too long ago, and begins after the log became complete."""
        end, closed_us = F.unix_micros("__w"), closed_ms * 1000
        return (end <= closed_us) & (end > closed_us - self._expired_us) & (F.col("__start") >= since_ms * 1000)

    def _whole_since(self, log_dir: LogDir, held: Mapping[TopicPartition, tuple[int, int]]) -> int | None:
        """The event time (ms since 1970) from which the log holds all that the query has read; None if it is empty."""
        begins, since = self._plan.begins_at, 0
        for key, (first, end) in held.items():
            if first > begins.get(key, 0):
                gone = first_time(Planner(log_dir, fail_on_data_loss=False), key, first, end)
                if gone is None:
                    return None
                since = max(since, gone + 1 + self._ahead_ms)
        return since

    def _first(self, log_dir: LogDir, key: TopicPartition, since_ms: int, lo: int, hi: int) -> int:
        """The offset of the first record that may have an event time from then on."""
        lo = max(lo, self._plan.begins_at.get(key, 0))
        found = offset_at(log_dir, key, since_ms, lo, hi) if lo < hi else None
        return hi if found is None else found
