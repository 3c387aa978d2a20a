"""The total lag of consumer groups in the last hour: a note a minute for each group.

Memory: `MOST_GROUPS` groups with `MOST_NOTES` notes of 16 bytes, and the names of up to `MOST_TOPICS` topics each. That
is 1.2 MB, and the names. Groups beyond that number are left out; which ones is decided by who came first.
"""

from __future__ import annotations

from array import array

MOST_GROUPS, MOST_NOTES, MOST_TOPICS = 1000, 60, 100


class History:
    """The notes of one group, the oldest first: times in ms since 1970, and records."""

    __slots__ = ("at", "records", "topics")

    def __init__(self) -> None:
        self.at, self.records = array("q"), array("q")
        #: All topics of the notes; None if there are more than `MOST_TOPICS`.
        self.topics: frozenset[str] | None = frozenset()

    def note(self, now_ms: int, records: int, topics: frozenset[str]) -> None:
        """Add a note, and drop the oldest one if there are too many."""
        self.at.append(now_ms)
        self.records.append(records)
        if len(self.at) > MOST_NOTES:
            del self.at[0], self.records[0]
        if self.topics is not None and not topics <= self.topics:
            both = self.topics | topics
            self.topics = both if len(both) <= MOST_TOPICS else None


class LagHistory:
    """The notes of all groups that are kept. Each minute: `note` for each group, then `end`."""

    def __init__(self) -> None:
        self._groups: dict[str, History] = {}
        self._has_left_out = False
        #: Whether there were more groups than are kept.
        self.is_full = False

    def __len__(self) -> int:
        return len(self._groups)

    def of(self, group: str) -> History | None:
        """The notes of a group; None if it has none."""
        return self._groups.get(group)

    def note(self, now_ms: int, group: str, records: int, topics: frozenset[str]) -> None:
        """Note a group's lag over these topics, unless there is no room for another group."""
        if group not in self._groups:
            if len(self._groups) >= MOST_GROUPS:
                self._has_left_out = True
                return
            self._groups[group] = History()
        self._groups[group].note(now_ms, records, topics)

    def end(self, now_ms: int) -> None:
        """Forget the groups that had no note at this time: they have no committed offsets any more."""
        for group in [group for group, history in self._groups.items() if history.at[-1] != now_ms]:
            del self._groups[group]
        self.is_full, self._has_left_out = self._has_left_out, False
