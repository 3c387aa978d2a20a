"""A vnode: one partition's write-ahead log in one folder.

Sync and single-threaded: all calls come from the event loop's thread and are short. Slow work leaves as a `FlushJob` or
a list of files to delete, which others run in threads.

Invariants:
- `log_start_offset <= high_watermark <= log_end_offset`. Readers see nothing at or above the high watermark.
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
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

import msgspec

from barnabas.storage import index
from barnabas.storage.checkpoints import encode_topic_id, read_topic_id
from barnabas.storage.config import LogConfig
from barnabas.storage.crc_check import CrcCheck
from barnabas.storage.errors import StorageError
from barnabas.storage.faults import Fault, NotBegunError, fault_of
from barnabas.storage.io import Io, sync_path, write_all, write_file
from barnabas.storage.layout import METADATA_FILE
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.producer_state import KnownBatch, ProducerState, snapshot_offsets, snapshot_path
from barnabas.storage.recovery import list_segments, recover_partition, recover_segment, replay_producers
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    TIME_INDEX_SUFFIX,
    CorruptLogError,
    FileCache,
    FileSlice,
    OpenFile,
    Segment,
)
from barnabas.storage.time_scan import TimeScan
from barnabas.storage.validation import Rules, Valid, check_size, validate
from barnabas.wire import batch
from barnabas.wire.batch import BatchHeader
from barnabas.wire.compression import Bytes
from barnabas.wire.errors import ErrorCode, KafkaError

ZERO_ID = bytes(16)
_KEPT_HINTS = 8
# So many entries of the offset index gather in memory. On disk they tell recovery where whole batches begin again.
_WRITTEN_ENTRIES = 16
_PREFIX_SIZE = batch.PREFIX_SIZE
_pack_prefix = batch.PREFIX.pack
_RECENT_BYTES = 8 * 1024 * 1024


class Origin(Enum):
    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"  # offsets and epochs are the leader's and stay
    QUERY = "query"  # offsets are those of another log: a batch goes on where the last one ended, with gaps inside


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless the topic has LogAppendTime
    log_start_offset: int
    duplicate: bool = False


class ReadResult(msgspec.Struct, frozen=True):
    slice: FileSlice | None
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    #: Readable bytes that the range leaves out; LATER_SEGMENT if there are some in a later one.
    left: int = 0
    #: What must be run, and given to `end_check`, before the range may be sent.
    check: CrcCheck | None = None


LATER_SEGMENT = 1 << 62


class Callbacks:
    """Callables that want to hear of a vnode's progress; nothing to do while there are none."""

    __slots__ = ("callables",)

    def __init__(self) -> None:
        self.callables: dict[Callable[[Vnode], None], None] = {}

    def subscribe(self, callback: Callable[[Vnode], None]) -> None:
        self.callables[callback] = None

    def unsubscribe(self, callback: Callable[[Vnode], None]) -> None:
        self.callables.pop(callback, None)


class FlushJob:
    """What one flush has to make durable. `run` may be called in a thread: it touches no vnode."""

    __slots__ = ("end_offset", "files", "paths", "position", "segment", "size")

    def __init__(
        self, files: list[OpenFile], paths: list[str], end_offset: int, segment: Segment, position: int, size: int
    ) -> None:
        self.files = files
        self.paths = paths
        self.end_offset = end_offset
        self.segment = segment
        self.position = position
        self.size = size  # bytes written since the last flush

    @property
    def syncs(self) -> int:
        """How many fsyncs it is."""
        return len(self.files) + len(self.paths)

    def run(self, io: Io) -> None:
        for file in self.files:
            io.fdatasync(file.fd)
        for path in self.paths:
            sync_path(io, path)


class RepairJob:
    """The mending of a damaged segment. `run` may be called in a thread: it touches no vnode, only files."""

    def __init__(self, damaged: Segment, following: int, config: LogConfig, tell: Tell) -> None:
        self.damaged = damaged
        self.mended = Segment(damaged.directory, damaged.base_offset, size=damaged.size, created_ms=damaged.created_ms)
        self._following = following
        self._config = config
        self._tell = tell

    def run(self, io: Io) -> None:
        """Raises OSError."""
        self.mended.size = min(self.mended.size, io.stat(self.mended.path()).st_size)
        epochs = LeaderEpochs(self.damaged.directory, io)
        recover_segment(io, self.mended, 0, self._config, epochs, self._following, self._tell, in_place=False)


