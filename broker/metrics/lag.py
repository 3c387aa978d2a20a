"""How far consumer groups are behind the ends of their partitions, in records and in seconds.

The lag in records is the high watermark less the committed offset. The lag in seconds is how long ago the first record
was written that the group has yet to commit. To read that record for each question would cost a read of the log,
perhaps from disk. So the ends of the partitions that groups read are noted every few seconds, and the time of a record
lies between those of the two notes around it. Old notes get thinner: a partition has at most 64 of them.

A group that is behind the oldest note is behind by at least that note's age, and that is what is told.
"""

from __future__ import annotations

from bisect import bisect_right

MOST_NOTES = 64


class Ends:
    """When a partition ended where: notes of offset and time (any seconds), of which the older ones are thinner."""

    __slots__ = ("_offsets", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._times)

    def note(self, now: float, end: int) -> None:
        """The partition ends at an offset now. One that ends before its last note was made anew: nothing is known."""
        times, offsets = self._times, self._offsets
        if offsets and end < offsets[-1]:
            times.clear()
            offsets.clear()
        if len(offsets) > 1 and offsets[-1] == offsets[-2] == end:
            times[-1] = now  # nothing new since the note before: the last one says so until now
            return
        times.append(now)
        offsets.append(end)
        if len(times) > MOST_NOTES:  # of the older half every second note goes
            older = MOST_NOTES // 2
            self._times = times[:older:2] + times[older:]
            self._offsets = offsets[:older:2] + offsets[older:]

    def age(self, now: float, offset: int) -> float:
        """Seconds since the record at an offset was written; 0 for one that is not there yet."""
        times, offsets = self._times, self._offsets
        if not offsets or offset >= offsets[-1]:
            return 0.0
        after = bisect_right(offsets, offset)
        if after == 0:  # it was there before the first note
            return max(0.0, now - times[0])
        before = after - 1
        share = (offset - offsets[before]) / (offsets[after] - offsets[before])
        return max(0.0, now - (times[before] + share * (times[after] - times[before])))
