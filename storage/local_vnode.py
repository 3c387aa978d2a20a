"""The vnode whose log lies in Kafka's files, in one folder of a local disk. It puts the parts together:

    appender -> log (segments, leader epochs, producers) <- reader, watermarks

The parts work on the files and raise what the files raise. Here is the life of a vnode, and what an error costs it:
- Its files are looked at when it is first used, not when it is created. The parts exist while it is loaded.
- Under the fsync policy the high watermark is the durable end: it moves when a flush that covers it is done. Otherwise
  it is the log end.
- An I/O error costs what `storage.faults` says. After one that leaves the fate of bytes unknown the vnode is offline:
  every call raises `StorageError` until the data directory is opened again, so that nothing is acknowledged on top of
  them. After any other one the log and what memory knows of it are as before the call.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from barnabas.storage.appender import Appender
from barnabas.storage.checkpoints import read_topic_id
from barnabas.storage.compaction import LocalCompaction, StoppedError, active_is_overdue, cleanable, discard, need
from barnabas.storage.compaction_terms import CompactionLimits, Need
from barnabas.storage.config import LONG_MAX, LogConfig
from barnabas.storage.crc_check import CrcCheck
from barnabas.storage.errors import CorruptIndexError, CorruptLogError, StorageError
from barnabas.storage.faults import Fault, NotBegunError, fault_of
from barnabas.storage.files import FileCache, FileSlice
from barnabas.storage.io import Io, write_file
from barnabas.storage.layout import METADATA_FILE
from barnabas.storage.log import Log
from barnabas.storage.producer_state import Producer, ProducerState
from barnabas.storage.reader import Reader
from barnabas.storage.recovery import list_segments, recover_partition
from barnabas.storage.repair import RepairJob
from barnabas.storage.replacement import HalfReplacedError
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.retention import expired
from barnabas.storage.segment import Segment
from barnabas.storage.time_scan import SegmentScan
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.storage.txn_index import AbortedTransaction
from barnabas.storage.unflushed import LocalFlushJob
from barnabas.storage.validation import Rules, Valid
from barnabas.storage.vnode import (
    ZERO_ID,
    AppendResult,
    Callbacks,
    Check,
    CompactionJob,
    FlushJob,
    Origin,
    ReadResult,
    TimeScan,
)
from barnabas.storage.watermarks import Watermarks
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.uuids import encode_uuid

R = TypeVar("R")


class LocalVnode:
    """See `storage.vnode.Vnode`; besides, what a data directory needs of it."""

    __slots__ = (
        "_appender",
        "_cache",
        "_compacting",
        "_config",
        "_discard",
        "_error",
        "_expected_start",
        "_fsync_first",
        "_full",
        "_io",
        "_log",
        "_marks",
        "_reader",
        "_ready",
        "_repairing",
        "_tell",
        "_topic_id",
        "cleaned_to",
        "directory",
        "leader_epoch",
        "needs_recovery",
        "on_damage",
        "on_high_watermark",
        "partition",
        "recovery_point",
        "rules",
        "topic",
    )

    _log: Log
    _appender: Appender
    _reader: Reader
    _marks: Watermarks

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        io: Io,
        cache: FileCache,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        cleaned_to: int = 0,
        discard: Callable[[list[str]], None] | None = None,
        tell: Tell = tell_logging,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.leader_epoch = 0
        self.on_high_watermark = Callbacks()
        #: Everything below is on disk, with its index entries.
        self.recovery_point = recovery_point
        #: Everything below is compacted, as far as a pass could know.
        self.cleaned_to = cleaned_to
        #: Called to have a damaged segment repaired (`begin_repair`); without it, it is repaired on the spot.
        self.on_damage: Callable[[LocalVnode, Segment], None] | None = None
        #: A stop was not clean, and there were no descriptors or no room to recover: the first use does it.
        self.needs_recovery = False
        self._io = io
        self._cache = cache
        self._discard = discard
        self._tell = tell
        self._full = False  # the last append found no room
        self._repairing: Segment | None = None
        self._compacting: LocalCompaction | None = None
        self._expected_start = log_start_offset
        self._ready = False
        self._error: StorageError | None = None
        self._topic_id: bytes | None = None
        self.config = config

    def __repr__(self) -> str:
        return f"<Vnode {self.topic}-{self.partition}>"

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.rules = Rules.of(config)
        self._fsync_first = config.waits_for_fsync
        if self._ready:
            self._log.config = config
            self._appender.rules = self.rules
            if not self._fsync_first:
                self._show_all()

    @property
    def waits_for_fsync(self) -> bool:
        return self._fsync_first

    @property
    def loaded(self) -> bool:
        return self._ready

    @property
    def error(self) -> StorageError | None:
        return self._error

    @property
    def place(self) -> str:
        return self.directory

    @property
    def topic_id(self) -> bytes:
        """From `partition.metadata`. Raises StorageError if it cannot be read."""
        if self._topic_id is None:
            try:
                self.note_topic_id(read_topic_id(self._io, self.directory))
            except OSError as error:
                raise self.refused("read the topic id", error) from error
        assert self._topic_id is not None
        return self._topic_id

    def note_topic_id(self, text: str) -> None:
        """What `partition.metadata` says is known: an id in URL-safe base64."""
        try:
            found = base64.urlsafe_b64decode(text + "==")
        except (binascii.Error, ValueError):
            found = ZERO_ID
        self._topic_id = found if len(found) == len(ZERO_ID) else ZERO_ID  # cut off by a loss of power

    @property
    def log_start_offset(self) -> int:
        if not self._ready:
            self._load()
        return self._log.start_offset

    @property
    def checkpointed_start(self) -> int:
        """The log start offset where the folder alone does not tell it, else 0."""
        if self._ready and self._log.start_offset == self._log.bases[0]:
            return 0
        return self._expected_start

    @property
    def log_end_offset(self) -> int:
        if not self._ready:
            self._load()
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        if not self._ready:
            self._load()
        return self._marks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        if not self._ready:
            self._load()
        return max(self._marks.last_stable_offset, self._log.start_offset)

    @property
    def size_bytes(self) -> int:
        if not self._ready:
            self._load()
        return self._log.size_bytes

    @property
    def segment_count(self) -> int:
        if not self._ready:
            self._load()
        return len(self._log.segments)

    @property
    def appended(self) -> tuple[int, int]:
        return (self._log.appended_bytes, self._log.appended_records) if self._ready else (0, 0)

    def stored_bytes(self) -> int | None:
        try:
            return sum(segment.size for segment in list_segments(self._io, self.directory))
        except FileNotFoundError:
            return None

    @property
    def unflushed_messages(self) -> int:
        return self._log.end_offset - self._log.unflushed.flushed_at if self._ready else 0

    @property
    def latest_epoch(self) -> int:
        if not self._ready:
            self._load()
        return self._log.epochs.latest

    @property
    def producers(self) -> ProducerState:
        if not self._ready:
            self._load()
        return self._log.producers

    @property
    def segments(self) -> list[Segment]:
        if not self._ready:
            self._load()
        return list(self._log.segments)

    # -- life --------------------------------------------------------------------------------------------------------

    def create(self, topic_id: bytes) -> None:
        """Make the folder of a new partition. Durable with the first flush."""
        metadata = os.path.join(self.directory, METADATA_FILE)
        try:
            try:
                self._io.mkdir(self.directory)
            except FileExistsError:
                pass  # left by a creation that did not finish
            text = f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n"
            write_file(self._io, metadata, text.encode(), sync=False)
            self._topic_id = topic_id
            self._load()
        except OSError as error:
            raise self.refused("create", error) from error
        self._log.unflushed.paths += [metadata, self.directory, os.path.dirname(self.directory)]

    def begin_at(self, offset: int) -> None:
        """See `Vnode`.

        Only the names of its files say where an empty log begins, so they are made anew. A crash in between leaves the
        log as it was, one that begins at `offset`, or no log file: the next start makes one that begins at 0 again.
        """
        if not self._ready:
            self._load()
        log = self._log
        if log.end_offset:
            raise ValueError(f"{self.topic}-{self.partition} has held records: its log ends at {log.end_offset}")
        try:
            log.remove()
            self._expected_start = offset
            self._open()
            self._log.forget_epochs_before(offset)
        except OSError as error:
            self._ready = False  # some of the files may be gone: the next call looks again
            raise self.refused("begin", error) from error
        self._log.unflushed.paths += [*log.unflushed.paths, self.directory]
        self.on_high_watermark.notify(self)

    def load(self) -> None:
        """Look at the files now rather than at the first use."""
        if not self._ready:
            self._load()

    def _load(self) -> None:
        if self._error is not None:
            raise self._error
        try:
            try:
                if self.needs_recovery:
                    self._recover()
                self._open()
            except CorruptLogError:
                self._recover()
                self._open()
        except OSError as error:
            raise self.refused("load", error) from error
        except CorruptLogError as error:
            raise self._fail("load", error) from error
        self._ready = True

    def _recover(self) -> None:
        self.recovery_point = recover_partition(self._io, self.directory, self.recovery_point, self._config, self._tell)
        self.needs_recovery = False

    def _open(self) -> None:
        """Make the parts anew from the files."""
        log = self._log = Log(
            self.directory,
            self._config,
            io=self._io,
            cache=self._cache,
            discard=self._discard,
            start_offset=self._expected_start,
        )
        for path in log.producers.damaged:
            self._tell_rebuilt(path, "the snapshot is damaged")
            with contextlib.suppress(OSError):
                self._io.unlink(path)  # else it is met at each start
        self._marks = Watermarks(log.end_offset, log.active, log.active.size, log.producers.undecided)
        self._appender = Appender(log, self.rules)
        self._reader = Reader(log, self._marks)
        self.recovery_point = log.end_offset

    def close(self) -> list[str]:
        """Write what only memory holds and let go of the files. The caller has flushed, and syncs the paths it gets."""
        if not self._ready:
            return []
        try:
            return self._log.close()
        except OSError as error:
            raise self._fail("close", error) from error
        finally:
            self._release()

    def abandon(self) -> None:
        """Let go of the files of a partition that is being deleted; later calls raise `StorageError`."""
        self._error = StorageError(f"partition {self.topic}-{self.partition} is deleted")
        self._release()
        self.on_high_watermark.notify(self)

    def _release(self) -> None:
        if self._compacting is not None:
            self._compacting.disown()
            self._compacting = None
        if self._ready:
            self._log.release()
            self._ready = False

    def fail(self, action: str, error: Exception) -> None:
        self._fail(action, error)

    def _fail(self, action: str, error: Exception) -> StorageError:
        if self._error is None:
            self._error = StorageError(f"{self.topic}-{self.partition} is offline: {action} failed: {error}")
            self._tell("partition.offline", topic=self.topic, partition=self.partition, action=action, reason=error)
            self._release()
            self.on_high_watermark.notify(self)
        return self._error

    def refused(self, action: str, error: OSError) -> StorageError:
        """What to raise for an I/O error (not of an fsync) of `action`; see `storage.faults`."""
        fault = fault_of(error)
        if fault is Fault.OFFLINE:
            return self._fail(action, error)
        if fault is Fault.SPACE and not self._full:
            self._full = True
            self._tell("partition.full", topic=self.topic, partition=self.partition, action=action, reason=error)
        return StorageError(f"{self.topic}-{self.partition}: {action} is not possible now: {error}")

    # -- append ------------------------------------------------------------------------------------------------------

    def append(self, data: BytesLike, *, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendResult:
        if not self._ready:
            self._load()
        try:
            result = self._appender.append(data, now_ms, origin, self.leader_epoch)
        except (OSError, CorruptLogError) as error:
            raise self._failed("append", error) from error
        if self._full and not result.duplicate:
            self._found_room()
        if not self._fsync_first:
            self._show_all()
        return result

    def append_valid(self, valid: Valid, *, now_ms: int) -> AppendResult:
        if not self._ready:
            self._load()
        try:
            result = self._appender.append_valid(valid, now_ms, self.leader_epoch)
        except (OSError, CorruptLogError) as error:
            raise self._failed("append", error) from error
        if self._full and not result.duplicate:
            self._found_room()
        if not self._fsync_first:
            self._show_all()
        return result

    def end_transaction(self, marker: Marker, *, new_epoch: bool, now_ms: int) -> AppendResult:
        if not self._ready:
            self._load()
        try:
            result = self._appender.end_transaction(marker, now_ms, self.leader_epoch, new_epoch=new_epoch)
        except (OSError, CorruptLogError) as error:
            raise self._failed("append", error) from error
        if self._full:
            self._found_room()
        if not self._fsync_first:
            self._show_all()
        return result

    def _found_room(self) -> None:
        self._full = False
        self._tell("partition.has.room", topic=self.topic, partition=self.partition)

    def _show_all(self) -> None:
        """The high watermark is the log end."""
        log, marks = self._log, self._marks
        end = log.end_offset
        if end != marks.high_watermark:
            marks.advance(end, log.active, log.active.size)
            if self.on_high_watermark.callables:
                self.on_high_watermark.notify(self)

    # -- flush -------------------------------------------------------------------------------------------------------

    def begin_flush(self) -> LocalFlushJob | None:
        if not self._ready:
            if self._error is not None:
                raise self._error
            return None
        return self._log.unflushed.begin(self._log)

    def reserve(self, job: FlushJob) -> None:
        """Make room behind the log for more appends like those that the job is for."""
        if self._fsync_first and self._ready:
            active = self._log.active
            if active.file is not None:
                active.reserve(self._io, job.size)

    def unreserve(self) -> None:
        """Let the file end where the log does, as appends have ceased. What fails is left to the next occasion."""
        if self._ready and self._log.active.reserved:
            with contextlib.suppress(OSError):
                self._log.active.release(self._io, self._cache.get(self._log.active))

    def end_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """`job` has run. With an error the vnode goes offline: a second fsync might succeed on pages already lost.

        One that has not begun is owed again.
        """
        assert isinstance(job, LocalFlushJob)
        if error is not None and not isinstance(error, NotBegunError):
            self._fail("flush", error)
            return
        if not self._ready:
            return
        if error is not None:
            self._log.unflushed.put_back(job)
            return
        self._log.unflushed.end(job)
        if job.end_offset > self.recovery_point:
            self.recovery_point = job.end_offset
        if self._fsync_first and job.end_offset > self._marks.high_watermark:
            self._marks.advance(job.end_offset, job.segment, job.position)
            if self.on_high_watermark.callables:
                self.on_high_watermark.notify(self)

    def flush(self) -> None:
        job = self.begin_flush()
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.end_flush(job, error)
            raise self._error or self.refused("flush", error) from error
        self.end_flush(job)

    def write_indexes(self) -> list[str]:
        """Write the index entries that are only in memory; the files to sync before a new recovery point is stated.

        Raises StorageError; where there is no room, the entries stay in memory.
        """
        if not self._ready:
            return []
        active = self._log.active
        try:
            active.write_indexes(self._io)
        except OSError as error:
            raise self.refused("index write", error) from error
        return [*active.index_paths(), *self._log.unflushed.rolled_indexes]

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
        if not self._ready:
            self._load()
        log, marks = self._log, self._marks
        high = marks.high_watermark
        if not log.start_offset <= offset <= log.end_offset:
            raise self._out_of_range(offset)
        limit = high if max_offset is None or max_offset > high else max_offset
        if offset >= limit:
            return ReadResult(None, high, log.start_offset, marks.last_stable_offset, end_offset=offset)
        try:
            found, left, check, end = self._reader.find_slice(offset, max_bytes, min_one_batch, limit, verified)
        except (OSError, CorruptLogError) as error:
            raise self._failed("read", error) from error
        return ReadResult(found, high, log.start_offset, marks.last_stable_offset, left, check, end)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        return self._of_aborted(lambda: self._reader.aborted_transactions(start, end))

    def aborted_limit(self, start: int, end: int, most: int) -> int:
        return self._of_aborted(lambda: self._reader.aborted_limit(start, end, most))

    def _of_aborted(self, look: Callable[[], R]) -> R:
        """What a look at the indexes of aborted transactions gives; those that are not credible are made anew."""
        if not self._ready:
            self._load()
        with self._reading():
            for _ in self._log.segments:
                try:
                    return look()
                except CorruptIndexError as error:
                    self._rebuild_aborted(error)
            return look()

    def _rebuild_aborted(self, error: CorruptIndexError) -> None:
        self._tell_rebuilt(error.segment.path(TXN_INDEX_SUFFIX), error)
        self._log.rebuild_aborted(error.segment)

    def _tell_rebuilt(self, path: str, reason: object) -> None:
        """What a file said was read from the log."""
        name = os.path.basename(path)
        self._tell("index.rebuilt", topic=self.topic, partition=self.partition, file=name, reason=reason)

    def open_transaction(self, producer_id: int) -> int | None:
        if not self._ready:
            self._load()
        return self._log.producers.open_transaction(producer_id)

    def active_producers(self) -> Iterator[tuple[int, Producer]]:
        if not self._ready:
            self._load()
        yield from self._log.producers.producers.items()

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not within {self._log.start_offset} to {self._log.end_offset}",
        )

    def _failed(self, action: str, error: OSError | CorruptLogError) -> StorageError:
        """What to raise for what a part has raised."""
        return self._met_damage(error) if isinstance(error, CorruptLogError) else self.refused(action, error)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Errors of a read become StorageError."""
        try:
            yield
        except (OSError, CorruptLogError) as error:
            raise self._failed("read", error) from error

    def end_check(self, check: Check) -> FileSlice:
        assert isinstance(check, CrcCheck)
        with self._reading():
            return check.end()

    def newest_timestamp(self) -> int:
        if not self._ready:
            self._load()
        with self._reading():
            return self._reader.newest_timestamp()

    def time_scans(self, timestamp: int) -> Iterator[TimeScan]:
        if not self._ready:
            self._load()
        for segment in list(self._log.segments):
            if not self._ready:
                self._load()
            if not segment.size or segment.base_offset >= self._marks.high_watermark:
                continue
            if segment not in self._log.segments:  # meanwhile it was deleted or replaced
                continue
            with self._reading():
                scan = self._reader.time_scan(segment, timestamp)
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
        """Offset and timestamp of the first record with the newest timestamp; None in a log without timestamps."""
        newest = self.newest_timestamp()
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        if not self._ready:
            self._load()
        return self._log.epochs.end_offset(epoch, self._log.end_offset)

    def epoch_of(self, offset: int) -> int:
        if not self._ready:
            self._load()
        return max((epoch for epoch, start in self._log.epochs.entries if start <= offset), default=-1)

    # -- deletion ----------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if not self._ready:
            self._load()
        if not self._log.active.size:
            return
        try:
            self._log.roll(self._log.end_offset, now_ms)
        except OSError as error:
            raise self.refused("roll", error) from error

    def truncate_prefix(self, offset: int) -> None:
        """See `Vnode`. The segments wholly below `offset` are dropped."""
        if not self._ready:
            self._load()
        if not 0 <= offset <= self._marks.high_watermark:
            raise self._out_of_range(offset)
        self._raise_start(offset)

    def _raise_start(self, offset: int) -> None:
        if offset <= self._log.start_offset:
            return
        self._log.start_offset = self._expected_start = offset
        self._drop_below_start()
        self.on_high_watermark.notify(self)

    def _drop_below_start(self) -> None:
        self._reader.forget()
        try:
            self._log.drop_below_start(self._repairing)
        except OSError as error:
            raise self.refused("delete", error) from error

    def apply_retention(self, now_ms: int) -> int:
        if not self._ready:
            self._load()
        log = self._log
        log.producers.expire(now_ms, self._config.producer_id_expiration_ms)
        if not self._config.deletes:
            return 0
        self._drop_below_start()
        try:
            count = expired(log, self._marks.high_watermark, now_ms)
        except OSError as error:
            raise self.refused("retention", error) from error
        if count:
            self._raise_start(log.bases[count])
        return count

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put new segments in the place of old ones: see `Log.replace`. Raises ValueError, StorageError.

        What is cut in its middle by an error that passes, the next use finishes.
        """
        if not self._ready:
            self._load()
        if self._marks.segment in old:
            raise ValueError("the old segments are not all below the high watermark")
        try:
            self._replace(old, new)
        except OSError as error:
            raise self.refused("replace segments", error) from error

    def _replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        self._reader.forget()
        try:
            self._log.replace(old, new)
        except HalfReplacedError as error:
            self._release()
            self.needs_recovery = True
            raise error.cause from error

    # -- compaction --------------------------------------------------------------------------------------------------

    def may_need_compaction(self) -> bool:
        if not self._config.compacts:
            return False
        if self._ready:
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
        if not self._ready:
            self._load()
        log = self._log
        self._leave_old_segment()
        with self._reading():
            found = need(log, cleanable(log, self._marks, self.cleaned_to, now_ms), now_ms)
        if active_is_overdue(log, now_ms):
            found = Need(found.clean_bytes, found.dirty_bytes + log.active.size, True)
        return found

    def begin_compaction(self, now_ms: int, limits: CompactionLimits) -> LocalCompaction | None:
        """See `Vnode`. An active segment that `max.compaction.lag.ms` does not let wait any longer is rolled first."""
        if not self._config.compacts:
            return None
        if not self._ready:
            self._load()
        if self._compacting is not None or self._repairing is not None:
            return None
        if active_is_overdue(self._log, now_ms):
            self.roll(now_ms)
        self._leave_old_segment()
        with self._reading():
            found = cleanable(self._log, self._marks, self.cleaned_to, now_ms)
            if found.first_dirty >= found.upto:
                return None
            self._compacting = LocalCompaction(self._log, found, limits, now_ms)
        return self._compacting

    def end_compaction(self, job: CompactionJob, error: Exception | None = None) -> bool:
        assert isinstance(job, LocalCompaction)
        if self._compacting is not job:  # gone offline, or deleted: the next start sweeps, if there is one
            return False
        goes_on = False
        try:
            goes_on = error is None and job.made is not None and self._place(job)
        finally:
            if not goes_on:
                self._compacting = None
                if self._ready and (doomed := discard(self._io, job)):
                    self._log.discard(doomed)
        if not goes_on:
            self._finish(job, error)
        return goes_on

    def _place(self, job: LocalCompaction) -> bool:
        """Whether the log still has the segments that were cleaned; then the new ones are in their place."""
        assert job.made is not None
        old, new = job.made
        if not set(old) <= set(self._log.segments):
            return False
        try:
            self._replace(old, new)
        except OSError as error:
            raise self.refused("replace segments", error) from error
        job.placed()
        for segment in new[:-1]:
            segment.forget_indexes()
        return True

    def _finish(self, job: LocalCompaction, error: Exception | None) -> None:
        """A compaction is at its end, one way or the other. Raises StorageError."""
        if job.is_done:
            self.cleaned_to = job.figures.to_offset
            return
        if error is None or isinstance(error, StoppedError) or not job.segments <= set(self._log.segments):
            return
        if isinstance(error, CorruptIndexError):
            with self._reading():
                self._rebuild_aborted(error)
        elif isinstance(error, CorruptLogError):
            raise self._met_damage(error)
        raise StorageError(f"{self.topic}-{self.partition}: compaction is not possible now: {error}") from error

    # -- damage ------------------------------------------------------------------------------------------------------

    def _met_damage(self, error: CorruptLogError) -> StorageError:
        """A segment's bytes are no batches: have them set aside. What to raise meanwhile."""
        for segment in [error.segment] if error.segment is not None else self._log.segments:
            if self.on_damage is None:
                self.repair(segment)
            elif segment is not self._repairing:
                self.on_damage(self, segment)
        return StorageError(f"{self.topic}-{self.partition} has damage that is being set aside: {error}")

    def found_damage(self, offset: int, error: Exception) -> StorageError:
        if not self._ready:
            self._load()
        segment = self._log.segment_of(offset)
        return self._met_damage(CorruptLogError(f"{segment.path()} at offset {offset}: {error}", segment))

    @contextlib.contextmanager
    def mending_on_the_spot(self) -> Iterator[None]:
        repairs, self.on_damage = self.on_damage, None
        try:
            yield
        finally:
            self.on_damage = repairs

    def begin_repair(self, segment: Segment) -> RepairJob | None:
        """What it takes to mend a segment; None when it is no longer there. Ends with `end_repair`.

        The active segment is rolled first, and all that it holds is flushed. Raises StorageError.
        """
        if not self._ready or segment not in self._log.segments or self._repairing is not None:
            return None
        if self._compacting is not None:  # it ends soon; whoever meets the damage again has it mended
            self._compacting.stop()
            return None
        log, marks = self._log, self._marks
        if segment is log.active:
            self.roll(segment.created_ms)
            if segment is log.active:
                return None
        following = log.following(segment)
        if marks.high_watermark <= following:
            self.flush()
            self._leave_old_segment()
        if segment is marks.segment:
            return None
        self._repairing = segment
        return RepairJob(self._io, segment, following, self._config, self._tell)

    def _leave_old_segment(self) -> None:
        """The high watermark at the end of a segment is at the beginning of the next one, too."""
        marks, active = self._marks, self._log.active
        if marks.high_watermark == active.base_offset:
            marks.advance(marks.high_watermark, active, 0)

    def end_repair(self, job: RepairJob, error: OSError | None = None) -> bool:
        """`job` has run: readers get the mended segment. With an error all is as before; false then."""
        self._repairing = None
        if not self._ready or job.damaged not in self._log.segments:
            return True
        try:
            if error is not None:
                raise error
            if job.mended.size:
                self._replace([job.damaged], [job.mended])
            else:
                self._reader.forget()
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
        """Mend a segment on the spot, for callers without an event loop. Raises StorageError."""
        job = self.begin_repair(segment)
        if job is None:
            return
        error: OSError | None = None
        try:
            job.run()
        except OSError as caught:
            error = caught
        self.end_repair(job, error)
