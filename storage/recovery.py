"""Recovery after an unclean stop: torn batches are cut off, damage is set aside, indexes are rebuilt, and the state of
leader epochs and producers is made to match the log.

It works on the files of one partition, before its vnode opens them. Everything below the recovery point was flushed and
is trusted; everything above is read and its CRC checked. A segment that ends at the recovery point is checked, too: it
may have been rolled after the flush, so its indexes may not be synced. Only the damaged batches are lost:
`storage.salvage` finds where whole batches begin again. Each finding is reported: `log.cut` for a torn tail of the last
segment, `log.damaged` for anything else.
"""

from __future__ import annotations

import contextlib
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from barnabas.storage import index
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import TEMPORARY_SUFFIX, Io, read_file, sync_path, write_file
from barnabas.storage.layout import METADATA_FILE, parse_partition_name
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.producer_state import SUFFIX as SNAPSHOT_SUFFIX
from barnabas.storage.producer_state import ProducerState, snapshot_offsets, snapshot_path
from barnabas.storage.replacement import place, settle
from barnabas.storage.report import Tell, tell_logging
from barnabas.storage.salvage import (
    ZEROS,
    Damage,
    copy_ranges,
    filler,
    is_torn_batch,
    known_boundaries,
    set_aside,
    whole_batches,
)
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    iter_headers,
)
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.storage.txn_index import AbortedTransaction, TransactionIndex
from barnabas.wire import batch
from barnabas.wire.errors import KafkaError

_LEFTOVERS = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)


def list_segments(io: Io, directory: str) -> list[Segment]:
    """The segments of a partition folder, oldest first, with the sizes of their files."""
    segments = []
    for name in io.listdir(directory):
        if name.endswith(LOG_SUFFIX) and name[:20].isdigit() and len(name) == 24:
            segment = Segment(directory, int(name[:20]))
            status = io.stat(segment.path())
            segment.size = segment.unchecked_until = status.st_size
            segment.created_ms = int(status.st_mtime * 1000)
            segments.append(segment)
    return sorted(segments, key=lambda segment: segment.base_offset)


def needs_repair(io: Io, directory: str) -> bool:
    """Whether a folder lacks an index or a covering snapshot, though the stop was clean. Opens no file."""
    names = set(io.listdir(directory))
    logs = [name for name in names if name.endswith(LOG_SUFFIX)]
    if any(name.endswith(_LEFTOVERS) for name in names):
        return True
    for name in logs:
        stem = name[: -len(LOG_SUFFIX)]
        if stem + INDEX_SUFFIX not in names or stem + TIME_INDEX_SUFFIX not in names:
            return True
    if logs and not any(name.endswith(SNAPSHOT_SUFFIX) for name in names):
        return io.stat(os.path.join(directory, max(logs))).st_size > 0 or len(logs) > 1
    return False


