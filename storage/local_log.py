"""A log in one folder of a local disk: opened when it is first used, flushed, closed, and what an error costs it.

- Its files are read when it is first used, not when it is created. `Opened` holds its parts while it is open.
- Under the fsync policy the high watermark is the durable end: it moves when a flush that covers it is done. Otherwise
  it is the log end.
- `storage.faults` says what an I/O error costs. If an error leaves it unknown whether bytes are on disk, the log goes
  offline: every call raises `StorageError` until the data directory is opened again, so that nothing is acknowledged on
  top of those bytes. After any other error the log, on disk and in memory, is as before the call.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from barnabas.storage.appender import Appender
from barnabas.storage.checkpoints import decode_topic_id, read_topic_id
from barnabas.storage.compaction import LocalCompaction
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptLogError, NotLeaderError, StorageError
from barnabas.storage.faults import Fault, NotBegunError, fault_of
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io, write_file
from barnabas.storage.layout import METADATA_FILE
from barnabas.storage.log import Log
from barnabas.storage.reader import Reader
from barnabas.storage.recovery import list_segments, recover_partition
from barnabas.storage.replacement import sweep_unplaced
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.segment import Segment
from barnabas.storage.unflushed import LocalFlushJob
from barnabas.storage.validation import Rules
from barnabas.storage.vnode import Callbacks, FlushJob
from barnabas.storage.watermarks import Watermarks
from barnabas.wire.uuids import encode_uuid

if TYPE_CHECKING:
    from barnabas.storage.replacing import ReplacingLog

J = TypeVar("J")


@dataclass(slots=True, eq=False)
class Opened:
    """The parts of an open log. They work on the files, and let the files' exceptions through."""

    log: Log
    marks: Watermarks
    appender: Appender
    reader: Reader


