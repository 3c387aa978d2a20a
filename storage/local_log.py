"""A log in one folder of a local disk: opened when it is first used, flushed, closed, and what an error costs it.

- Its files are looked at when it is first used, not when it is created. `Opened` are its parts while it is open.
- Under the fsync policy the high watermark is the durable end: it moves when a flush that covers it is done. Otherwise
  it is the log end.
- An I/O error costs what `storage.faults` says. After one that leaves the fate of bytes unknown the log is offline:
  every call raises `StorageError` until the data directory is opened again, so that nothing is acknowledged on top of
  them. After any other one the log and what memory knows of it are as before the call.
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
    """The parts of a log that is open. They work on the files, and raise what the files raise."""

    log: Log
    marks: Watermarks
    appender: Appender
    reader: Reader


class LocalLog(ABC):
    """See the module; `LocalVnode` has its methods' contracts from `storage.vnode.Vnode`."""

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
        #: Everything below is on disk, with its index entries.
        self.recovery_point = recovery_point
        #: Everything below is compacted, as far as a pass could know.
        self.cleaned_to = cleaned_to
        #: Called to have a damaged segment repaired (`begin_repair`); without it, it is repaired on the spot.
        self.on_damage: Callable[[ReplacingLog, Segment], None] | None = None
        #: A stop was not clean, and there were no descriptors or no room to recover: the first use does it.
        self.needs_recovery = False
        #: Called when nothing works on the files in a thread any more.
        self.on_idle: Callable[[], None] | None = None
        self._under_way = 0  # jobs of others that have begun and not ended
        self._io = io
        self._cache = cache
        self._discard = discard
        self._tell = tell
        self._full = False  # the last append found no room
        self._expected_start = log_start_offset
        self._opened: Opened | None = None
        self._leaving: Opened | None = None  # the parts of a log that was resigned, until it is closed
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
        self._topic_id = decode_topic_id(text)

    @property
    def checkpointed_start(self) -> int:
        """The log start offset where the folder alone, as it is on disk, does not tell it, else 0."""
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

        Only the names of its files say where an empty log begins, so they are made anew. A crash in between leaves the
        log as it was, one that begins at `offset`, or no log file: the next start makes one that begins at 0 again.
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
            self._opened = None  # some of the files may be gone: the next call looks again
            raise self.refused("begin", error) from error
        begun.unflushed.paths += [*log.unflushed.paths, self.directory]
        self._notify()

    def load(self) -> None:
        """Look at the files now rather than at the first use."""
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
        """Raises StorageError if the partition is offline, without what earlier raises of that error have left in it:
        each would add to its traceback, and keep all that was at work then."""
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _recover(self) -> None:
        self.recovery_point = recover_partition(self._io, self.directory, self.recovery_point, self._config, self._tell)
        self.needs_recovery = False

    def _open(self) -> Opened:
        """Make the parts anew from the files."""
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
                self._io.unlink(path)  # else it is met at each start
        marks = Watermarks(log.end_offset, log.active, log.active.size, log.producers.undecided)
        self._opened = Opened(log, marks, Appender(log, self.rules), Reader(log, marks))
        self.recovery_point = log.end_offset
        return self._opened

    def tell_rebuilt(self, path: str, reason: object) -> None:
        """What a file said was read from the log."""
        name = os.path.basename(path)
        self._tell("index.rebuilt", topic=self.topic, partition=self.partition, file=name, reason=reason)

    def close(self) -> list[str]:
        """Write what only memory holds and let go of the files. The caller has flushed, and syncs the paths it gets."""
        opened = self._opened or self._leaving
        if opened is None:
            return []
        try:
            return opened.log.close()
        except OSError as error:
            raise self._fail("close", error) from error
        finally:
            self._release()

    def abandon(self) -> None:
        """Let go of the files of a partition that is being deleted; later calls raise `StorageError`."""
        self._error = StorageError(f"partition {self.topic}-{self.partition} is deleted")
        self._release()
        self._notify()

    def resign(self, reason: StorageError) -> None:
        """Another node is to lead the partition: every call raises `reason` from now on, and who waits is told.

        Jobs that are under way still end; `is_idle` says when. After that `close` still finds what is to be written.
        One that needs a recovery by now (`needs_recovery`) cannot be left in order.
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
        """Whether no job that has begun is still to end."""
        return not self._under_way

    def _begun(self, job: J) -> J:
        self._under_way += 1
        return job

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way and self.on_idle is not None:
            self.on_idle()

    def sweep(self) -> None:
        """Unlink what jobs have left that a resigned log did not take over. For a thread. Raises OSError."""
        if not self.needs_recovery:  # which knows what to finish
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
        """What to raise for an I/O error (not of an fsync) of `action`; see `storage.faults`."""
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
        """As `begin_flush`, before `close`; also of a log that was resigned."""
        opened = self._opened or self._leaving
        return None if opened is None else self._begin_flush(opened)

    def _begin_flush(self, opened: Opened) -> LocalFlushJob | None:
        job = opened.log.unflushed.begin(opened.log)
        return None if job is None else self._begun(job)

    def reserve(self, job: FlushJob) -> None:
        """Make room behind the log for more appends like those that the job is for."""
        if self._fsync_first and self._opened is not None:
            active = self._opened.log.active
            if active.file is not None:
                active.reserve(self._io, job.size)

    def unreserve(self) -> None:
        """Let the file end where the log does, as appends have ceased. What fails is left to the next occasion."""
        if self._opened is not None and (active := self._opened.log.active).reserved:
            with contextlib.suppress(OSError):
                active.release(self._io, self._cache.get(active))

    def end_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """`job` has run. With an error the vnode goes offline: a second fsync might succeed on pages already lost.

        One that has not begun is owed again.
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
        """Write the index entries that are only in memory; the files to sync before a new recovery point is stated.

        Raises StorageError; where there is no room, the entries stay in memory.
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
        """Call those who wait for the high watermark."""

    def _show_all(self, opened: Opened) -> None:
        """The high watermark is the log end."""
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