def untouched_end(io: Io, directory: str, recovery_point: int) -> int | None:
    """The end of a log that was never written to, so that it needs no recovery; else None. Opens no file."""
    names = io.listdir(directory)
    logs = [name for name in names if name.endswith(LOG_SUFFIX)]
    if len(logs) != 1 or not logs[0][:20].isdigit():
        return None
    stem = logs[0][: -len(LOG_SUFFIX)]
    files = [stem + suffix for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
    if len(stem) != 20 or recovery_point > int(stem) or {*names} - {METADATA_FILE} != {*files}:
        return None
    return None if any(io.stat(os.path.join(directory, name)).st_size for name in files) else int(stem)


def recover_partition(
    io: Io,
    directory: str,
    recovery_point: int,
    config: LogConfig,
    tell: Tell = tell_logging,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Recover one partition folder; gives its log end offset. A folder in order is only read. Raises OSError.

    `progress` gets, batch by batch, the bytes read so far and the bytes to read.
    """
    changed = _remove_leftovers(io, directory)
    segments = list_segments(io, directory)
    total, before = sum(segment.size for segment in segments), 0
    epochs = LeaderEpochs(directory, io)
    epochs.load()
    end_offset = segments[0].base_offset if segments else 0
    epochs_before = epochs.entries
    hole: int | None = None
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        begin, before = before, before + segment.size
        if following is not None and following < recovery_point and _indexes_mended(io, segment, config):
            end_offset = following
            continue
        if segment.base_offset < end_offset:
            raise CorruptLogError(f"{segment.path()} begins inside the segment before it")
        read = partial(_read_in, progress, begin, total)
        found = recover_segment(io, segment, recovery_point, config, epochs, following, tell, read=read)
        end_offset = found.end_offset
        changed |= found.changed
        if following is not None and found.whole_end < following and hole is None:
            hole = found.whole_end
    epochs.truncate_end(end_offset if end_offset else 1)
    if epochs.entries != epochs_before:
        epochs.write()
        sync_path(io, epochs.path)
        changed = True
    for offset in snapshot_offsets(io.listdir(directory)):
        # A snapshot that covers lost batches would make the vnode reject them as duplicates when they are sent again.
        if offset > (end_offset if hole is None else hole):
            io.unlink(snapshot_path(directory, offset))
            changed = True
    if segments:
        producers = ProducerState()
        doubted = _first_doubted(segments, recovery_point, end_offset)
        covered = producers.load(io, directory, end_offset if doubted is None else doubted)
        for path in producers.damaged:
            _tell_rebuilt(directory, path, tell)
        if covered != end_offset:
            aborted = _replay_mending(io, directory, producers, covered, config, epochs, tell)
            sync_path(io, producers.save(io, directory, end_offset))
            if doubted is not None:
                _rewrite_aborted(io, directory, doubted, aborted)
            changed = True
    if changed:
        sync_path(io, directory)
    return end_offset


def _read_in(progress: Callable[[int, int], None], begin: int, total: int, position: int) -> None:
    progress(begin + position, total)


def _tell_rebuilt(directory: str, path: str, tell: Tell) -> None:
    topic, partition = parse_partition_name(os.path.basename(directory)) or (directory, -1)
    name = os.path.basename(path)
    tell("index.rebuilt", topic=topic, partition=partition, file=name, reason="the snapshot is damaged")


def _first_doubted(segments: list[Segment], recovery_point: int, end_offset: int) -> int | None:
    """The base offset of the first segment whose `.txnindex` may not be wholly on disk; None if all are."""
    if end_offset <= recovery_point:
        return None
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    return next(segment.base_offset for segment, end in zip(segments, ends, strict=True) if end >= recovery_point)


def _rewrite_aborted(io: Io, directory: str, first: int, aborted: list[AbortedTransaction]) -> None:
    """Write these aborted transactions into the indexes of the segments from the offset `first` on."""
    segments = [segment for segment in list_segments(io, directory) if segment.base_offset >= first]
    bases = [segment.base_offset for segment in segments]
    found = [TransactionIndex() for _ in segments]
    for entry in aborted:
        if entry.last_offset >= first:
            found[bisect_right(bases, entry.last_offset) - 1].append(entry)
    for segment, index_of in zip(segments, found, strict=True):
        segment.replace_aborted(io, index_of, sync=True)


def _replay_mending(
    io: Io,
    directory: str,
    producers: ProducerState,
    covered: int,
    config: LogConfig,
    epochs: LeaderEpochs,
    tell: Tell,
) -> list[AbortedTransaction]:
    """Run `replay_producers`, and repair damage that it meets below the recovery point, which was not checked yet."""
    segments = list_segments(io, directory)
    for _ in range(len(segments) + 1):
        try:
            return list(replay_producers(io, segments, producers, covered))
        except CorruptLogError as error:
            number = next((n for n, segment in enumerate(segments) if segment is error.segment), None)
            if number is None:
                raise
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            segment = Segment(directory, segments[number].base_offset, size=segments[number].size)
            recover_segment(io, segment, 0, config, epochs, following, tell)
            segments = list_segments(io, directory)
            covered = producers.load(io, directory, covered)
    raise CorruptLogError(f"{directory} cannot be mended")


def kept_end(io: Io, directory: str, recovery_point: int) -> int:
    """The log end offset that `recover_partition` would give. For readers: it writes nothing."""
    segments = list_segments(io, directory)
    end_offset = segments[0].base_offset if segments else 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is not None and following < recovery_point:
            end_offset = following
            continue
        if segment.base_offset < end_offset:
            raise CorruptLogError(f"{segment.path()} begins inside the segment before it")
        file = OpenFile(io, segment.path(), os.O_RDONLY)
        end_offset = _scan(io, segment, file, recovery_point, following).end_offset
    return end_offset


def replay_producers(
    io: Io, segments: list[Segment], producers: ProducerState, from_offset: int, end: int | None = None
) -> Iterator[AbortedTransaction]:
    """Update `producers` from the batch headers and markers between `from_offset` and the log's end, or `end`.

    Gives the aborted transactions that it meets. Raises CorruptLogError.
    """
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset:
            continue
        if end is not None and segment.base_offset >= end:
            return
        if not segment.size:
            continue
        opened = segment.open_at(io, from_offset)
        if opened is None:
            continue
        file, position = opened
        try:
            for at, header in iter_headers(io, file.fd, position, segment.size):
                if header.producer_id >= 0 and header.base_offset >= from_offset:
                    aborted = _replay_batch(io, file, at, header, producers)
                    if aborted is not None:
                        yield aborted
                if end is not None and header.last_offset + 1 >= end:
                    return  # what follows may be half written
        except (CorruptLogError, KafkaError) as error:
            raise CorruptLogError(str(error), segment) from None


def _replay_batch(
    io: Io, file: OpenFile, position: int, header: batch.BatchHeader, producers: ProducerState
) -> AbortedTransaction | None:
    """Note a producer's batch or marker. Gives the transaction that a marker aborts."""
    if not header.is_control:
        producers.record(header, header.base_offset, header.max_timestamp)
        return None
    marker = batch.marker_of(io.pread(file.fd, header.size_in_bytes, position))
    if marker is None:
        return None
    aborted = producers.aborted_by(marker, header.base_offset)
    producers.end_transaction(marker, header.base_offset, header.max_timestamp)
    return aborted


def _remove_leftovers(io: Io, directory: str) -> bool:
    removed = settle(io, directory)
    names = io.listdir(directory)
    logs = {name[: -len(LOG_SUFFIX)] for name in names if name.endswith(LOG_SUFFIX)}
    for name in names:
        orphan = name.endswith(INDEX_SUFFIXES) and name.partition(".")[0] not in logs
        if orphan or name.endswith(_LEFTOVERS):
            io.unlink(os.path.join(directory, name))
            removed = True
    return removed


def _indexes_mended(io: Io, segment: Segment, config: LogConfig) -> bool:
    """Rebuild the indexes of a flushed segment if they are absent or not credible. False if the log is damaged."""
    try:
        segment.load_indexes(io)
    except CorruptLogError:
        file = OpenFile(io, segment.path(), os.O_RDONLY)
        try:
            segment.rebuild_indexes(io, file, config.index_interval_bytes)
        except CorruptLogError:
            segment.index = segment.times = None
            return False
        segment.replace_indexes(io)
    segment.index = segment.times = None
    return True


class _Scan(NamedTuple):
    """The findings in a segment: each damage with the offset of what follows it (None at the end); where the last whole
    batch ends and the offset after it; and the offset where the repaired segment ends, with the batch that fills up to
    there."""

    position: int
    damages: list[tuple[Damage, int | None]]
    whole_end: int
    end_offset: int
    fill: bytes


class Recovered(NamedTuple):
    """The result for a segment: the offset where it ends, the offset where its own batches end, and whether any file
    had to be written or synced. Between the two offsets an empty batch replaces lost ones."""

    end_offset: int
    whole_end: int
    changed: bool


def _scan(
    io: Io,
    segment: Segment,
    file: OpenFile,
    recovery_point: int,
    following: int | None,
    each: Callable[[int, batch.BatchHeader], None] = lambda position, header: None,
) -> _Scan:
    """Read the segment from the recovery point on; `each` is called for every whole batch. Nothing is indexed yet."""
    file_size = segment.size
    known = known_boundaries(io, segment)
    position, expected = _trusted_start(io, segment, file, recovery_point)
    segment.size = position
    if position:
        segment.index_on_next(sys.maxsize)
    is_empty = not position
    damages: list[tuple[Damage, int | None]] = []
    for found in whole_batches(
        io, segment, file, position, expected, file_size=file_size, following=following, known=known
    ):
        if isinstance(found, Damage):
            if damages and damages[-1][0].end == found.position and found.reason != ZEROS:
                found = damages.pop()[0]._replace(end=found.end)
            damages.append((found, None))
            continue
        at, header = found
        if damages and damages[-1][1] is None:
            damages[-1] = damages[-1][0], header.base_offset
        each(at, header)
        position, expected, is_empty = at + header.size_in_bytes, header.last_offset + 1, False
    fill, whole_end = b"", expected
    if any(damage.reason != ZEROS for damage, _ in damages):
        # Acknowledged offsets must not be assigned again, and only the last segment may be empty.
        upto = recovery_point if following is None else following if is_empty else 0
        if expected < upto <= segment.base_offset + MAX_RELATIVE_OFFSET:
            fill, expected = filler(expected, upto), upto
    return _Scan(position, damages, whole_end, expected, fill)


def recover_segment(
    io: Io,
    segment: Segment,
    recovery_point: int,
    config: LogConfig,
    epochs: LeaderEpochs,
    following: int | None,
    tell: Tell,
    *,
    beside: Segment | None = None,
    read: Callable[[int], None] = lambda position: None,
) -> Recovered:
    """Check and index the segment from the recovery point on, and set its damage aside.

    If others read the segment, the repaired one is written `beside` it: as that segment, which then has a size. `read`
    gets the position read so far. Raises OSError.
    """
    file = OpenFile(io, segment.path(), os.O_RDWR)
    file_size = segment.size
    interval = config.index_interval_bytes

    def note(at: int, header: batch.BatchHeader) -> None:
        segment.size = at
        segment.note(header.last_offset, header.size_in_bytes, header.max_timestamp, interval)
        if header.partition_leader_epoch > epochs.latest:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        read(at)

    scan = _scan(io, segment, file, recovery_point, following, note)
    damages = [damage for damage, _ in scan.damages]
    if damages and (len(damages) > 1 or damages[0].end < file_size or beside is not None or _is_shared(io, segment)):
        _tell_damage(io, segment, file, scan, recovery_point, following, tell)
        mended = beside or Segment(segment.directory, segment.base_offset, mark=SWAP_SUFFIX)
        copy_ranges(io, file, _between(damages, file_size), mended.path(), end=scan.fill)
        mended.size = io.stat(mended.path()).st_size
        _copy_aborted(io, segment, mended)
        segment.index = segment.times = None
        if beside is None:
            place(io, mended)
            segment.size, mended = mended.size, segment
        end_offset = recover_segment(io, mended, 0, config, epochs, following, tell).end_offset
        return Recovered(end_offset, scan.whole_end, True)
    changed = False
    if scan.position < file_size:
        _tell_damage(io, segment, file, scan, recovery_point, following, tell)
        if scan.fill:
            io.pwritev(file.fd, (scan.fill,), scan.position)
            segment.note(scan.end_offset - 1, len(scan.fill), batch.NO_TIMESTAMP, interval)
        io.ftruncate(file.fd, scan.position + len(scan.fill))
        changed = True
    if changed or scan.end_offset > recovery_point:
        io.fdatasync(file.fd)
        changed = True
    segment.finish_times()
    if not segment.indexes_are_on_disk(io):
        segment.replace_indexes(io)
        changed = True
    elif (
        scan.end_offset > recovery_point or following == recovery_point
    ):  # after a kill they may be in the page cache only
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            sync_path(io, segment.path(suffix))
    segment.index = segment.times = None
    return Recovered(scan.end_offset, scan.whole_end, changed)


def _is_shared(io: Io, segment: Segment) -> bool:
    """Whether the file is linked in another directory, by an import; that directory must not change."""
    return io.stat(segment.path()).st_nlink > 1


def _copy_aborted(io: Io, segment: Segment, mended: Segment) -> None:
    """Copy the index of aborted transactions, which is true of the repaired segment, too."""
    with contextlib.suppress(FileNotFoundError):
        data = read_file(io, segment.path(TXN_INDEX_SUFFIX))
        write_file(io, mended.path(TXN_INDEX_SUFFIX), data, sync=False, sync_data=True)


def _between(damages: list[Damage], file_size: int) -> list[tuple[int, int]]:
    """The ranges of a file without the damaged ones."""
    starts = [0, *(damage.end for damage in damages)]
    ends = [*(damage.position for damage in damages), file_size]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def _tell_damage(
    io: Io, segment: Segment, file: OpenFile, scan: _Scan, recovery_point: int, following: int | None, tell: Tell
) -> None:
    """Keep the damaged bytes under another name, and report it."""
    topic, partition = parse_partition_name(os.path.basename(segment.directory)) or (segment.directory, -1)
    for damage, next_offset in scan.damages:
        if damage.reason == ZEROS and following is None:
            continue  # zeros reserved behind the log
        torn = following is None and next_offset is None and damage.first_offset >= recovery_point
        if next_offset is None:
            next_offset = scan.end_offset if following is None else following
        action = "cut off"
        if not (torn and is_torn_batch(io, file, damage)):
            action = f"kept as {set_aside(io, segment, file, damage.position, damage.end)}"
        tell(
            "log.cut" if torn else "log.damaged",
            topic=topic,
            partition=partition,
            file=os.path.basename(segment.path()),
            first_offset=damage.first_offset,
            next_offset=next_offset,
            position=damage.position,
            bytes=damage.end - damage.position,
            reason=damage.reason,
            action=action,
        )


def _trusted_start(io: Io, segment: Segment, file: OpenFile, recovery_point: int) -> tuple[int, int]:
    """The position where the check begins, and the least offset that may be there.

    It is the last indexed batch below the recovery point if the index is right, else the beginning.
    """
    try:
        if recovery_point > segment.base_offset:
            segment.load_indexes(io)
            assert segment.index is not None
            at = index.floor_entry(segment.index, recovery_point - 1 - segment.base_offset)
            if at >= 0:
                position = index.position_of(segment.index[at])
                header = batch.parse_header(io.pread(file.fd, batch.HEADER_SIZE, position))
                if header.last_offset - segment.base_offset == segment.index[at] >> 32:
                    segment.cut_indexes(at)
                    return position, header.base_offset
    except (CorruptLogError, KafkaError):
        pass
    segment.start()
    return 0, segment.base_offset
