"""The segments of a vnode's log in one folder, and what is kept beside them: leader epochs and producer snapshots.

It works on the files, and raises OSError and CorruptLogError. What such an error costs the vnode is decided elsewhere.

Invariants:
- Segments are ascending by base offset, and there is at least one; the last one is active.
- `aborting` has the base offsets of the segments that may have an index of aborted transactions; the others have none.
- Everything written but not synced is noted in `unflushed` before a call returns.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptIndexError, CorruptLogError
from barnabas.storage.faults import Fault, fault_of
from barnabas.storage.files import FileCache
from barnabas.storage.io import Io
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.producer_state import ProducerState, snapshot_offsets, snapshot_path
from barnabas.storage.recovery import list_segments, replay_producers
from barnabas.storage.replacement import swap
from barnabas.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.storage.txn_index import AbortedTransaction, TransactionIndex
from barnabas.storage.unflushed import Unflushed


class Log:
    """An open log. The constructor reads the files, and makes the first segment if there is none."""

    __slots__ = (
        "_complete_at",
        "_discard",
        "aborting",
        "active",
        "appended_bytes",
        "appended_records",
        "bases",
        "cache",
        "config",
        "directory",
        "end_offset",
        "epochs",
        "io",
        "producers",
        "segments",
        "start_offset",
        "unflushed",
    )

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        *,
        io: Io,
        cache: FileCache,
        discard: Callable[[list[str]], None] | None = None,
        start_offset: int = 0,
    ) -> None:
        """The log begins at `start_offset`, if it has that offset. `discard` takes files to delete, now or soon."""
        self.directory = directory
        self.config = config
        self.io = io
        self.cache = cache
        self._discard = discard or self._remove_now
        self.segments = list_segments(io, directory)
        if not self.segments:
            self.segments.append(self._made_segment(start_offset, 0))
        self.bases = [segment.base_offset for segment in self.segments]
        indexes = {name for name in io.listdir(directory) if name.endswith(TXN_INDEX_SUFFIX)}
        self.aborting = [base for base in self.bases if f"{base:020d}{TXN_INDEX_SUFFIX}" in indexes] if indexes else []
        active = self.active = self.segments[-1]
        end = active.load_tail(io, cache.get(active)) if active.size else active.base_offset
        if not active.size and active.index is None:
            active.start()
            active.write_indexes(io)
        self.end_offset = end
        self.start_offset = min(max(self.bases[0], start_offset), end)
        self.epochs = LeaderEpochs(directory, io)
        self.epochs.load()
        self.producers = ProducerState()
        covered = self.producers.load(io, directory, end)
        if covered < end:
            for _ in replay_producers(io, self.segments, self.producers, max(covered, self.bases[0])):
                pass
        self.unflushed = Unflushed(end)
        #: Bytes and records appended since the log was opened, without markers of transactions.
        self.appended_bytes = self.appended_records = 0
        # The end of a log whose folder has everything that a close writes, else -1.
        self._complete_at = end if covered == end else -1
        cache.open_logs += 1

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def segment_of(self, offset: int) -> Segment:
        """The segment that contains, or would contain, `offset`."""
        return self.segments[max(bisect_right(self.bases, offset) - 1, 0)]

    def following(self, segment: Segment) -> int:
        """The base offset of the segment after this one, which must not be the active one."""
        return self.bases[bisect_right(self.bases, segment.base_offset)]

    def close(self) -> list[str]:
        """Write what only memory holds. The caller has flushed, and syncs the paths it gets.

        A log that was opened only to be read has nothing to write or to sync.
        """
        active = self.active
        active.finish(self.io)
        if self.end_offset == self._complete_at and not active.has_new_indexes and not active.reserved:
            return []
        paths = [*active.index_paths(), self.directory]
        if active.reserved:
            active.release(self.io, self.cache.get(active))
            paths.append(active.path())
        if self.end_offset:
            paths.append(self.producers.save(self.io, self.directory, self.end_offset))
            self._prune_snapshots()
        return paths

    def release(self) -> None:
        """Close the files."""
        for segment in self.segments:
            self.cache.forget(segment)
        self.cache.open_logs -= 1

    def remove(self) -> None:
        """Unlink every segment. The log must not be used after that."""
        self.cache.open_logs -= 1
        for segment in self.segments:
            self.cache.forget(segment)
            # The log goes first: the next start deletes indexes without a log.
            self._remove_now(segment.path(suffix) for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES))

    # -- growth ------------------------------------------------------------------------------------------------------

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Make a new active segment. What the old one still owes to the disk is noted for the next flush.

        If this fails, the old segment stays active.
        """
        old = self.active
        if old.index is None:
            self.load_indexes(old)
        old.finish(self.io)
        snapshot = self.producers.save(self.io, self.directory, base_offset)
        file = self.cache.get(old)
        old.release(self.io, file)  # before there is a next one: only the last segment may end in zeros
        segment = self._made_segment(base_offset, now_ms)
        self.unflushed.files.append(file)
        indexes = old.index_paths()
        self.unflushed.paths += [*indexes, snapshot, self.directory]
        self.unflushed.rolled_indexes += indexes
        self.cache.clean(old)
        self.segments.append(segment)
        self.bases.append(base_offset)
        self.active = segment
        return segment

    def _made_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(self.directory, base_offset, created_ms=now_ms)
        segment.start()
        made: list[str] = []
        try:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
                # The log comes last: the next start deletes indexes without a log.
                self.io.close(self.io.open(segment.path(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
                made.append(segment.path(suffix))
        except OSError:
            with contextlib.suppress(OSError):
                self._remove_now(made)
            raise
        return segment

    # -- indexes -----------------------------------------------------------------------------------------------------

    def load_indexes(self, segment: Segment) -> None:
        """Read the indexes, or rebuild them from the log if they are unusable."""
        try:
            segment.load_indexes(self.io)
        except CorruptLogError:
            self.rebuild_indexes(segment)

    def rebuild_indexes(self, segment: Segment) -> None:
        segment.rebuild_indexes(self.io, self.cache.get(segment), self.config.index_interval_bytes)
        try:
            segment.replace_indexes(self.io, sync=False)
        except OSError as error:
            if fault_of(error) is Fault.OFFLINE:
                raise

    def aborted_in(self, segment: Segment) -> TransactionIndex:
        """The aborted transactions whose markers are in the segment, from its index. Raises CorruptIndexError."""
        return segment.load_aborted(self.io, self._end_of(segment))

    def aborting_from(self, offset: int) -> Iterator[Segment]:
        """The segments, from the one with this offset on, that may have aborted transactions."""
        first = self.bases[max(bisect_right(self.bases, offset) - 1, 0)]
        for at in range(bisect_left(self.aborting, first), len(self.aborting)):
            yield self.segments[bisect_left(self.bases, self.aborting[at])]

    def _note_aborting(self, segment: Segment) -> None:
        base, known = segment.base_offset, self.aborting
        at = bisect_left(known, base)
        if at == len(known) or known[at] != base:
            known.insert(at, base)

    def write_aborted(self, segment: Segment, entry: AbortedTransaction) -> None:
        """Write the entry of the marker that is appended next."""
        try:
            self.aborted_in(segment)
        except CorruptIndexError:
            self.rebuild_aborted(segment)
        self._note_aborting(segment)
        if segment.write_aborted(self.io, entry):
            self.unflushed.paths.append(self.directory)

    def rebuild_aborted(self, segment: Segment) -> None:
        """Rebuild the segment's index of aborted transactions from the log."""
        end = self._end_of(segment)
        producers = ProducerState()
        covered = max(producers.load(self.io, self.directory, segment.base_offset), self.bases[0])
        found = TransactionIndex()
        for entry in replay_producers(self.io, self.segments, producers, covered, end):
            if entry.last_offset >= segment.base_offset:
                found.append(entry)
        segment.aborted = found
        if found:
            self._note_aborting(segment)
        try:
            segment.replace_aborted(self.io, found, sync=False)
        except OSError as error:
            if fault_of(error) is Fault.OFFLINE:
                raise

    def _end_of(self, segment: Segment) -> int:
        return self.end_offset if segment is self.active else self.following(segment)

    # -- deletion ----------------------------------------------------------------------------------------------------

    def drop_below_start(self, keep: Segment | None) -> None:
        """Drop the segments wholly below the log start, up to `keep`, also those that could not be dropped before."""
        count = bisect_right(self.bases, self.start_offset) - 1
        if keep in self.segments[:count]:
            count = self.segments.index(keep)
        if count > 0:
            self._remove_oldest(count)
        self.forget_epochs_before(self.start_offset)

    def _remove_oldest(self, count: int) -> None:
        """Drop the oldest `count` segments: renamed now, deleted by `discard`."""
        for _ in range(count):
            segment = self.segments[0]
            path = segment.path()
            self.io.replace(path, path + DELETED_SUFFIX)
            del self.segments[0]
            del self.bases[0]
            if self.aborting[:1] == [segment.base_offset]:
                del self.aborting[0]
            self.cache.forget(segment)
            self.unflushed.note_drop(self.directory)
            indexes = [segment.path(suffix) for suffix in INDEX_SUFFIXES]
            self._discard([path + DELETED_SUFFIX, *indexes, snapshot_path(self.directory, segment.base_offset)])

    def forget_epochs_before(self, offset: int) -> None:
        """Forget leader epochs before `offset`. On a full disk they stay in the file for now, which is harmless."""
        if self.epochs.truncate_start(offset):
            try:
                self.epochs.write()
                self.unflushed.paths.append(self.directory)
            except OSError as error:
                if fault_of(error) is Fault.OFFLINE:
                    raise

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put `new` segments, synced under `.cleaned`, in the place of `old` ones, which follow one another.

        A crash leaves all of the old or all of the new; a reader that holds a slice of an old one can still read it.
        Only one replacement of a log may be in preparation at a time. Raises ValueError for segments that
        `storage.replacement` could not finish; OSError, after which all is as before; HalfReplacedError, after which
        the log must not be used before a recovery.
        """
        at = self.segments.index(old[0])
        if list(old) != self.segments[at : at + len(old)] or old[-1] is self.active:
            raise ValueError("the old segments do not follow one another below the active one")
        bases = [segment.base_offset for segment in new]
        if not new or bases[0] != old[0].base_offset or bases != sorted(set(bases)):
            raise ValueError("the new segments do not begin where the old ones do")
        try:
            end = new[-1].load_tail(self.io, self.cache.get(new[-1]))
            if not old[-1].base_offset < end <= self.bases[at + len(old)]:
                raise ValueError(f"the new segments end at {end}: an empty batch has to take up what they leave out")
            doomed = swap(self.io, old, new)
        except BaseException:
            self.cache.forget(new[-1])
            raise
        for segment in old:
            self.cache.forget(segment)
        self.segments[at : at + len(old)] = new
        self.bases[at : at + len(old)] = bases
        self.aborting = [base for base in self.aborting if not old[0].base_offset <= base <= old[-1].base_offset]
        for segment in new:
            if segment.aborted is None or segment.aborted:
                self._note_aborting(segment)
        self.unflushed.paths.append(self.directory)
        gone = {segment.base_offset for segment in old} - set(bases)
        self._discard([*doomed, *(snapshot_path(self.directory, base) for base in sorted(gone))])

    def discard(self, paths: list[str]) -> None:
        """Delete files, now or soon."""
        self._discard(paths)

    def _remove_now(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self.io.unlink(path)
            except FileNotFoundError:
                pass

    def _prune_snapshots(self) -> None:
        """Remove producer snapshots that neither a segment nor the log end needs."""
        needed = {*self.bases, self.end_offset}
        for offset in snapshot_offsets(self.io.listdir(self.directory)):
            if offset not in needed:
                self._remove_now([snapshot_path(self.directory, offset)])
