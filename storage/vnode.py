"""What a vnode is to everybody but storage: one partition's write-ahead log, wherever its bytes lie.

Brokers and coordinators speak to a `Vnode` and to what it gives them: slices of its log, and jobs. None of them names a
file, so that a log which does not lie in files can stand behind the same handlers (docs/decisions/0019).

Sync and single-threaded: all calls come from the event loop's thread and are short. Slow work leaves as a job, whose
`run` goes to a thread and touches no vnode; it ends with a call that is given the job back.

Invariants:
- `last_stable_offset <= high_watermark <= log_end_offset`, and `log_start_offset <= high_watermark`. Readers see
  nothing at or above the high watermark.
- What a call raises is a `KafkaError`: `StorageError` where the disk is at fault.
- A vnode that is offline (`error`) raises that error from every call, and tells those who listen to it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

import msgspec

from barnabas.storage.compaction_terms import CompactionFigures, CompactionLimits, Need
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.producer_state import Producer
from barnabas.storage.txn_index import AbortedTransaction
from barnabas.storage.validation import Rules, Valid
from barnabas.storage.verification import Verification
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import Marker

ZERO_ID = bytes(16)
LATER_SEGMENT = 1 << 62


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


class Slice(Protocol):
    """A range of a log, whole batches, as an answer carries it. It stays readable while it is referenced."""

    #: It is known to be in memory, so that sending or reading it does not wait for the disk.
    cached: bool

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """All of it. Raises OSError."""

    def send(self, sock: socket.socket) -> int:
        """Send what the socket takes without waiting; how many bytes, 0 where the range ends before its length says.

        Raises BlockingIOError, OSError.
        """

    def first(self, size: int) -> Slice:
        """The first `size` bytes of the range."""

    def rest(self, sent: int) -> Slice:
        """What is left of the range after its first `sent` bytes."""

    def look_cached(self) -> bool:
        """Whether it is in memory by now, without waiting for the disk; noted in `cached`."""

    def warm(self) -> None:
        """Bring it into memory. For a thread: this is what takes as long as the disk. Raises OSError."""


class Check(Protocol):
    """A look at the CRCs of a range that would be sent, and that nobody has looked at yet; ends with `end_check`."""

    def __len__(self) -> int:
        """Bytes of the range."""

    def run(self) -> None:
        """For a thread. What it meets, the end tells."""


class TimeScan(Protocol):
    """A walk over a stretch of the log for the first record of a time; ends with `end_scan`."""

    def run(self) -> None:
        """For a thread. What it finds or meets, the end tells."""


class FlushJob(Protocol):
    """What one flush has to make durable; ends with `end_flush`."""

    @property
    def end_offset(self) -> int:
        """Everything below is durable when it has run."""

    @property
    def size(self) -> int:
        """Bytes written since the last flush."""

    @property
    def syncs(self) -> int:
        """How many fsyncs it is, or calls that take as long."""

    @property
    def lone_fd(self) -> int | None:
        """The descriptor whose fdatasync is all of the job, if that is so: the kernel can do it without a thread."""

    def run(self) -> None:
        """For a thread. Raises OSError; NotBegunError if it is owed as before."""


class ReadResult(msgspec.Struct, frozen=True):
    slice: Slice | None
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    #: Readable bytes that the range leaves out; LATER_SEGMENT if there are some in a later one.
    left: int = 0
    #: What must be run, and given to `end_check`, before the range may be sent.
    check: Check | None = None
    #: The offset behind the range.
    end_offset: int = -1


class CompactionJob(Protocol):
    """A compaction, part by part; after each, `end_compaction`."""

    #: What it has done so far.
    figures: CompactionFigures
    #: All is clean that it set out to clean.
    is_done: bool

    def run(self) -> None:
        """For a thread: the next part. Raises what `end_compaction` is given."""

    def stop(self) -> None:
        """Let `run` end soon."""


class Callbacks:
    """Callables that want to hear of a vnode's progress; nothing to do while there are none."""

    __slots__ = ("callables",)

    def __init__(self) -> None:
        self.callables: dict[Callable[[Vnode], None], None] = {}

    def subscribe(self, callback: Callable[[Vnode], None]) -> None:
        self.callables[callback] = None

    def unsubscribe(self, callback: Callable[[Vnode], None]) -> None:
        self.callables.pop(callback, None)

    def notify(self, vnode: Vnode) -> None:
        for callback in list(self.callables):
            callback(vnode)


