"""The interface of a vnode, for all packages outside storage: one partition's write-ahead log, wherever its bytes are.

Brokers and coordinators use a `Vnode` and what it gives them: slices of its log, and jobs. None of these names a file,
so a log that is not in files can serve the same handlers (docs/decisions/0019).

Sync and single-threaded: all calls come from the event loop's thread and are short. Slow work becomes a job, whose
`run` goes to a thread and touches no vnode. A job ends with a call that gets the job back.

Invariants:
- `last_stable_offset <= high_watermark <= log_end_offset`, and `log_start_offset <= high_watermark`. Readers see
  nothing at or above the high watermark.
- A call raises only `KafkaError`: `StorageError` if the disk is at fault.
- A vnode that is offline (`error`) raises that error from every call, and notifies its listeners.
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
    QUERY = "query"  # offsets are those of another log: a batch begins where the last one ended, and may have gaps


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    base_offset: int
    last_offset: int
    append_time_ms: int  # -1 unless the topic has LogAppendTime
    log_start_offset: int
    duplicate: bool = False


class Slice(Protocol):
    """A range of a log, whole batches, as it goes into an answer. It stays readable while it is referenced."""

    #: Whether it is known to be in memory, so that sending or reading it does not wait for the disk.
    cached: bool

    def __len__(self) -> int: ...

    def read(self) -> bytes:
        """All of it. Raises OSError."""

    def send(self, sock: socket.socket) -> int:
        """Send as much as the socket takes without waiting. Gives the bytes sent; 0 if the range ends too early.

        Raises BlockingIOError, OSError.
        """

    def first(self, size: int) -> Slice:
        """The first `size` bytes of the range."""

    def rest(self, sent: int) -> Slice:
        """What is left of the range after its first `sent` bytes."""

    def look_cached(self) -> bool:
        """Whether it is in memory by now; does not wait for the disk. Noted in `cached`."""

    def warm(self) -> None:
        """Read it into memory. For a thread: it takes as long as the disk does. Raises OSError."""


class Check(Protocol):
    """A check of the CRCs of a range that is to be sent and was not checked yet; ends with `end_check`."""

    def __len__(self) -> int:
        """Bytes of the range."""

    def run(self) -> None:
        """For a thread. `end_check` gives the result."""


class TimeScan(Protocol):
    """A walk over a part of the log to find the first record at a time; ends with `end_scan`."""

    def run(self) -> None:
        """For a thread. `end_scan` gives the result."""


class FlushJob(Protocol):
    """The work of one flush; ends with `end_flush`."""

    @property
    def end_offset(self) -> int:
        """Everything below this offset is durable when it has run."""

    @property
    def size(self) -> int:
        """Bytes written since the last flush."""

    @property
    def syncs(self) -> int:
        """The number of fsyncs, or of calls that take as long."""

    @property
    def lone_fd(self) -> int | None:
        """The descriptor whose fdatasync is the whole job, else None: the kernel can sync it without a thread."""

    def run(self) -> None:
        """For a thread. Raises OSError; NotBegunError if the flush is still owed."""


class ReadResult(msgspec.Struct, frozen=True):
    slice: Slice | None
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    #: Readable bytes that the range leaves out; LATER_SEGMENT if they are in a later segment.
    left: int = 0
    #: The check that must run, and be passed to `end_check`, before the range may be sent.
    check: Check | None = None
    #: The offset behind the range.
    end_offset: int = -1


class CompactionJob(Protocol):
    """A compaction in parts; `end_compaction` is called after each part."""

    #: Its figures so far.
    figures: CompactionFigures
    #: Whether everything that it set out to clean is clean.
    is_done: bool

    def run(self) -> None:
        """Run the next part, in a thread. An exception is passed to `end_compaction`."""

    def stop(self) -> None:
        """Let `run` end soon."""


class Callbacks:
    """Callables that are called on a vnode's progress; costs nothing while there are none."""

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
    """One partition's log. As a key of dicts and sets it is compared by identity."""

    #: The topic's settings; when they change, so does `rules`.
    config: LogConfig
    #: The epoch of the partition's leader, which is this broker: appended batches and markers get it (KIP-101).
    leader_epoch: int
    #: Called when the high watermark or the log start moves, and when the vnode goes offline.
    on_high_watermark: Callbacks

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def place(self) -> str:
        """Where the log is stored, for the operator to read."""

    @property
    def topic_id(self) -> bytes:
        """The id of its topic; ZERO_ID if that is not known. Raises StorageError."""

    @property
    def rules(self) -> Rules:
        """The rules for a producer's batch."""

    # -- state -------------------------------------------------------------------------------------------------------

    @property
    def error(self) -> StorageError | None:
        """Why the vnode is offline, or None."""

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is on disk."""

    @property
    def loaded(self) -> bool:
        """Whether the log was loaded since the start; if not, the first call that needs it loads it."""

    @property
    def waits_for_fsync(self) -> bool:
        """Whether the high watermark waits for a flush."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see: the high watermark, or the beginning of the oldest
        transaction whose marker is not below it."""

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
        """Bytes and records appended since the log was loaded, without markers of transactions."""

    def stored_bytes(self) -> int | None:
        """Like `size_bytes`, without loading the log; None if it is gone. May be called in a thread."""

    # -- append ------------------------------------------------------------------------------------------------------

    def append(self, data: BytesLike, *, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendResult:
        """Write one batch (several under REPLICATION) at the log's end; not durable yet.

        The flusher decides when it can be acknowledged. Raises `KafkaError`: CORRUPT_MESSAGE, INVALID_RECORD,
        INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR. After any of them except the last the vnode is
        as before. Under QUERY a batch that does not begin at the log's end raises OUT_OF_ORDER_SEQUENCE_NUMBER or
        DUPLICATE_SEQUENCE_NUMBER.
        """

    def append_valid(self, valid: Valid, *, now_ms: int) -> AppendResult:
        """Like `append`, for one batch that `storage.validation.validate` has accepted under this vnode's `rules`."""

    def end_transaction(self, marker: Marker, *, new_epoch: bool, now_ms: int) -> AppendResult:
        """Write the marker of a transaction, as its coordinator; not durable yet.

        `new_epoch`: the marker's epoch is higher than that of the batches that it ends (transaction version 2). Raises
        `KafkaError` INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction open here in this epoch; its writes then belong to it."""

    def begin_verification(self, verification: Verification) -> None:
        """Note that the coordinator is about to be asked whether a transaction may begin here. Raises StorageError."""

    def check_verification(self, verification: Verification) -> None:
        """Check that the transaction may begin now, because the coordinator's answer still holds.

        The append must follow in the same turn of the event loop. Raises `KafkaError` NOT_ENOUGH_REPLICAS if a marker
        came between, OUT_OF_ORDER_SEQUENCE_NUMBER if an earlier batch waits for the same.
        """

    def end_verification(self, verification: Verification) -> None:
        """End a verification: its append is done or given up."""

    # -- flush -------------------------------------------------------------------------------------------------------

    @property
    def unflushed_messages(self) -> int:
        """Offsets appended since the last flush began or ended."""

    def begin_flush(self) -> FlushJob | None:
        """The work of a flush up to the log end; None if nothing is owed. Raises StorageError."""

    def reserve(self, job: FlushJob) -> None:
        """Before a flush: make room for more appends like those in it."""

    def unreserve(self) -> None:
        """Give that room back, as appends have ceased."""

    def end_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        """`job` has run. With an error the vnode goes offline; with NotBegunError the flush is owed again."""

    def flush(self) -> None:
        """Flush on the spot, for callers without an event loop. Raises StorageError."""

    def fail(self, action: str, error: Exception) -> None:
        """Take the vnode offline because `action` failed and its outcome is not known."""

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
        """A range of the log from the batch that contains `offset`, or from the next one if `offset` is in a gap.

        It ends on a batch boundary below the high watermark (and `max_offset`, exclusive) and within `max_bytes`. Under
        `min_one_batch` a first batch may be larger than that. There is no slice if there is nothing to read. With
        `verified` it ends before the first batch that was not checked yet, or comes with a check. Raises `KafkaError`
        OFFSET_OUT_OF_RANGE outside the log.
        """

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with offsets from `start` up to `end`: a read_committed consumer must skip them."""

    def aborted_limit(self, start: int, end: int, most: int) -> int:
        """The end, at most `end`, of a range from `start` with at most `most` abort markers."""

    def open_transaction(self, producer_id: int) -> int | None:
        """Where the open transaction of a producer begins, None if it has none."""

    def active_producers(self) -> Iterator[tuple[int, Producer]]:
        """The remembered producers with their ids."""

    def end_check(self, check: Check) -> Slice:
        """`check` has run: gives the whole batches at its start. Raises StorageError if the first one is damaged."""

    def found_damage(self, offset: int, error: Exception) -> StorageError:
        """Report that the batch at `offset` is damaged. Gives the error to raise: a later read may succeed."""

    def mending_on_the_spot(self) -> AbstractContextManager[None]:
        """While it is held, a read repairs the damage that it meets, for callers without an event loop."""

    def newest_timestamp(self) -> int:
        """The newest timestamp of all records; -1 if the log has no timestamps."""

    def time_scans(self, timestamp: int) -> Iterator[TimeScan]:
        """The scans for the first readable record at or after `timestamp`; stop after the first that finds one.

        The vnode may change between two scans.
        """

    def end_scan(self, scan: TimeScan) -> tuple[int, int] | None:
        """`scan` has run: gives offset and timestamp of the record, None if there is none. Raises KafkaError."""

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """The result of the scans, run on the spot."""

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch`, and the offset at which it ended; (-1, -1) if unknown."""

    def epoch_of(self, offset: int) -> int:
        """The leader epoch under which `offset` was, or will be, written; -1 if unknown."""

    # -- deletion ----------------------------------------------------------------------------------------------------

    def begin_at(self, offset: int) -> None:
        """Let a log begin, and so end, at `offset`. It must never have held a record. Durable with the first flush.

        Raises ValueError if there have been records, StorageError.
        """

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, so that present records can be deleted without later ones. Raises StorageError."""

    def truncate_prefix(self, offset: int) -> None:
        """Raise the log start offset to `offset` (DeleteRecords). Raises KafkaError OFFSET_OUT_OF_RANGE."""

    def apply_retention(self, now_ms: int) -> int:
        """Apply the delete policy, and forget idle producers; gives the number of segments dropped."""

    # -- compaction --------------------------------------------------------------------------------------------------

    def may_need_compaction(self) -> bool:
        """Whether it is worth loading the log for `compaction_need`. May be called in a thread."""

    def compaction_need(self, now_ms: int) -> Need:
        """How much there is to clean. Raises StorageError."""

    def begin_compaction(self, now_ms: int, limits: CompactionLimits) -> CompactionJob | None:
        """A job that cleans the dirty part; None if there is none, or it is not possible now. Raises StorageError."""

    def end_compaction(self, job: CompactionJob, error: Exception | None = None) -> bool:
        """A part of `job` has run: readers get its new segments. Gives whether there is more to run.

        With an error, or after one, the log is as it was before the part. Raises StorageError if the compaction could
        not go on. If the log has changed meanwhile, the compaction ends without an error.
        """
