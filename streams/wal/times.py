"""From a timestamp to an offset, as ListOffsets answers it."""

from __future__ import annotations

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.log_reader import SegmentReader
from barnabas.streams.wal.errors import WalError
from barnabas.streams.wal.log_dir import LogDir
from barnabas.wire import batch
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import KafkaError


def offset_at(log_dir: LogDir, key: TopicPartition, timestamp: int, lo: int, hi: int) -> int | None:
    """The offset in [lo, hi) of the first record at or after `timestamp` (ms since 1970); None if there is none.

    Raises WalError for a log that cannot be read.
    """
    segments = log_dir.segments(key)
    try:
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else hi
            if segment.base_offset < hi and following > lo and segment.size:
                found = _search(segment, timestamp, lo, hi)
                if found is not None:
                    return found
    except FileNotFoundError:  # deleted meanwhile: the next segments are newer
        return offset_at(log_dir, key, timestamp, lo, hi)
    except (OSError, CorruptLogError, KafkaError) as error:
        raise WalError(f"{key[0]}-{key[1]} cannot be read: {error}") from None
    return None


def _search(segment: SegmentReader, timestamp: int, lo: int, hi: int) -> int | None:
    least = max(segment.floor_time(timestamp), lo)
    if least >= hi:
        return None
    found = segment.find(least)
    if found is None:
        return None
    for position, header in segment.headers(found.position, segment.size):
        if header.max_timestamp >= timestamp and header.last_offset >= lo:
            at = batch.find_time(segment.read(position, header.size_in_bytes), timestamp, lo, hi)
            if at is not None:
                return at[0]
        if header.last_offset >= hi - 1:  # what follows may be half written
            return None
    return None