class Vnode(Protocol):
    """One partition's log. A key in dicts and sets by its identity."""

    #: The topic's settings; when they change, so does `rules`.
    config: LogConfig
    #: Of the partition's leader, which is this broker: batches and markers that are appended get it (KIP-101).
    leader_epoch: int
    #: Hears when the high watermark or the log start moves, and when the vnode goes offline.
    on_high_watermark: Callbacks

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def place(self) -> str:
        """Where the log lies, for the operator to read."""

    @property
    def topic_id(self) -> bytes:
        """Of the topic that it belongs to; ZERO_ID where nothing says. Raises StorageError."""

    @property
    def rules(self) -> Rules:
        """What a producer's batch must obey."""

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def error(self) -> StorageError | None:
        """Why the vnode is offline, or None."""

    @property
    def loaded(self) -> bool:
        """Whether it is in use since the start: if not, the first call to need the log looks at it."""

    @property
    def waits_for_fsync(self) -> bool:
        """Whether the high watermark waits for a flush."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see: the high watermark, or where the oldest transaction begins
        whose marker is not below it."""

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def segment_count(self) -> int: ...

    @property
    def appended(self) -> tuple[int, int]:
        """Bytes and records that were appended since the log was loaded, without markers of transactions."""

    def stored_bytes(self) -> int | None:
        """As `size_bytes`, without loading the log; None when it is gone. May be called in a thread."""

    # -- append ------------------------------------------------------------------------------------------------------

    def append(self, data: BytesLike, *, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendResult:
        """Write one batch (several under REPLICATION) at the log's end; not durable yet.

        Whether that is enough to acknowledge it is the flusher's to say. Raises `KafkaError`: CORRUPT_MESSAGE,
        INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR; after any but the last the vnode is as before.
        Under QUERY OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER for a batch that does not begin at the log's
        end.
        """

    def append_valid(self, valid: Valid, *, now_ms: int) -> AppendResult:
        """As `append`, for one batch that `storage.validation.validate` has let pass under this vnode's `rules`."""

    def end_transaction(self, marker: Marker, *, new_epoch: bool, now_ms: int) -> AppendResult:
        """Write the marker of a transaction, as its coordinator; not durable yet.

        `new_epoch`: the marker's epoch is higher than that of the batches that it ends (transaction version 2). Raises
        `KafkaError` INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction open here in this epoch: what it writes belongs to that one."""

    def begin_verification(self, verification: Verification) -> None:
        """The coordinator is about to be asked whether a transaction may begin here. Raises StorageError."""

    def check_verification(self, verification: Verification) -> None:
        """Whether the transaction may begin now: what the coordinator has said still holds.

        The append follows in the same turn. Raises `KafkaError` NOT_ENOUGH_REPLICAS where a marker came between,
        OUT_OF_ORDER_SEQUENCE_NUMBER where an earlier batch waits for the same.
        """

    def end_verification(self, verification: Verification) -> None:
        """Whoever began it has done what it was for."""

    # -- flush -------------------------------------------------------------------------------------------------------

    @property
    def unflushed_messages(self) -> int:
        """Offsets appended since the last flush began or ended."""

    def begin_flush(self) -> FlushJob | None:
        """What a flush up to the log end has to do; None when nothing is owed. Raises StorageError."""

    def reserve(self, job: FlushJob) -> None:
        """Before a flush: make room for more appends like those that it is for."""

    def unreserve(self) -> None:
        """Give that room back, as appends have ceased."""

    def end_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """`job` has run: with an error the vnode goes offline, with NotBegunError the flush is owed again."""

    def flush(self) -> None:
        """A flush on the spot, for callers without an event loop. Raises StorageError."""

    def fail(self, action: str, error: Exception) -> None:
        """Take the vnode offline because `action` failed, and its outcome is not known."""

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
        """A range of the log from the batch that contains `offset` (or the next one, over a gap).

        It ends on a batch boundary below the high watermark (and `max_offset`, exclusive) and within `max_bytes`, but
        for a first batch larger than that under `min_one_batch`. No slice where there is nothing to read. If
        it is to be `verified`, it ends before what was not looked at yet, or comes with a check. Raises `KafkaError`
        OFFSET_OUT_OF_RANGE outside the log.
        """

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with offsets from `start` up to `end`: what a read_committed consumer of that range must pass over."""

    def aborted_limit(self, start: int, end: int, most: int) -> int:
        """Up to where, from `start` to at most `end`, a range has at most `most` markers that abort."""

    def open_transaction(self, producer_id: int) -> int | None:
        """Where the open transaction of a producer begins, None if it has none."""

    def active_producers(self) -> Iterator[tuple[int, Producer]]:
        """The producers that are remembered, by their ids."""

    def end_check(self, check: Check) -> Slice:
        """`check` has run: the whole batches at its start. Raises StorageError where the first one is damaged."""

    def found_damage(self, offset: int, error: Exception) -> StorageError:
        """A reader has found that the batch at `offset` is damaged. What to raise: asking again helps."""

    def mending_on_the_spot(self) -> AbstractContextManager[None]:
        """While it is held, damage is mended where it is met, for callers without an event loop."""

    def newest_timestamp(self) -> int:
        """The newest timestamp of all records; -1 in a log without timestamps."""

    def time_scans(self, timestamp: int) -> Iterator[TimeScan]:
        """Where to look for the first readable record at or after `timestamp`; the first that finds one ends it.

        Between two of them the vnode may change.
        """

    def end_scan(self, scan: TimeScan) -> tuple[int, int] | None:
        """`scan` has run: offset and timestamp of the record, None if it has found none. Raises KafkaError."""

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """What the scans find, on the spot."""

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch`, and the offset at which it ended; (-1, -1) when unknown."""

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which `offset` was, or will be, written; -1 when unknown."""

    # -- deletion ----------------------------------------------------------------------------------------------------

    def begin_at(self, offset: int) -> None:
        """Let a log that has never held a record begin, and so end, at `offset`. Durable with the first flush.

        Raises ValueError if there have been records, StorageError.
        """

    def roll(self, now_ms: int) -> None:
        """Let what is appended next be deletable apart from what is there. Raises StorageError."""

    def truncate_prefix(self, offset: int) -> None:
        """Raise the log start offset to `offset` (DeleteRecords). Raises KafkaError OFFSET_OUT_OF_RANGE."""

    def apply_retention(self, now_ms: int) -> int:
        """Drop what the delete policy no longer wants, and forget idle producers; the number of segments dropped."""

    # -- compaction --------------------------------------------------------------------------------------------------

    def may_need_compaction(self) -> bool:
        """Whether it is worth it to load the log for `compaction_need`. May be called in a thread."""

    def compaction_need(self, now_ms: int) -> Need:
        """What there is to clean. Raises StorageError."""

    def begin_compaction(self, now_ms: int, limits: CompactionLimits) -> CompactionJob | None:
        """Clean what is dirty; None if there is nothing, or it is not possible now. Raises StorageError."""

    def end_compaction(self, job: CompactionJob, error: Exception | None = None) -> bool:
        """A part of `job` has run: readers get what it has made. Whether there is more to run.

        With an error, or after one, the log is as it was before the part. Raises StorageError where the compaction
        could not go on; where the log has changed under it, it ends without.
        """
