"""Replacing segments of a log: for compaction, and to set damage aside.

Both work in the same way: `begin` gives a job that runs in a thread on files of its own, and `end`, on the event loop,
puts its files in the place of the old segments. Only one of them runs at a time. Readers of an old segment can still
read it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from barnabas.storage.compaction import LocalCompaction, StoppedError, active_is_overdue, cleanable, discard, need
from barnabas.storage.compaction_terms import CompactionLimits, Need
from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import CorruptIndexError, CorruptLogError, StorageError
from barnabas.storage.local_log import LocalLog, Opened
from barnabas.storage.recovery import list_segments
from barnabas.storage.repair import RepairJob
from barnabas.storage.replacement import HalfReplacedError
from barnabas.storage.segment import Segment
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.storage.vnode import CompactionJob


class ReplacingLog(LocalLog):
    """See the module."""

    __slots__ = ()

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put new segments in the place of old ones: see `Log.replace`. Raises ValueError, StorageError.

        If a transient error interrupts it midway, the next use of the log finishes it.
        """
        opened = self._opened or self._load()
        if opened.marks.segment in old:
            raise ValueError("the old segments are not all below the high watermark")
        try:
            self._replace(opened, old, new)
        except OSError as error:
            raise self.refused("replace segments", error) from error

    def _replace(self, opened: Opened, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        opened.reader.forget()
        try:
            opened.log.replace(old, new)
        except HalfReplacedError as error:
            self._release()
            self.needs_recovery = True
            raise error.cause from error

    # -- compaction --------------------------------------------------------------------------------------------------

    def may_need_compaction(self) -> bool:
        if not self._config.compacts:
            return False
        if self._opened is not None:
            return True
        try:
            segments = list_segments(self._io, self.directory)
        except OSError:
            return False
        older = len(segments) > 1 and segments[-1].base_offset > self.cleaned_to
        return older or (self._config.max_compaction_lag_ms < LONG_MAX and any(one.size for one in segments))

    def compaction_need(self, now_ms: int) -> Need:
        if not self._config.compacts:
            return Need(0, 0, False)
        opened = self._opened or self._load()
        log = opened.log
        self._leave_old_segment(opened)
        with self._reading():
            found = need(log, cleanable(log, opened.marks, self.cleaned_to, now_ms), now_ms)
        if active_is_overdue(log, now_ms):
            found = Need(found.clean_bytes, found.dirty_bytes + log.active.size, True)
        return found

    def begin_compaction(self, now_ms: int, limits: CompactionLimits) -> LocalCompaction | None:
        """See `Vnode`. If `max.compaction.lag.ms` requires cleaning the active segment, that is rolled first."""
        if not self._config.compacts:
            return None
        opened = self._opened or self._load()
        if self._compacting is not None or self._repairing is not None:
            return None
        if active_is_overdue(opened.log, now_ms):
            self.roll(now_ms)
        self._leave_old_segment(opened)
        with self._reading():
            found = cleanable(opened.log, opened.marks, self.cleaned_to, now_ms)
            if found.first_dirty >= found.upto:
                return None
            self._compacting = LocalCompaction(opened.log, found, limits, now_ms)
        return self._begun(self._compacting)

    def end_compaction(self, job: CompactionJob, error: Exception | None = None) -> bool:
        assert isinstance(job, LocalCompaction)
        goes_on = False
        try:
            goes_on = self._end_compaction(job, error)
        finally:
            if not goes_on:
                self._ended()
        return goes_on

    def _end_compaction(self, job: LocalCompaction, error: Exception | None) -> bool:
        opened = self._opened
        if self._compacting is not job or opened is None:  # gone offline, deleted or resigned: the next owner sweeps
            return False
        goes_on = False
        try:
            goes_on = error is None and job.made is not None and self._place(opened, job)
        finally:
            if not goes_on:
                self._compacting = None
                if self._opened is not None and (doomed := discard(self._io, job)):
                    opened.log.discard(doomed)
        if not goes_on:
            self._finish(opened, job, error)
        return goes_on

    def _place(self, opened: Opened, job: LocalCompaction) -> bool:
        """Put the new segments in place if the log still has the old ones; whether it had."""
        assert job.made is not None
        old, new = job.made
        if not set(old) <= set(opened.log.segments):
            return False
        try:
            self._replace(opened, old, new)
        except OSError as error:
            raise self.refused("replace segments", error) from error
        job.placed()
        for segment in new[:-1]:
            segment.forget_indexes()
        return True

    def _finish(self, opened: Opened, job: LocalCompaction, error: Exception | None) -> None:
        """End a compaction, with or without success. Raises StorageError."""
        if job.is_done:
            self.cleaned_to = job.figures.to_offset
            return
        if error is None or isinstance(error, StoppedError) or not job.segments <= set(opened.log.segments):
            return
        if isinstance(error, CorruptIndexError):
            with self._reading():
                self._rebuild_aborted(opened, error)
        elif isinstance(error, CorruptLogError):
            raise self._met_damage(error)
        raise StorageError(f"{self.topic}-{self.partition}: compaction is not possible now: {error}") from error

    # -- damage ------------------------------------------------------------------------------------------------------

    def _failed(self, action: str, error: OSError | CorruptLogError) -> StorageError:
        """The exception to raise for an error of a part."""
        return self._met_damage(error) if isinstance(error, CorruptLogError) else self.refused(action, error)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Errors of a read become StorageError."""
        try:
            yield
        except (OSError, CorruptLogError) as error:
            raise self._failed("read", error) from error

    def _rebuild_aborted(self, opened: Opened, error: CorruptIndexError) -> None:
        self.tell_rebuilt(error.segment.path(TXN_INDEX_SUFFIX), error)
        opened.log.rebuild_aborted(error.segment)

    def _met_damage(self, error: CorruptLogError) -> StorageError:
        """Have damaged bytes of a segment set aside. Gives the exception to raise meanwhile."""
        segments = self._opened.log.segments if self._opened is not None else []
        for segment in [error.segment] if error.segment is not None else segments:
            if self.on_damage is None:
                self.repair(segment)
            elif segment is not self._repairing:
                self.on_damage(self, segment)
        return StorageError(f"{self.topic}-{self.partition} has damage that is being set aside: {error}")

    def found_damage(self, offset: int, error: Exception) -> StorageError:
        segment = (self._opened or self._load()).log.segment_of(offset)
        return self._met_damage(CorruptLogError(f"{segment.path()} at offset {offset}: {error}", segment))

    @contextlib.contextmanager
    def mending_on_the_spot(self) -> Iterator[None]:
        repairs, self.on_damage = self.on_damage, None
        try:
            yield
        finally:
            self.on_damage = repairs

    def begin_repair(self, segment: Segment) -> RepairJob | None:
        """A job that repairs a segment; None if it is no longer there. Ends with `end_repair`.

        If the segment is active, it is rolled and flushed first. Raises StorageError.
        """
        opened = self._opened
        if opened is None or segment not in opened.log.segments or self._repairing is not None:
            return None
        if self._compacting is not None:  # it ends soon; the next reader of the damage starts the repair
            self._compacting.stop()
            return None
        log, marks = opened.log, opened.marks
        if segment is log.active:
            self.roll(segment.created_ms)
            if segment is log.active:
                return None
        following = log.following(segment)
        if marks.high_watermark <= following:
            self.flush()
            self._leave_old_segment(opened)
        if segment is marks.segment:
            return None
        self._repairing = segment
        return self._begun(RepairJob(self._io, segment, following, self._config, self._tell))

    def _leave_old_segment(self, opened: Opened) -> None:
        """Move the high watermark's position from the end of a segment to the beginning of the next one."""
        marks, active = opened.marks, opened.log.active
        if marks.high_watermark == active.base_offset:
            marks.advance(marks.high_watermark, active, 0)

    def end_repair(self, job: RepairJob, error: OSError | None = None) -> bool:
        """`job` has run: readers get the repaired segment. With an error all is as before, and this gives false."""
        try:
            return self._end_repair(job, error)
        finally:
            self._ended()

    def _end_repair(self, job: RepairJob, error: OSError | None) -> bool:
        self._repairing = None
        opened = self._opened
        if opened is None or job.damaged not in opened.log.segments:
            return True
        try:
            if error is not None:
                raise error
            if job.mended.size:
                self._replace(opened, [job.damaged], [job.mended])
            else:
                opened.reader.forget()
                job.damaged.forget_indexes()
        except OSError as caught:
            self._tell(
                "log.not.mended",
                topic=self.topic,
                partition=self.partition,
                file=os.path.basename(job.damaged.path()),
                reason=caught,
            )
            return False
        return True

    def repair(self, segment: Segment) -> None:
        """Repair a segment on the spot, for callers without an event loop. Raises StorageError."""
        job = self.begin_repair(segment)
        if job is None:
            return
        error: OSError | None = None
        try:
            job.run()
        except OSError as caught:
            error = caught
        self.end_repair(job, error)
