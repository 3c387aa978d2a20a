"""Filters that reduce what is read."""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)


class Bounds:
    """The bounds that filters put on partitions, offsets and times."""

    def __init__(self) -> None:
        self._partitions: set[int] | None = None
        self._lo, self._hi = 0, 2**63 - 1
        #: Records before the first with this timestamp (ms) or a later one are not wanted.
        self.since_ms: int | None = None

    def has_partition(self, partition: int) -> bool:
        """Whether a partition is wanted."""
        return self._partitions is None or partition in self._partitions

    def narrow(self, lo: int, hi: int) -> tuple[int, int]:
        """The wanted part of the offsets [lo, hi)."""
        return max(lo, self._lo), min(hi, self._hi)

    def take(self, column: str, one: Filter) -> bool:
        """Note a filter on a record's column. Returns whether that decides it, so that Spark need not check again."""
        if isinstance(one, IsNotNull):
            return column in ("partition", "offset")
        value: Any = getattr(one, "value", None)
        if column == "partition":
            return self._take_partition(one, value)
        if column == "offset":
            return self._take_offset(one, value)
        # Times need not increase with offsets: the end of a range of times does not bound the offsets.
        begins = isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual)
        if column == "timestamp" and begins and isinstance(value, datetime.datetime):
            since = int(value.timestamp() * 1000)
            self.since_ms = since if self.since_ms is None else max(self.since_ms, since)
        return False

    def _take_partition(self, one: Filter, value: Any) -> bool:
        if isinstance(one, EqualTo):
            wanted = {value}
        elif isinstance(one, In):
            wanted = set(value)
        else:
            return False
        self._partitions = wanted if self._partitions is None else self._partitions & wanted
        return True

    def _take_offset(self, one: Filter, value: Any) -> bool:
        if isinstance(one, EqualTo):
            lo, hi = value, value + 1
        elif isinstance(one, GreaterThan):
            lo, hi = value + 1, self._hi
        elif isinstance(one, GreaterThanOrEqual):
            lo, hi = value, self._hi
        elif isinstance(one, LessThan):
            lo, hi = self._lo, value
        elif isinstance(one, LessThanOrEqual):
            lo, hi = self._lo, value + 1
        else:
            return False
        self._lo, self._hi = max(self._lo, lo), min(self._hi, hi)
        return True
