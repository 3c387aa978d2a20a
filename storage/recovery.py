"""What an unclean stop leaves, made whole: torn batches cut off, indexes rebuilt, epochs and producers brought in line.

Works on the files of one partition, before its vnode has them open. Everything below the recovery point was flushed and
is taken as it is; everything above is read with its CRC. The first batch that is not whole ends the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from storage import index
from storage.config import LogConfig
from storage.io import Io, sync_path
from storage.leader_epochs import LeaderEpochs
from storage.producer_state import SUFFIX as SNAPSHOT_SUFFIX
from storage.producer_state import ProducerState, snapshot_offsets, snapshot_path
from storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    CorruptLogError,
    OpenFile,
    Segment,
    iter_headers,
)
from wire import batch
from wire.errors import KafkaError

_READ_SIZE = 1024 * 1024
_LEFTOVERS = (DELETED_SUFFIX, ".cleaned", ".swap", ".tmp")


def list_segments(io: Io, directory: str) -> list[Segment]:
    """The segments of a partition folder, oldest first, with the sizes of their files."""
    segments = []
    for name in io.listdir(directory):
        if name.endswith(LOG_SUFFIX) and name[:20].isdigit() and len(name) == 24:
            segment = Segment(directory, int(name[:20]))
            status = io.stat(segment.path())
            segment.size = status.st_size
            segment.created_ms = int(status.st_mtime * 1000)
            segments.append(segment)
    return sorted(segments, key=lambda segment: segment.base_offset)


def needs_repair(io: Io, directory: str) -> bool:
    """Whether a folder, though stopped cleanly, lacks an index or a snapshot that covers it. Opens no file."""
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


def recover_partition(io: Io, directory: str, recovery_point: int, config: LogConfig) -> int:
    """Mend one partition folder; its log end offset. A folder in order is read, not written."""
    changed = _remove_leftovers(io, directory)
    segments = list_segments(io, directory)
    epochs = LeaderEpochs(directory, io)
    epochs.load()
    end_offset = segments[0].base_offset if segments else 0
    damaged_at: int | None = None
    epochs_before = epochs.entries
    for number, segment in enumerate(segments):
        if damaged_at is not None:
            # Offsets after a cut would leave a hole that no reader could tell from data lost.
            _remove(io, segment)
            continue
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is not None and following <= recovery_point:
            _mend_indexes(io, segment, config)
            end_offset = following
            continue
        before = segment.size
        if segment.base_offset < end_offset:
            raise CorruptLogError(f"{segment.path()} begins inside the segment before it")
        end_offset, rewritten = _recover_segment(io, segment, recovery_point, config, epochs)
        changed |= rewritten
        if segment.size != before:
            damaged_at = end_offset
    epochs.truncate_end(end_offset if end_offset else 1)
    if epochs.entries != epochs_before:
        epochs.write()
        changed = True
    for offset in snapshot_offsets(io.listdir(directory)):
        if offset > end_offset:
            io.unlink(snapshot_path(directory, offset))
    if segments:
        producers = ProducerState()
        covered = producers.load(io, directory, end_offset)
        if covered != end_offset:
            replay_producers(io, list_segments(io, directory), producers, covered)
            sync_path(io, producers.save(io, directory, end_offset))
            changed = True
    if changed:
        sync_path(io, directory)
    return end_offset


def kept_end(io: Io, directory: str, recovery_point: int) -> int:
    """The log end offset that `recover_partition` would give. For readers: nothing is written."""
    segments = list_segments(io, directory)
    end_offset = segments[0].base_offset if segments else 0
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if following is not None and following <= recovery_point:
            end_offset = following
            continue
        if segment.base_offset < end_offset:
            raise CorruptLogError(f"{segment.path()} begins inside the segment before it")
        file = OpenFile(io, segment.path(), os.O_RDONLY)
        file_size = segment.size
        position, end_offset = _trusted_start(io, segment, file, recovery_point)
        for at, header in _whole_batches(io, segment, file, position, end_offset, file_size):
            position, end_offset = at + header.size_in_bytes, header.last_offset + 1
        if position < file_size:
            break
    return end_offset


def replay_producers(io: Io, segments: list[Segment], producers: ProducerState, from_offset: int) -> None:
    """Bring `producers` from `from_offset` to the end of the log by its batch headers."""
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= from_offset:
            continue
        if not segment.size:
            continue
        file = OpenFile(io, segment.path(), os.O_RDONLY)
        position = 0
        if from_offset > segment.base_offset:
            found = segment.find(io, file, from_offset, segment.size)
            if found is None:
                continue
            position = found[0]
        for _, header in iter_headers(io, file.fd, position, segment.size):
            if header.producer_id >= 0 and header.base_offset >= from_offset:
                producers.record(header, header.base_offset, header.max_timestamp)


def _remove_leftovers(io: Io, directory: str) -> bool:
    removed = False
    names = io.listdir(directory)
    logs = {name[: -len(LOG_SUFFIX)] for name in names if name.endswith(LOG_SUFFIX)}
    for name in names:
        orphan = name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX)) and name.partition(".")[0] not in logs
        if orphan or name.endswith(_LEFTOVERS):
            io.unlink(os.path.join(directory, name))
            removed = True
    return removed


def _remove(io: Io, segment: Segment) -> None:
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        try:
            io.unlink(segment.path(suffix))
        except FileNotFoundError:
            pass


def _mend_indexes(io: Io, segment: Segment, config: LogConfig) -> None:
    """Rebuild the indexes of a flushed segment if they are absent or not credible."""
    try:
        segment.load_indexes(io)
    except CorruptLogError:
        file = OpenFile(io, segment.path(), os.O_RDONLY)
        segment.rebuild_indexes(io, file, config.index_interval_bytes)
        segment.replace_indexes(io)
    segment.index = segment.times = None


def _recover_segment(
    io: Io, segment: Segment, recovery_point: int, config: LogConfig, epochs: LeaderEpochs
) -> tuple[int, bool]:
    """Check and index the segment from the recovery point on, and cut it after its last whole batch.

    Its end offset, and whether any file had to be written or synced.
    """
    file = OpenFile(io, segment.path(), os.O_RDWR)
    file_size = segment.size
    interval = config.index_interval_bytes
    position, expected = _trusted_start(io, segment, file, recovery_point)
    segment.size = position
    if position:
        segment.index_on_next(interval)
    for at, header in _whole_batches(io, segment, file, position, expected, file_size):
        segment.note(header.last_offset, header.size_in_bytes, header.max_timestamp, interval)
        if header.partition_leader_epoch > epochs.latest:
            epochs.assign(header.partition_leader_epoch, header.base_offset)
        position = at + header.size_in_bytes
        expected = header.last_offset + 1
    changed = False
    if position < file_size:
        io.ftruncate(file.fd, position)
        changed = True
    if changed or expected > recovery_point:
        io.fdatasync(file.fd)
        changed = True
    segment.finish_times()
    if not segment.indexes_are_on_disk(io):
        segment.replace_indexes(io)
        changed = True
    segment.index = segment.times = None
    return expected, changed


def _whole_batches(
    io: Io, segment: Segment, file: OpenFile, position: int, expected: int, file_size: int
) -> Iterator[tuple[int, batch.BatchHeader]]:
    """Position and header of the batches from `position` on, up to the first that recovery would not keep."""
    data = b""
    start = 0
    while position < file_size:
        at = position - start
        if at + batch.HEADER_SIZE > len(data):
            data, start, at = io.pread(file.fd, _READ_SIZE, position), position, 0
        try:
            header = batch.parse_header(data, at)
            size = header.size_in_bytes
            if at + size > len(data) and size <= file_size - position:
                data, start, at = io.pread(file.fd, max(_READ_SIZE, size), position), position, 0
            header = batch.check(data, at)
        except KafkaError:
            return
        last = header.last_offset
        if header.base_offset < expected or header.last_offset_delta < 0:
            return
        if last - segment.base_offset > 2**31 - 1:
            return
        yield position, header
        position += size
        expected = last + 1


def _trusted_start(io: Io, segment: Segment, file: OpenFile, recovery_point: int) -> tuple[int, int]:
    """Where the check begins, and the least offset that may stand there.

    The last indexed batch below the recovery point, if the index holds; else the beginning.
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