class LocalLog(ABC):
    """See the module. The contracts of `LocalVnode`'s methods are in `storage.vnode.Vnode`."""

    __slots__ = (
        "_cache",
        "_compacting",
        "_config",
        "_discard",
        "_error",
        "_expected_start",
        "_fsync_first",
        "_full",
        "_io",
        "_leaving",
        "_opened",
        "_repairing",
        "_tell",
        "_topic_id",
        "_under_way",
        "cleaned_to",
        "directory",
        "leader_epoch",
        "needs_recovery",
        "on_damage",
        "on_high_watermark",
        "on_idle",
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
        cleaned_to: int = 0,
        discard: Callable[[list[str]], None] | None = None,
        tell: Tell = tell_logging,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.leader_epoch = 0
        self.on_high_watermark = Callbacks()
        #: Everything below this offset is on disk, with its index entries.
        self.recovery_point = recovery_point
        #: Everything below this offset is compacted, as far as a pass could know.
        self.cleaned_to = cleaned_to
        #: Called to repair a damaged segment later (`begin_repair`); if it is None, the repair runs on the spot.
        self.on_damage: Callable[[ReplacingLog, Segment], None] | None = None
        #: A stop was not clean, and there were no descriptors or no room to recover: the first use recovers.
        self.needs_recovery = False
        #: Called when no thread works on the files any more.
        self.on_idle: Callable[[], None] | None = None
        self._under_way = 0  # jobs given out that have not ended yet
        self._io = io
        self._cache = cache
        self._discard = discard
        self._tell = tell
        self._full = False  # the last append found no room
        self._expected_start = log_start_offset
        self._opened: Opened | None = None
        self._leaving: Opened | None = None  # the parts of a resigned log, until it is closed
        self._repairing: Segment | None = None
        self._compacting: LocalCompaction | None = None
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
        if (opened := self._opened) is not None:
            opened.log.config = config
            opened.appender.rules = self.rules
            if not self._fsync_first:
                self._show_all(opened)

    @property
    def waits_for_fsync(self) -> bool:
        return self._fsync_first

    @property
    def loaded(self) -> bool:
        return self._opened is not None

    @property
    def error(self) -> StorageError | None:
        return self._error

    @property
    def place(self) -> str:
        return self.directory

    @property
    def topic_id(self) -> bytes:
        """The id in `partition.metadata`. Raises StorageError if it cannot be read."""
        if self._topic_id is None:
            try:
                self.note_topic_id(read_topic_id(self._io, self.directory))
            except OSError as error:
                raise self.refused("read the topic id", error) from error
        assert self._topic_id is not None
        return self._topic_id

    def note_topic_id(self, text: str) -> None:
        """Take the id of `partition.metadata`, already read: URL-safe base64."""
        self._topic_id = decode_topic_id(text)

    @property
    def checkpointed_start(self) -> int:
        """The log start offset if the folder on disk does not show it, else 0."""
        log = self._opened.log if self._opened is not None else None
        if log is not None and log.start_offset == log.bases[0] and not log.unflushed.has_dropped:
            return 0
        return self._expected_start

    def stored_bytes(self) -> int | None:
        try:
            return sum(segment.size for segment in list_segments(self._io, self.directory))
        except FileNotFoundError:
            return None

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
            opened = self._load()
        except OSError as error:
            raise self.refused("create", error) from error
        opened.log.unflushed.paths += [metadata, self.directory, os.path.dirname(self.directory)]

    def begin_at(self, offset: int) -> None:
        """See `Vnode`.

        Only the names of its files say where an empty log begins, so new files are made. A crash in between leaves the
        log as it was, a log that begins at `offset`, or no log file; then the next start makes one that begins at 0.
        """
        log = (self._opened or self._load()).log
        if log.end_offset:
            raise ValueError(f"{self.topic}-{self.partition} has held records: its log ends at {log.end_offset}")
        try:
            log.remove()
            self._expected_start = offset
            begun = self._open().log
            begun.forget_epochs_before(offset)
        except OSError as error:
            self._opened = None  # some of the files may be gone: the next call reads the folder again
            raise self.refused("begin", error) from error
        begun.unflushed.paths += [*log.unflushed.paths, self.directory]
        self._notify()

    def load(self) -> None:
        """Read the files now rather than at the first use."""
        if self._opened is None:
            self._load()

    def _load(self) -> Opened:
        self._check()
        try:
            try:
                if self.needs_recovery:
                    self._recover()
                return self._open()
            except CorruptLogError:
                self._recover()
                return self._open()
        except OSError as error:
            raise self.refused("load", error) from error
        except CorruptLogError as error:
            raise self._fail("load", error) from error

    def _check(self) -> None:
        """Raises StorageError if the partition is offline. The traceback of earlier raises is cleared first: each raise
        would make it longer, and it keeps every object of its frames alive."""
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _recover(self) -> None:
        self.recovery_point = recover_partition(self._io, self.directory, self.recovery_point, self._config, self._tell)
        self.needs_recovery = False

    def _open(self) -> Opened:
        """Make the parts from the files."""
        log = Log(
            self.directory,
            self._config,
            io=self._io,
            cache=self._cache,
            discard=self._discard,
            start_offset=self._expected_start,
        )
        for path in log.producers.damaged:
            self.tell_rebuilt(path, "the snapshot is damaged")
            with contextlib.suppress(OSError):
                self._io.unlink(path)  # else each start would find it again
        marks = Watermarks(log.end_offset, log.active, log.active.size, log.producers.undecided)
        self._opened = Opened(log, marks, Appender(log, self.rules), Reader(log, marks))
        self.recovery_point = log.end_offset
        return self._opened

    def tell_rebuilt(self, path: str, reason: object) -> None:
        """Report that the content of a file was rebuilt from the log."""
        name = os.path.basename(path)
        self._tell("index.rebuilt", topic=self.topic, partition=self.partition, file=name, reason=reason)

    def close(self) -> list[str]:
        """Write what only memory holds, and close the files. The caller has flushed, and syncs the paths it gets."""
        opened = self._opened or self._leaving
        if opened is None:
            return []
        try:
            return opened.log.close()
        except OSError as error:
            raise self._not_closed(error) from error
        finally:
            self._release()

    def _not_closed(self, error: OSError) -> StorageError:
        """The log is whole and flushed; without room for its indexes and its snapshot, it is recovered when opened."""
        if fault_of(error) is Fault.OFFLINE:
            return self._fail("close", error)
        self.needs_recovery = True
        self._tell("partition.not_closed", topic=self.topic, partition=self.partition, reason=error)
        return StorageError(f"{self.topic}-{self.partition} cannot be closed now: {error}")

    def abandon(self) -> None:
        """Close the files of a partition that is being deleted; later calls raise `StorageError`."""
        self._error = StorageError(f"partition {self.topic}-{self.partition} is deleted")
        self._release()
        self._notify()

    def resign(self, reason: StorageError) -> None:
        """Another node is to lead the partition: every call raises `reason` from now on, also those that wait.

        Jobs in progress still end; `is_idle` says when. After that `close` can still write what only memory holds. A
        log that needs a recovery by now (`needs_recovery`) cannot be left in order.
        """
        if self.is_resigned:
            return
        if self._error is not None:
            self.needs_recovery = True
        self._error = reason
        self._leaving, self._opened = self._opened, None
        if self._compacting is not None:
            self._compacting.stop()
        self._notify()

    @property
    def is_resigned(self) -> bool:
        return isinstance(self._error, NotLeaderError)

    @property
    def is_idle(self) -> bool:
        """Whether every job that has begun has ended."""
        return not self._under_way

    def _begun(self, job: J) -> J:
        self._under_way += 1
        return job

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way and self.on_idle is not None:
            self.on_idle()

    def sweep(self) -> None:
        """Unlink the files of jobs whose result a resigned log did not take over. For a thread. Raises OSError."""
        if not self.needs_recovery:  # recovery knows what to finish
            sweep_unplaced(self._io, self.directory)

    def _release(self) -> None:
        if self._leaving is not None:
            self._leaving.log.release()
            self._leaving = None
        if self._compacting is not None:
            self._compacting.disown()
            self._compacting = None
        if self._opened is not None:
            self._opened.log.release()
            self._opened = None

    def fail(self, action: str, error: Exception) -> None:
        self._fail(action, error)

    def _fail(self, action: str, error: Exception) -> StorageError:
        if self._leaving is not None:
            self.needs_recovery = True
            self._tell("partition.offline", topic=self.topic, partition=self.partition, action=action, reason=error)
            self._release()
        if self._error is None:
            self._error = StorageError(f"{self.topic}-{self.partition} is offline: {action} failed: {error}")
            self._tell("partition.offline", topic=self.topic, partition=self.partition, action=action, reason=error)
            self._release()
            self._notify()
        return self._error

    def refused(self, action: str, error: OSError) -> StorageError:
        """The exception to raise for an I/O error (not of an fsync) of `action`; see `storage.faults`."""
        fault = fault_of(error)
        if fault is Fault.OFFLINE:
            return self._fail(action, error)
        if fault is Fault.SPACE and not self._full:
            self._full = True
            self._tell("partition.full", topic=self.topic, partition=self.partition, action=action, reason=error)
        return StorageError(f"{self.topic}-{self.partition}: {action} is not possible now: {error}")

    # -- flush -------------------------------------------------------------------------------------------------------

    def begin_flush(self) -> LocalFlushJob | None:
        if self._opened is None:
            self._check()
            return None
        return self._begin_flush(self._opened)

    def begin_last_flush(self) -> LocalFlushJob | None:
        """Like `begin_flush`, before `close`; also works for a resigned log."""
        opened = self._opened or self._leaving
        return None if opened is None else self._begin_flush(opened)

    def _begin_flush(self, opened: Opened) -> LocalFlushJob | None:
        job = opened.log.unflushed.begin(opened.log)
        return None if job is None else self._begun(job)

    def reserve(self, job: FlushJob) -> None:
        """Make room behind the log for more appends like those in the job."""
        if self._fsync_first and self._opened is not None:
            active = self._opened.log.active
            if active.file is not None:
                active.reserve(self._io, job.size)

    def unreserve(self) -> None:
        """Cut the file to the log's end, as appends have ceased. If it fails, a later call tries again."""
        if self._opened is not None and (active := self._opened.log.active).reserved:
            with contextlib.suppress(OSError):
                active.release(self._io, self._cache.get(active))

    def end_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """`job` has run. With an error the vnode goes offline: a second fsync might succeed on pages already lost.

        A flush that has not begun is owed again.
        """
        assert isinstance(job, LocalFlushJob)
        try:
            self._end_flush(job, error)
        finally:
            self._ended()

    def _end_flush(self, job: LocalFlushJob, error: OSError | None) -> None:
        if error is not None and not isinstance(error, NotBegunError):
            self._fail("flush", error)
            return
        if (opened := self._opened or self._leaving) is None:
            return
        if error is not None:
            opened.log.unflushed.put_back(job)
            return
        opened.log.unflushed.end(job)
        if job.end_offset > self.recovery_point:
            self.recovery_point = job.end_offset
        if self._fsync_first and opened is self._opened and job.end_offset > opened.marks.high_watermark:
            opened.marks.advance(job.end_offset, job.segment, job.position)
            if self.on_high_watermark.callables:
                self._notify()

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
        """Write the index entries that are only in memory. Gives the files to sync before the recovery point moves.

        Raises StorageError; if there is no room, the entries stay in memory.
        """
        if self._opened is None:
            return []
        active = self._opened.log.active
        try:
            active.write_indexes(self._io)
        except OSError as error:
            raise self.refused("index write", error) from error
        return [*active.index_paths(), *self._opened.log.unflushed.rolled_indexes]

    @abstractmethod
    def _notify(self) -> None:
        """Call the waiters for the high watermark."""

    def _show_all(self, opened: Opened) -> None:
        """Move the high watermark to the log end."""
        log, marks = opened.log, opened.marks
        end = log.end_offset
        if end != marks.high_watermark:
            marks.advance(end, log.active, log.active.size)
            if self.on_high_watermark.callables:
                self._notify()

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        log = (self._opened or self._load()).log
        if not log.active.size:
            return
        try:
            log.roll(log.end_offset, now_ms)
        except OSError as error:
            raise self.refused("roll", error) from error
