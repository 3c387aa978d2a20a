"""The vnode whose log is in Kafka's files, in one folder of a local disk: appends, reads and deletions.

    appender -> log (segments, leader epochs, producers) <- reader, watermarks

`local_log` opens, flushes and closes the log and handles its errors; compaction and the repair of damaged segments are
in `replacing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from barnabas.storage.crc_check import CrcCheck
from barnabas.storage.errors import CorruptIndexError, CorruptLogError
from barnabas.storage.files import FileSlice
from barnabas.storage.local_log import Opened
from barnabas.storage.producer_state import Producer, ProducerState
from barnabas.storage.reader import Reader
from barnabas.storage.replacing import ReplacingLog
from barnabas.storage.retention import expired
from barnabas.storage.segment import Segment
from barnabas.storage.time_scan import SegmentScan
from barnabas.storage.txn_index import AbortedTransaction
from barnabas.storage.validation import Valid
from barnabas.storage.verification import Verification
from barnabas.storage.vnode import AppendResult, Check, Origin, ReadResult, TimeScan
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode, KafkaError

R = TypeVar("R")


class LocalVnode(ReplacingLog):
    """See `storage.vnode.Vnode`; it also has what a data directory needs."""

    __slots__ = ()

    # -- where the log is --------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return (self._opened or self._load()).log.start_offset

    @property
    def log_end_offset(self) -> int:
        return (self._opened or self._load()).log.end_offset

    @property
    def high_watermark(self) -> int:
        return (self._opened or self._load()).marks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        opened = self._opened or self._load()
        return max(opened.marks.last_stable_offset, opened.log.start_offset)

    @property
    def size_bytes(self) -> int:
        return (self._opened or self._load()).log.size_bytes

    @property
    def segment_count(self) -> int:
        return len((self._opened or self._load()).log.segments)

    @property
    def appended(self) -> tuple[int, int]:
        log = self._opened.log if self._opened is not None else None
        return (log.appended_bytes, log.appended_records) if log is not None else (0, 0)

    @property
    def unflushed_messages(self) -> int:
        log = self._opened.log if self._opened is not None else None
        return log.end_offset - log.unflushed.flushed_at if log is not None else 0

    @property
    def latest_epoch(self) -> int:
        return (self._opened or self._load()).log.epochs.latest

    @property
    def producers(self) -> ProducerState:
        return (self._opened or self._load()).log.producers

    @property
    def segments(self) -> list[Segment]:
        return list((self._opened or self._load()).log.segments)

    def _notify(self) -> None:
        self.on_high_watermark.notify(self)

    # -- append ------------------------------------------------------------------------------------------------------

    def append(self, data: BytesLike, *, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendResult:
        opened = self._opened or self._load()
        try:
            result = opened.appender.append(data, now_ms, origin, self.leader_epoch)
        except (OSError, CorruptLogError) as error:
            raise self._failed("append", error) from error
        if self._full and not result.duplicate:
            self._found_room()
        if not self._fsync_first:
            self._show_all(opened)
        return result

    def append_valid(self, valid: Valid, *, now_ms: int) -> AppendResult:
        opened = self._opened or self._load()
        try:
            result = opened.appender.append_valid(valid, now_ms, self.leader_epoch)
        except (OSError, CorruptLogError) as error:
            raise self._failed("append", error) from error
        if self._full and not result.duplicate:
            self._found_room()
        if not self._fsync_first:
            self._show_all(opened)
        return result

    def end_transaction(self, marker: Marker, *, new_epoch: bool, now_ms: int) -> AppendResult:
        opened = self._opened or self._load()
        try:
            result = opened.appender.end_transaction(marker, now_ms, self.leader_epoch, new_epoch=new_epoch)
        except (OSError, CorruptLogError) as error:
            raise self._failed("append", error) from error
        if self._full:
            self._found_room()
        if not self._fsync_first:
            self._show_all(opened)
        return result

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        return (self._opened or self._load()).log.producers.in_transaction(producer_id, epoch)

    def begin_verification(self, verification: Verification) -> None:
        (self._opened or self._load()).log.producers.verifications.begin(verification)

    def check_verification(self, verification: Verification) -> None:
        (self._opened or self._load()).log.producers.verifications.check(verification)

    def end_verification(self, verification: Verification) -> None:
        if self._opened is not None:  # else it is gone with the producers' state
            self._opened.log.producers.verifications.end(verification)

    def _found_room(self) -> None:
        self._full = False
        self._tell("partition.has.room", topic=self.topic, partition=self.partition)

    # -- read --------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        max_offset: int | None = None,
        verified: bool = False,
    ) -> ReadResult:
        """See `Vnode`. A slice is a range of one segment file."""
        opened = self._opened or self._load()
        log, marks = opened.log, opened.marks
        high = marks.high_watermark
        if not log.start_offset <= offset <= log.end_offset:
            raise _out_of_range(opened, offset)
        limit = high if max_offset is None or max_offset > high else max_offset
        if offset >= limit:
            return ReadResult(None, high, log.start_offset, marks.last_stable_offset, end_offset=offset)
        try:
            found, left, check, end = opened.reader.find_slice(offset, max_bytes, min_one_batch, limit, verified)
        except (OSError, CorruptLogError) as error:
            raise self._failed("read", error) from error
        return ReadResult(found, high, log.start_offset, marks.last_stable_offset, left, check, end)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        return self._of_aborted(lambda reader: reader.aborted_transactions(start, end))

    def aborted_limit(self, start: int, end: int, most: int) -> int:
        return self._of_aborted(lambda reader: reader.aborted_limit(start, end, most))

    def _of_aborted(self, look: Callable[[Reader], R]) -> R:
        """The result of `look` at the indexes of aborted transactions. Indexes that are not credible are rebuilt."""
        opened = self._opened or self._load()
        with self._reading():
            for _ in opened.log.segments:
                try:
                    return look(opened.reader)
                except CorruptIndexError as error:
                    self._rebuild_aborted(opened, error)
            return look(opened.reader)

    def open_transaction(self, producer_id: int) -> int | None:
        return (self._opened or self._load()).log.producers.open_transaction(producer_id)

    def active_producers(self) -> Iterator[tuple[int, Producer]]:
        yield from (self._opened or self._load()).log.producers.producers.items()

    def end_check(self, check: Check) -> FileSlice:
        assert isinstance(check, CrcCheck)
        with self._reading():
            return check.end()

    def newest_timestamp(self) -> int:
        opened = self._opened or self._load()
        with self._reading():
            return opened.reader.newest_timestamp()

    def time_scans(self, timestamp: int) -> Iterator[TimeScan]:
        for segment in list((self._opened or self._load()).log.segments):
            opened = self._opened or self._load()
            if not segment.size or segment.base_offset >= opened.marks.high_watermark:
                continue
            if segment not in opened.log.segments:  # it was deleted or replaced meanwhile
                continue
            with self._reading():
                scan = opened.reader.time_scan(segment, timestamp)
            if scan is not None:
                yield scan

    def end_scan(self, scan: TimeScan) -> tuple[int, int] | None:
        assert isinstance(scan, SegmentScan)
        with self._reading():
            return scan.end()

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        for scan in self.time_scans(timestamp):
            scan.run()
            found = self.end_scan(scan)
            if found is not None:
                return found
        return None

    def max_timestamp_offset(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the newest timestamp; None if the log has no timestamps."""
        newest = self.newest_timestamp()
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        log = (self._opened or self._load()).log
        return log.epochs.end_offset(epoch, log.end_offset)

    def epoch_of(self, offset: int) -> int:
        log = (self._opened or self._load()).log
        return max((epoch for epoch, start in log.epochs.entries if start <= offset), default=-1)

    # -- deletion ----------------------------------------------------------------------------------------------------

    def truncate_prefix(self, offset: int) -> None:
        """See `Vnode`. The segments wholly below `offset` are dropped."""
        opened = self._opened or self._load()
        if not 0 <= offset <= opened.marks.high_watermark:
            raise _out_of_range(opened, offset)
        self._raise_start(opened, offset)

    def _raise_start(self, opened: Opened, offset: int) -> None:
        if offset <= opened.log.start_offset:
            return
        opened.log.start_offset = self._expected_start = offset
        self._drop_below_start(opened)
        self._notify()

    def _drop_below_start(self, opened: Opened) -> None:
        opened.reader.forget()
        try:
            opened.log.drop_below_start(self._repairing)
        except OSError as error:
            raise self.refused("delete", error) from error

    def apply_retention(self, now_ms: int) -> int:
        opened = self._opened or self._load()
        log = opened.log
        log.producers.expire(now_ms, self._config.producer_id_expiration_ms)
        if not self._config.deletes:
            return 0
        self._drop_below_start(opened)
        try:
            count = expired(log, opened.marks.high_watermark, now_ms)
        except OSError as error:
            raise self.refused("retention", error) from error
        if count:
            self._raise_start(opened, log.bases[count])
        return count


def _out_of_range(opened: Opened, offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is not within {opened.log.start_offset} to {opened.log.end_offset}",
    )
