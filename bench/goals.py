"""Our goals compared with Apache Kafka, figure by figure.

Most goals are ratios to the peer's figure of the same run; some are absolute.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """At most (`most`) or at least `limit`, for the ratio or for our own figure."""

    limit: float
    most: bool = True
    ratio: bool = True

    def text(self) -> str:
        """The goal as the table shows it."""
        return f"{'<=' if self.most else '>='} {self.limit:g}{'x' if self.ratio else ''}"

    def met(self, ours: float, theirs: float | None) -> bool | None:
        """Whether the goal is reached; None if there is no peer's figure for the ratio."""
        if self.ratio and not theirs:
            return None
        value = ours / theirs if self.ratio and theirs else ours
        return value <= self.limit if self.most else value >= self.limit


def most(ratio: float) -> Goal:
    """At most this multiple of the peer's figure."""
    return Goal(ratio)


def least(ratio: float) -> Goal:
    """At least this multiple of the peer's figure."""
    return Goal(ratio, most=False)


def below(value: float) -> Goal:
    """At most this value, independent of the peer."""
    return Goal(value, ratio=False)


GOALS: dict[tuple[str, str, str], Goal] = {
    ("page-cache", "produce-1k", "MB/s"): least(1.2),
    ("page-cache", "produce-1k", "CPU s/GB"): most(0.5),
    ("page-cache", "consume", "MB/s"): least(1),
    ("page-cache", "consume", "CPU s/GB"): most(1),
    ("page-cache", "produce-100", "CPU s/GB"): most(0.5),
    ("page-cache", "single", "req/s"): least(1.3),
    ("page-cache", "single", "CPU us/req"): most(0.8),
    ("page-cache", "sync", "p50 ms"): most(0.8),
    ("page-cache", "sync", "p99 ms"): most(1),
    ("page-cache", "end-to-end", "p50 ms"): most(1),
    ("page-cache", "end-to-end", "p99 ms"): most(0.2),
    ("page-cache", "end-to-end", "p99.9 ms"): most(0.2),
    ("page-cache", "start", "first answer s"): below(0.4),
    ("page-cache", "start", "idle MiB"): below(60),
    ("page-cache", "memory", "loaded MiB"): below(150),
    ("fsync", "producers-16", "req/s"): least(2),
    ("fsync", "sync", "p50 above fsync ms"): below(0.2),
    **{
        (policy, row, figure): goal
        for policy in ("page-cache", "fsync")
        for row, figure, goal in (
            ("transactions-1", "txn/s", least(2)),
            ("transactions-1", "p99 ms", most(0.5)),
            ("transactions-16", "txn/s", least(2)),
            ("transactions-16", "p99 ms", most(0.5)),
            ("transform-1", "txn/s", least(1.5)),
        )
    },
    ("page-cache", "aborted", "cost of a plain one x"): below(1.1),
    ("page-cache", "compaction", "MB/CPU s"): least(1.5),
    ("page-cache", "compaction-noticed", "of quiet x"): below(1.2),
}