class Vnode:
    """One partition's log. Its files are looked at when it is first used, not when it is created."""

    __slots__ = (
        "_active",
        "_bases",
        "_cache",
        "_config",
        "_discard",
        "_epochs",
        "_error",
        "_expected_start",
        "_flushed_at",
        "_fsync_first",
        "_full",
        "_high_position",
        "_high_segment",
        "_high_watermark",
        "_hints",
        "_io",
        "_log_end_offset",
        "_log_start_offset",
        "_producers",
        "_ready",
        "_recent",
        "_repairing",
        "_rolled_indexes",
        "_segments",
        "_stamps",
        "_tell",
        "_topic_id",
        "_unsynced",
        "_unsynced_bytes",
        "_unsynced_paths",
        "directory",
        "needs_recovery",
        "on_damage",
        "on_high_watermark",
        "partition",
        "recovery_point",
        "rules",
        "topic",
    )

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
        discard: Callable[[list[str]], None] | None = None,
        tell: Tell = tell_logging,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.on_high_watermark = Callbacks()
        #: What a producer's batch must obey. Follows `config`.
        self.rules: Rules
        #: Everything below is on disk, with its index entries.
        self.recovery_point = recovery_point
        self._io = io
        self._cache = cache
        self._discard = discard or self._remove_now
        self._tell = tell
        self._full = False  # the last append found no room
        #: Whoever repairs damaged segments (`begin_repair`); without one they are repaired on the spot.
        self.on_damage: Callable[[Vnode, Segment], None] | None = None
        #: A stop was not clean, and there were no descriptors or no room to recover: the first use does it.
        self.needs_recovery = False
        self._repairing: Segment | None = None
        self._expected_start = log_start_offset
        self._ready = False
        self._error: StorageError | None = None
        self._topic_id: bytes | None = None
        self.config = config

    def __repr__(self) -> str:
        return f"<Vnode {self.topic}-{self.partition}>"

    # -- properties --------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.rules = Rules.of(config)
        self._stamps = self.rules.stamps
        self._fsync_first = config.waits_for_fsync
        if self._ready and not self._fsync_first:
            self._advance(self._log_end_offset, self._active, self._active.size)

    @property
    def waits_for_fsync(self) -> bool:
        return self._fsync_first

    @property
    def loaded(self) -> bool:
        return self._ready

    @property
    def error(self) -> StorageError | None:
        """Why the vnode is offline, or None."""
        return self._error

    @property
    def topic_id(self) -> bytes:
        """From `partition.metadata`; zeros where there is none. Raises StorageError if it cannot be read."""
        if self._topic_id is None:
            try:
                text = read_topic_id(self._io, self.directory)
                found = base64.urlsafe_b64decode(text + "==")
                self._topic_id = found if len(found) == len(ZERO_ID) else ZERO_ID  # cut off by a loss of power
            except (binascii.Error, ValueError):
                self._topic_id = ZERO_ID
            except OSError as error:
                raise self.refused("read the topic id", error) from error
        return self._topic_id

    @property
    def log_start_offset(self) -> int:
        if not self._ready:
            self._load()
        return self._log_start_offset

    @property
    def checkpointed_start(self) -> int:
        """The log start offset where the folder alone does not tell it, else 0."""
        if self._ready and self._log_start_offset == self._bases[0]:
            return 0
        return self._expected_start

    @property
    def log_end_offset(self) -> int:
        if not self._ready:
            self._load()
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        if not self._ready:
            self._load()
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see; with no open transactions, the high watermark."""
        return self.high_watermark

    @property
    def size_bytes(self) -> int:
        if not self._ready:
            self._load()
        return sum(segment.size for segment in self._segments)

    @property
    def unflushed_messages(self) -> int:
        """Offsets appended since the last flush began or ended."""
        return self._log_end_offset - self._flushed_at if self._ready else 0

    @property
    def latest_epoch(self) -> int:
        if not self._ready:
            self._load()
        return self._epochs.latest

    @property
    def producers(self) -> ProducerState:
        if not self._ready:
            self._load()
        return self._producers

    @property
    def segments(self) -> list[Segment]:
        if not self._ready:
            self._load()
        return list(self._segments)

    # -- life --------------------------------------------------------------------------------------------------------

    def create(self, topic_id: bytes) -> None:
        """Make the folder of a new partition. Durable with the first flush."""
        try:
            try:
                self._io.mkdir(self.directory)
            except FileExistsError:
                pass  # left by a creation that did not finish
            text = f"version: 0\ntopic_id: {encode_topic_id(topic_id)}\n"
            write_file(self._io, os.path.join(self.directory, METADATA_FILE), text.encode(), sync=False)
            self._topic_id = topic_id
            self._load()
        except OSError as error:
            raise self.refused("create", error) from error
        self._unsynced_paths += [
            os.path.join(self.directory, METADATA_FILE),
            self.directory,
            os.path.dirname(self.directory),
        ]

    def begin_at(self, offset: int) -> None:
        """Let a log that has never held a record begin, and so end, at `offset`. Durable with the first flush.

        Only the names of its files say where an empty log begins, so they are made anew. A crash in between leaves the
        log as it was, one that begins at `offset`, or no log file: the next start makes one that begins at 0 again.
        Raises ValueError if there have been records, StorageError.
        """
        if not self._ready:
            self._load()
        if self._log_end_offset:
            raise ValueError(f"{self.topic}-{self.partition} has held records: its log ends at {self._log_end_offset}")
        owed = self._unsynced_paths
        try:
            for segment in self._segments:
                self._cache.forget(segment)
                # The log goes first: indexes without a log are swept away at the next start.
                self._remove_now(segment.path(suffix) for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX))
            self._expected_start = offset
            self._load_files()
            self._forget_epochs_before(offset)
        except OSError as error:
            self._ready = False  # some of the files may be gone: the next call looks again
            raise self.refused("begin", error) from error
        self._unsynced_paths += [*owed, self.directory]
        self._notify()

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
                self._load_files()
            except CorruptLogError:
                self._recover()
                self._load_files()
        except OSError as error:
            raise self.refused("load", error) from error
        except CorruptLogError as error:
            raise self._fail("load", error) from error
        self._ready = True

    def _recover(self) -> None:
        self.recovery_point = recover_partition(self._io, self.directory, self.recovery_point, self._config, self._tell)
        self.needs_recovery = False

    def _load_files(self) -> None:
        io = self._io
        self._segments = list_segments(io, self.directory)
        self._unsynced: list[OpenFile] = []
        self._unsynced_paths: list[str] = []
        self._unsynced_bytes = 0
        self._rolled_indexes: list[str] = []  # of segments rolled since the last flush that has ended
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._recent: dict[int, bool] = {}  # offsets that were read from lately; was the batch there verified?
        if not self._segments:
            self._new_segment(self._expected_start, 0)
        self._bases = [segment.base_offset for segment in self._segments]
        active = self._active = self._segments[-1]
        end = active.load_tail(io, self._cache.get(active)) if active.size else active.base_offset
        if not active.size and active.index is None:
            active.start()
            active.write_indexes(io)
        self._log_end_offset = end
        self._log_start_offset = min(max(self._bases[0], self._expected_start), end)
        self._epochs = LeaderEpochs(self.directory, io)
        self._epochs.load()
        self._producers = ProducerState()
        covered = self._producers.load(io, self.directory, end)
        if covered < end:
            replay_producers(io, self._segments, self._producers, max(covered, self._bases[0]))
        self._high_watermark = end
        self._high_segment = active
        self._high_position = active.size
        self._flushed_at = end
        self.recovery_point = end

    def close(self) -> list[str]:
        """Write what only memory holds and let go of the files. The caller has flushed, and syncs the paths it gets."""
        if not self._ready:
            return []
        try:
            active = self._active
            active.finish(self._io)
            paths = [active.path(INDEX_SUFFIX), active.path(TIME_INDEX_SUFFIX), self.directory]
            if active.reserved:
                active.release(self._io, self._cache.get(active))
                paths.append(active.path())
            if self._log_end_offset:
                paths.append(self._producers.save(self._io, self.directory, self._log_end_offset))
                self._prune_snapshots()
            return paths
        except OSError as error:
            raise self._fail("close", error) from error
        finally:
            self._release()
            self._ready = False

    def abandon(self) -> None:
        """Let go of the files of a partition that is being deleted; later calls raise `StorageError`."""
        self._error = StorageError(f"partition {self.topic}-{self.partition} is deleted")
        if self._ready:
            self._release()
            self._ready = False
        self._notify()

    def _release(self) -> None:
        for segment in self._segments:
            self._cache.forget(segment)

    def fail(self, action: str, error: Exception) -> None:
        """Take the vnode offline because `action` met an I/O error."""
        self._fail(action, error)

    def refused(self, action: str, error: OSError) -> StorageError:
        """What to raise for an I/O error (not of an fsync) of `action`; see `storage.faults`."""
        fault = fault_of(error)
        if fault is Fault.OFFLINE:
            return self._fail(action, error)
        if fault is Fault.SPACE and not self._full:
            self._full = True
            self._tell("partition.full", topic=self.topic, partition=self.partition, action=action, reason=error)
        return StorageError(f"{self.topic}-{self.partition}: {action} is not possible now: {error}")

    def _fail(self, action: str, error: Exception) -> StorageError:
        if self._error is None:
            self._error = StorageError(f"{self.topic}-{self.partition} is offline: {action} failed: {error}")
            self._tell("partition.offline", topic=self.topic, partition=self.partition, action=action, reason=error)
            if self._ready:
                self._release()
            self._ready = False
            self._notify()
        return self._error

    def _notify(self) -> None:
        for callback in list(self.on_high_watermark.callables):
            callback(self)

    # -- append ------------------------------------------------------------------------------------------------------

    def append(
        self,
        data: Bytes,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        leader_epoch: int = 0,
    ) -> AppendResult:
        """Write one batch (several under REPLICATION) at the log's end, to the page cache.

        Whether that is enough to acknowledge it is the flusher's to say. Raises `KafkaError`: CORRUPT_MESSAGE,
        INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR; after any but the last the vnode is as before. Under QUERY
        OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER for a batch that does not begin at the log's end.
        """
        if not self._ready:
            self._load()
        if origin is Origin.REPLICATION:
            return self._append_replicated(data, now_ms)
        if origin is Origin.QUERY:
            return self._append_given(data, now_ms, leader_epoch)
        if origin is Origin.COORDINATOR:  # our own: its records are as we made them
            check_size(len(data), self.rules)
            return self.append_valid(Valid(batch.validate(data), data), now_ms=now_ms, leader_epoch=leader_epoch)
        return self.append_valid(validate(data, self.rules, now_ms), now_ms=now_ms, leader_epoch=leader_epoch)

    def append_valid(self, valid: Valid, *, now_ms: int, leader_epoch: int = 0) -> AppendResult:
        """As `append`, for one batch that `storage.validation.validate` has let pass under this vnode's `rules`."""
        if not self._ready:
            self._load()
        header, data = valid.header, valid.data
        size = len(data)
        if header.producer_id >= 0 and not header.attributes & 0x20:
            known = self._producers.check(header)
            if known is not None:
                return self._repeated(known)
        base = self._log_end_offset
        append_time = -1
        if self._stamps:
            append_time = now_ms
            prefix = batch.with_append_time(header, data, base, leader_epoch, now_ms)
            rest = memoryview(data)[batch.HEADER_SIZE :]
            self._write(header, prefix, rest, size, base, now_ms, now_ms, leader_epoch)
        else:
            prefix = _pack_prefix(base, header.batch_length, leader_epoch)
            rest = memoryview(data)[_PREFIX_SIZE:]
            self._write(header, prefix, rest, size, base, header.max_timestamp, now_ms, leader_epoch)
        last = base + header.last_offset_delta
        if header.producer_id >= 0:
            self._producers.record(header, base, now_ms)
        if not self._fsync_first:
            self._advance(last + 1, self._active, self._active.size)
        return AppendResult(base, last, append_time, self._log_start_offset)

    def _append_given(self, data: Bytes, now_ms: int, leader_epoch: int) -> AppendResult:
        """One batch with the offsets that it has: it must begin where the log ends, may have gaps and no records.

        Its record count is its writer's word; the offsets that it covers are checked, so that nothing comes twice.
        """
        header = batch.check(data)
        if header.batch_length + 12 != len(data) or header.is_control:
            raise _invalid("a partition takes exactly one batch, and no control records")
        if header.records_count < 0 or header.last_offset_delta < max(header.records_count - 1, 0):
            raise _invalid(f"record count {header.records_count} with last offset delta {header.last_offset_delta}")
        base, end = header.base_offset, self._log_end_offset
        if base != end:
            covered = header.last_offset < end
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER if covered else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"the batch covers offsets {base} to {header.last_offset}; the log ends at {end}",
            )
        prefix = _pack_prefix(base, header.batch_length, leader_epoch)
        with memoryview(data) as view:
            rest = view[_PREFIX_SIZE:]
            self._write(header, prefix, rest, len(data), base, header.max_timestamp, now_ms, leader_epoch)
        if not self._fsync_first:
            self._advance(self._log_end_offset, self._active, self._active.size)
        return AppendResult(base, header.last_offset, -1, self._log_start_offset)

    def _append_replicated(self, data: Bytes, now_ms: int) -> AppendResult:
        """Batches of a leader: checked for length and CRC, kept with their offsets, epochs and timestamps."""
        first = last = -1
        for found, view in batch.iter_batches(data):
            header = batch.check(view)
            if found.base_offset < self._log_end_offset or found.last_offset_delta < 0:
                raise _invalid(f"offset {found.base_offset} is below the log end {self._log_end_offset}")
            prefix = bytes(view[:_PREFIX_SIZE])
            self._write(
                header, prefix, view[_PREFIX_SIZE:], len(view), header.base_offset, header.max_timestamp, now_ms,
                header.partition_leader_epoch,
            )  # fmt: skip
            if header.producer_id >= 0:
                self._producers.record(header, header.base_offset, header.max_timestamp)
            if first < 0:
                first = header.base_offset
            last = header.last_offset
        if first < 0:
            raise _invalid("no whole batch")
        if not self._fsync_first:
            self._advance(last + 1, self._active, self._active.size)
        return AppendResult(first, last, -1, self._log_start_offset)

    def _write(
        self,
        header: BatchHeader,
        prefix: bytes,
        rest: memoryview,
        size: int,
        base: int,
        timestamp: int,
        now_ms: int,
        leader_epoch: int,
    ) -> None:
        """Put one batch at the end of the active segment, rolling first if it is due."""
        config = self._config
        segment = self._active
        last = base + header.last_offset_delta
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes in a topic with segment.bytes={config.segment_bytes}"
            )
        try:
            if segment.index is None:
                self._load_indexes(segment)
            if self._roll_is_due(segment, size, last, timestamp, now_ms):
                segment = self._roll(base, now_ms)
            if leader_epoch > self._epochs.latest:
                self._epochs.begin(leader_epoch, base)
                self._unsynced_paths += [self._epochs.path, self.directory]
            file = segment.file
            if file is None:
                file = self._cache.get(segment)
            segment.used = segment.dirty = True
            position = segment.size
            if self._io.pwritev(file.fd, (prefix, rest), position) != size:
                # Short: the disk may be full. Go on from the start of the batch; the same bytes do no harm.
                write_all(self._io, file.fd, (prefix, rest), position)
        except OSError as error:
            self._cut_torn_batch(segment)
            raise self.refused("append", error) from error
        except CorruptLogError as error:
            raise self._met_damage(error) from error
        if self._full:
            self._full = False
            self._tell("partition.has.room", topic=self.topic, partition=self.partition)
        if segment.first_timestamp is None:
            segment.first_timestamp = timestamp
        segment.note(last, size, timestamp, config.index_interval_bytes)
        if segment.unwritten_entries >= _WRITTEN_ENTRIES:
            with contextlib.suppress(OSError):  # they stay in memory
                segment.write_indexes(self._io)
        self._unsynced_bytes += size
        self._log_end_offset = last + 1

    def _cut_torn_batch(self, segment: Segment) -> None:
        """Best effort, so that other readers of the file do not meet half a batch. The next append goes over it."""
        segment.reserved = 0
        if segment.file is not None:
            try:
                self._io.ftruncate(segment.file.fd, segment.size)
            except OSError:
                pass

    def _roll_is_due(self, segment: Segment, size: int, last: int, timestamp: int, now_ms: int) -> bool:
        if last - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not segment.size:
            return False
        config = self._config
        if segment.size + size > config.segment_bytes:
            return True
        first = segment.first_timestamp
        if first is not None and first >= 0 and timestamp >= 0:
            waited = timestamp - first
        else:
            waited = now_ms - segment.created_ms
        return waited > config.segment_ms or segment.indexes_full(config.segment_index_bytes)

    def _repeated(self, known: KnownBatch) -> AppendResult:
        append_time = known.timestamp if self._stamps else -1
        return AppendResult(known.base_offset, known.last_offset, append_time, self._log_start_offset, True)

    # -- segments ----------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if not self._ready:
            self._load()
        if not self._active.size:
            return
        try:
            self._roll(self._log_end_offset, now_ms)
        except OSError as error:
            raise self.refused("roll", error) from error

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """The new active segment. What the old one still owes to the disk is noted for the next flush.

        Raises OSError; the old one is active then as before.
        """
        old = self._active
        if old.index is None:
            self._load_indexes(old)
        old.finish(self._io)
        snapshot = self._producers.save(self._io, self.directory, base_offset)
        file = self._cache.get(old)
        old.release(self._io, file)  # before there is a next one: only the last segment may end in zeros
        segment = self._new_segment(base_offset, now_ms)
        self._unsynced.append(file)
        indexes = [old.path(INDEX_SUFFIX), old.path(TIME_INDEX_SUFFIX)]
        self._unsynced_paths += [*indexes, snapshot, self.directory]
        self._rolled_indexes += indexes
        self._cache.clean(old)
        self._bases.append(base_offset)
        self._active = segment
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(self.directory, base_offset, created_ms=now_ms)
        segment.start()
        made: list[str] = []
        try:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
                # The log comes last: indexes without a log are swept away at the next start.
                self._io.close(self._io.open(segment.path(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
                made.append(segment.path(suffix))
        except OSError:
            with contextlib.suppress(OSError):
                self._remove_now(made)
            raise
        self._segments.append(segment)
        return segment

    def _remove_segments(self, count: int) -> None:
        """Drop the oldest `count` segments: renamed now, deleted wherever `discard` does it. Raises OSError."""
        self._hints.clear()
        for _ in range(count):
            segment = self._segments[0]
            path = segment.path()
            self._io.replace(path, path + DELETED_SUFFIX)
            del self._segments[0]
            del self._bases[0]
            self._cache.forget(segment)
            self._unsynced_paths.append(self.directory)
            self._discard([
                path + DELETED_SUFFIX, segment.path(INDEX_SUFFIX), segment.path(TIME_INDEX_SUFFIX),
                snapshot_path(self.directory, segment.base_offset),
            ])  # fmt: skip

    def _remove_now(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._io.unlink(path)
            except FileNotFoundError:
                pass

    def truncate_prefix(self, offset: int) -> None:
        """Raise the log start offset to `offset`, and drop the segments wholly below it (DeleteRecords)."""
        if not self._ready:
            self._load()
        if not 0 <= offset <= self._high_watermark:
            raise self._out_of_range(offset)
        self._raise_start(offset)

    def _raise_start(self, offset: int) -> None:
        if offset <= self._log_start_offset:
            return
        self._log_start_offset = self._expected_start = offset
        self._drop_below_start()
        self._notify()

    def _drop_below_start(self) -> None:
        """Drop the segments wholly below the log start: what resisted before is tried again. Raises StorageError."""
        try:
            count = bisect_right(self._bases, self._log_start_offset) - 1
            if self._repairing in self._segments[:count]:
                count = self._segments.index(self._repairing)
            if count > 0:
                self._remove_segments(count)
            self._forget_epochs_before(self._log_start_offset)
        except OSError as error:
            raise self.refused("delete", error) from error

    def _forget_epochs_before(self, offset: int) -> None:
        """Epochs too many in the file do no harm: on a full disk they stay in it for now. Raises OSError."""
        if self._epochs.truncate_start(offset):
            try:
                self._epochs.write()
                self._unsynced_paths.append(self.directory)
            except OSError as error:
                if fault_of(error) is Fault.OFFLINE:
                    raise

    def apply_retention(self, now_ms: int) -> int:
        """Drop what the delete policy no longer wants, and forget idle producers; the number of segments dropped."""
        if not self._ready:
            self._load()
        config = self._config
        self._producers.expire(now_ms, config.producer_id_expiration_ms)
        if not config.deletes:
            return 0
        self._drop_below_start()
        try:
            count = max(self._expired_by_time(now_ms), self._expired_by_size())
            if count and count == len(self._segments):
                count = self._roll_for_retention(count, now_ms)
        except OSError as error:
            raise self.refused("retention", error) from error
        if count:
            self._raise_start(self._bases[count])
        return count

    def _roll_for_retention(self, count: int, now_ms: int) -> int:
        """All segments are to go: make a new one to take their place. Where there is no room for it, the last one stays
        until the others have gone. How many go now. Raises OSError."""
        try:
            self._roll(self._log_end_offset, now_ms)
        except OSError as error:
            if fault_of(error) is Fault.OFFLINE:
                raise
            return count - 1
        return count

    def _expired_by_time(self, now_ms: int) -> int:
        limit = self._config.retention_ms
        if limit < 0:
            return 0
        count = 0
        for number, segment in enumerate(self._segments):
            if not segment.size or not self._is_below_high_watermark(number):
                break
            if now_ms - segment.newest(self._io)[0] <= limit:
                break
            count += 1
        return count

    def _expired_by_size(self) -> int:
        limit = self._config.retention_bytes
        if limit < 0:
            return 0
        excess = sum(segment.size for segment in self._segments) - limit
        count = 0
        for number, segment in enumerate(self._segments):
            if not segment.size or excess < segment.size or not self._is_below_high_watermark(number):
                break
            excess -= segment.size
            count += 1
        return count

    def _is_below_high_watermark(self, number: int) -> bool:
        end = self._bases[number + 1] if number + 1 < len(self._bases) else self._log_end_offset
        return end <= self._high_watermark

    # -- damage ------------------------------------------------------------------------------------------------------

    def _met_damage(self, error: CorruptLogError) -> StorageError:
        """A segment's bytes are no batches: have them set aside. What to raise meanwhile."""
        for segment in [error.segment] if error.segment is not None else self._segments:
            if self.on_damage is None:
                self.repair(segment)
            elif segment is not self._repairing:
                self.on_damage(self, segment)
        return StorageError(f"{self.topic}-{self.partition} has damage that is being set aside: {error}")

    def found_damage(self, offset: int, error: Exception) -> StorageError:
        """A reader has found that the batch at `offset` is damaged. What to raise: asking again helps."""
        if not self._ready:
            self._load()
        segment = self._segments[max(bisect_right(self._bases, offset) - 1, 0)]
        return self._met_damage(CorruptLogError(f"{segment.path()} at offset {offset}: {error}", segment))

    def begin_repair(self, segment: Segment) -> RepairJob | None:
        """What it takes to mend a segment; None when it is no longer there. Ends with `end_repair`.

        The active segment is rolled first, and all that it holds is flushed. Raises StorageError.
        """
        if not self._ready or segment not in self._segments or self._repairing is not None:
            return None
        if segment is self._active:
            self.roll(segment.created_ms)
            if segment is self._active:
                return None
        following = self._bases[self._segments.index(segment) + 1]
        if self._high_watermark <= following:
            self.flush()
            if self._high_watermark == self._active.base_offset:
                self._high_segment, self._high_position = self._active, 0
        if segment is self._high_segment:
            return None
        self._repairing = segment
        return RepairJob(segment, following, self._config, self._tell)

    def end_repair(self, job: RepairJob, error: OSError | None = None) -> None:
        """`job` has run: readers get the mended segment. With an error all is as before."""
        self._repairing = None
        if not self._ready or job.damaged not in self._segments:
            return
        if error is not None:
            self._tell(
                "log.not.mended",
                topic=self.topic,
                partition=self.partition,
                file=os.path.basename(job.damaged.path()),
                reason=error,
            )
            return
        self._cache.forget(job.damaged)
        self._segments[self._segments.index(job.damaged)] = job.mended
        self._hints.clear()
        self._recent.clear()

    def repair(self, segment: Segment) -> None:
        """Mend a segment on the spot, for callers without an event loop. Raises StorageError."""
        job = self.begin_repair(segment)
        if job is None:
            return
        error: OSError | None = None
        try:
            job.run(self._io)
        except OSError as caught:
            error = caught
        self.end_repair(job, error)

    def _verify(self, segment: Segment, file: OpenFile, offset: int, position: int) -> None:
        """Look at the batch from which a reader reads a second time: its CRC may be why. Raises CorruptLogError."""
        if self._recent.get(offset):
            return
        if offset in self._recent:
            size = batch.parse_header(self._io.pread(file.fd, batch.HEADER_SIZE, position)).size_in_bytes
            try:
                batch.check(self._io.pread(file.fd, size, position) if size > 0 else b"")
            except KafkaError as error:
                raise CorruptLogError(f"{segment.path()} at {position}: {error}", segment) from None
        self._recent[offset] = offset in self._recent
        if len(self._recent) > _KEPT_HINTS:
            del self._recent[next(iter(self._recent))]

    # -- flush -------------------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushJob | None:
        """What a flush up to the log end has to do; None when nothing is owed. Ends with `end_flush`."""
        if not self._ready:
            if self._error is not None:
                raise self._error
            return None
        active = self._active
        files, paths = self._unsynced, self._unsynced_paths
        if not active.dirty and not files and not paths:
            return None
        if active.dirty:
            assert active.file is not None
            files = [*files, active.file]
            self._cache.clean(active)
        self._unsynced = []
        self._unsynced_paths = []
        self._flushed_at = self._log_end_offset
        size, self._unsynced_bytes = self._unsynced_bytes, 0
        return FlushJob(files, list(dict.fromkeys(paths)), self._log_end_offset, active, active.size, size)

    def reserve(self, job: FlushJob) -> None:
        """Before a flush: make room behind the log for more appends like those that it is for."""
        if self._fsync_first and self._ready and self._active.file is not None:
            self._active.reserve(self._io, job.size)

    def unreserve(self) -> None:
        """Let the file end where the log does, as appends have ceased. What fails is left to the next occasion."""
        if self._ready and self._active.reserved:
            with contextlib.suppress(OSError):
                self._active.release(self._io, self._cache.get(self._active))

    def end_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """`job` has run. With an error the vnode goes offline: a second fsync might succeed on pages already lost.

        One that has not begun is owed again.
        """
        if isinstance(error, NotBegunError):
            if self._ready:
                self._unsynced = [*job.files, *self._unsynced]
                self._unsynced_paths = [*job.paths, *self._unsynced_paths]
                self._unsynced_bytes += job.size
            return
        if error is not None:
            self._fail("flush", error)
            return
        if not self._ready:
            return
        if self._rolled_indexes:
            synced = set(job.paths)
            self._rolled_indexes = [path for path in self._rolled_indexes if path not in synced]
        if job.end_offset > self.recovery_point:
            self.recovery_point = job.end_offset
        if self._fsync_first and job.end_offset > self._high_watermark:
            self._advance(job.end_offset, job.segment, job.position)

    def flush(self) -> None:
        """A flush on the spot, for callers without an event loop."""
        job = self.begin_flush()
        if job is None:
            return
        try:
            job.run(self._io)
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
        try:
            self._active.write_indexes(self._io)
        except OSError as error:
            raise self.refused("index write", error) from error
        # A segment that was rolled since the last flush may end at the recovery point.
        return [self._active.path(INDEX_SUFFIX), self._active.path(TIME_INDEX_SUFFIX), *self._rolled_indexes]

    def _advance(self, offset: int, segment: Segment, position: int) -> None:
        self._high_watermark = offset
        self._high_segment = segment
        self._high_position = position
        if self.on_high_watermark.callables:
            self._notify()

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
        """A range of one segment file from the batch that contains `offset` (or the next one, over a gap).

        It ends on a batch boundary below the high watermark (and `max_offset`, exclusive) and within `max_bytes`, but
        for a first batch larger than that under `min_one_batch`. No slice where there is nothing to read. If
        it is to be `verified`, it ends before what was not looked at yet, or comes with a check. Raises `KafkaError`
        OFFSET_OUT_OF_RANGE outside the log.
        """
        if not self._ready:
            self._load()
        high = self._high_watermark
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise self._out_of_range(offset)
        limit = high if max_offset is None or max_offset > high else max_offset
        if offset >= limit:
            return ReadResult(None, high, self._log_start_offset, high)
        try:
            found, left, check = self._find_slice(offset, max_bytes, min_one_batch, limit, verified)
            return ReadResult(found, high, self._log_start_offset, high, left, check)
        except OSError as error:
            raise self.refused("read", error) from error
        except CorruptLogError as error:
            raise self._met_damage(error) from error

    def _find_slice(
        self, offset: int, max_bytes: int, min_one_batch: bool, limit: int, verified: bool
    ) -> tuple[FileSlice | None, int, CrcCheck | None]:
        io = self._io
        hint = self._hints.get(offset)
        # A hint at the end of a segment is of use only while that segment grows.
        if hint is not None and hint[1] < hint[0].size:
            segment, start = hint
            file = self._cache.get(segment)
        else:
            segment, file, start = self._locate(offset)
        if limit == self._high_watermark:
            last_segment, last_position = self._high_segment, self._high_position
        else:
            last_segment, _, last_position = self._locate(limit)
        if segment is last_segment:
            end = last_position
        elif segment.base_offset < last_segment.base_offset:
            end = segment.size
        else:
            return None, 0, None
        readable = end
        if end - start > max_bytes:
            end = segment.align(io, file, start, start + max_bytes, at_least_one=min_one_batch)
        check = None
        if verified and segment.unchecked_until:
            known = segment.checked_end(start, end)
            if known > start:
                end = known
            elif end > start:
                check = CrcCheck(io, segment, file, start, end)
        left = readable - end if segment is last_segment else LATER_SEGMENT
        if end <= start:
            return None, left, None
        self._verify(segment, file, offset, start)
        if segment is self._high_segment and end == self._high_position:
            self._remember(self._high_watermark, segment, end)
        elif end < segment.size:
            # The reader asks next for the batch after this range: its base offset stands there.
            data = io.pread(file.fd, 8, end)
            if len(data) == 8:
                self._remember(int.from_bytes(data), segment, end)
        # What was written lately is in the page cache.
        recent = segment is self._high_segment and self._high_position - start < _RECENT_BYTES
        return FileSlice(io, file, start, end - start, cached=recent), left, check

    def end_check(self, check: CrcCheck) -> FileSlice:
        """`check` has run: the whole batches at its start. Raises StorageError where the first one is damaged."""
        segment = check.segment
        if check.good > check.start:
            segment.note_checked(check.start, check.good)
            return check.slice()
        raise self._met_damage(CorruptLogError(f"{segment.path()} at {check.start}: {check.error}", segment))

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        hints[offset] = (segment, position)
        if len(hints) > _KEPT_HINTS:
            del hints[next(iter(hints))]

    def _locate(self, offset: int) -> tuple[Segment, OpenFile, int]:
        """Segment, file and position of the first batch that ends at or after `offset`; else the end of the log."""
        number = max(bisect_right(self._bases, offset) - 1, 0)
        while True:
            segment = self._segments[number]
            file = self._cache.get(segment)
            if segment.size:
                if segment.index is None:
                    self._load_indexes(segment)
                try:
                    found = segment.find(self._io, file, offset, segment.size)
                except CorruptLogError:
                    # The index misled: build it anew. If the log itself is damaged, that raises.
                    self._rebuild_indexes(segment)
                    found = segment.find(self._io, file, offset, segment.size)
                if found is not None:
                    return segment, file, found[0]
            number += 1
            if number == len(self._segments):
                return segment, file, segment.size

    def _load_indexes(self, segment: Segment) -> None:
        """Read the indexes, or build them anew from the log where they are unusable."""
        try:
            segment.load_indexes(self._io)
        except CorruptLogError:
            self._rebuild_indexes(segment)

    def _rebuild_indexes(self, segment: Segment) -> None:
        segment.rebuild_indexes(self._io, self._cache.get(segment), self._config.index_interval_bytes)
        try:
            segment.replace_indexes(self._io, sync=False)
        except OSError as error:
            if fault_of(error) is Fault.OFFLINE:
                raise

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not within {self._log_start_offset} to {self._log_end_offset}",
        )

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first readable record at or after `timestamp`; None when there is none.

        On the spot: an event loop runs the `time_scans` in a thread.
        """
        with self._reading():
            for scan in self.time_scans(timestamp):
                found = scan.run()
                if found is not None:
                    return found
        return None

    def time_scans(self, timestamp: int) -> Iterator[TimeScan]:
        """Where to look for the first readable record at or after `timestamp`; the first that finds one ends it.

        Between two of them the vnode may change.
        """
        if not self._ready:
            self._load()
        for segment in list(self._segments):
            if not segment.size or segment.base_offset >= self._high_watermark or segment not in self._segments:
                continue
            with self._reading():
                newest, at = segment.newest(self._io)
                scan = None if at >= 0 and newest < timestamp else self._time_scan(segment, timestamp)
            if scan is not None:
                yield scan

    def _time_scan(self, segment: Segment, timestamp: int) -> TimeScan | None:
        io = self._io
        file = self._cache.get(segment)
        self._load_indexes(segment)
        assert segment.times is not None
        offset = max(segment.base_offset + index.floor_time(segment.times, timestamp), self._log_start_offset)
        end = self._high_position if segment is self._high_segment else segment.size
        found = segment.find(io, file, offset, end)
        if found is None:
            return None
        return TimeScan(io, segment, file, found[0], end, timestamp, self._log_start_offset, self._high_watermark)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Errors of a read become StorageError."""
        try:
            yield
        except (OSError, CorruptLogError) as error:
            raise self.read_failed(error) from error

    def read_failed(self, error: OSError | CorruptLogError) -> StorageError:
        """What to raise for an error of a read, such as that of a `TimeScan`."""
        return self._met_damage(error) if isinstance(error, CorruptLogError) else self.refused("read", error)

    def newest_timestamp(self) -> int:
        """The newest timestamp of all records; -1 in a log without timestamps."""
        if not self._ready:
            self._load()
        newest = -1
        with self._reading():
            for segment in self._segments:
                timestamp, at = segment.newest(self._io)
                if at >= self._log_start_offset:
                    newest = max(newest, timestamp)
        return newest

    def max_timestamp_offset(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the newest timestamp; None in a log without timestamps."""
        newest = self.newest_timestamp()
        return self.offset_for_timestamp(newest) if newest >= 0 else None

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch`, and the offset at which it ended; (-1, -1) when unknown."""
        if not self._ready:
            self._load()
        return self._epochs.end_offset(epoch, self._log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which `offset` was, or will be, written; -1 when unknown."""
        if not self._ready:
            self._load()
        return max((epoch for epoch, start in self._epochs.entries if start <= offset), default=-1)

    def _prune_snapshots(self) -> None:
        """Remove producer snapshots that neither a segment nor the log end needs."""
        needed = {*self._bases, self._log_end_offset}
        for offset in snapshot_offsets(self._io.listdir(self.directory)):
            if offset not in needed:
                self._remove_now([snapshot_path(self.directory, offset)])


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
