"""How far consumer groups are behind the ends of their partitions, in records and in seconds.

The lag in records is the high watermark minus the committed offset. The lag in seconds is the age of the first record
that the group has not committed. Reading that record each time would cost a read of the log, perhaps from disk. So the
ends of the partitions that groups read are noted every few seconds, and the time of a record is between those of the
two notes around it. Old notes are thinned out: a partition has at most 64.

A group that is behind the oldest note is behind by at least that note's age, and that age is reported.
"""

from __future__ import annotations

from bisect import bisect_right

MOST_NOTES = 64


class Ends:
    """Notes of a partition's end offset and the time (in seconds of any clock). Older notes are thinned out."""

    __slots__ = ("_offsets", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._times)

    def note(self, now: float, end: int) -> None:
        """Note the present end. If it is before the last note, the partition is new: older notes are dropped."""
        times, offsets = self._times, self._offsets
        if offsets and end < offsets[-1]:
            times.clear()
            offsets.clear()
        if len(offsets) > 1 and offsets[-1] == offsets[-2] == end:
            times[-1] = now  # no change since the previous note: extend the last one until now
            return
        times.append(now)
        offsets.append(end)
        if len(times) > MOST_NOTES:  # drop every second note of the older half
            older = MOST_NOTES // 2
            self._times = times[:older:2] + times[older:]
            self._offsets = offsets[:older:2] + offsets[older:]

    def age(self, now: float, offset: int) -> float:
        """Seconds since the record at an offset was written; 0 if it does not exist yet."""
        times, offsets = self._times, self._offsets
        if not offsets or offset >= offsets[-1]:
            return 0.0
        after = bisect_right(offsets, offset)
        if after == 0:  # it existed before the first note
            return max(0.0, now - times[0])
        before = after - 1
        share = (offset - offsets[before]) / (offsets[after] - offsets[before])
        return max(0.0, now - (times[before] + share * (times[after] - times[before])))
