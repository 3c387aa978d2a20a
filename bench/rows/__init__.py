"""The rows of the benchmark, by name: each is one measurement of a broker.

A row's name is a family, and for some a number, as in `producers-16`: any number works, and `SETS` has the table's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.rows import compaction, many, recovery, requests, scale, start, throughput, transactions
from bench.running import Running

Figures = dict[str, float]
SIZES = (1, 10, 100, 1000, 10_000)
SETS = {
    "main": [
        "start", "produce-1k", "consume", "produce-100", "single", "sync", "end-to-end", "memory",
        "producers-1", "producers-16", "producers-128",
    ],
    "giant": [
        "connections-2000", "session-1000", "partitions-10000", "groups-1000", "cold-4", "recovery-10",
    ],
    "transactions": ["transactions-1", "transactions-16", "transform-1", "aborted",
        "aborted-recovery-16000", "aborted-recovery-150000",
    ],
    "compaction": ["compaction", "compaction-noticed"],
    "scale": [f"scale-{what}-{size}" for what in ("partitions", "connections") for size in SIZES],
}  # fmt: skip
SETS["all"] = [row for rows in SETS.values() for row in rows]


@dataclass(frozen=True)
class Row:
    """`seconds` is about its duration with one broker; `fresh` rows get a broker of their own.

    Before its first `warm` row, a broker answers requests that are not measured.
    """

    measure: Callable[[Running], Figures]
    seconds: float
    fresh: bool = False
    warm: bool = False


def find(name: str) -> Row:
    """The row with a name. Raises ValueError."""
    plain = {
        "start": Row(start.start, 0),
        "produce-1k": Row(throughput.produce_1k, 8),
        "consume": Row(throughput.consume, 4),
        "produce-100": Row(throughput.produce_100, 7),
        "single": Row(requests.single, 6, warm=True),
        "sync": Row(requests.sync, 6, warm=True),
        "end-to-end": Row(requests.end_to_end, 19, warm=True),
        "memory": Row(start.memory, 0),
        "aborted": Row(transactions.aborted, 40),
        "compaction": Row(compaction.compaction, 60, fresh=True, warm=True),
        "compaction-noticed": Row(compaction.compaction_noticed, 70, fresh=True, warm=True),
    }
    if name in plain:
        return plain[name]
    family, _, number = name.rpartition("-")
    if not number.isdigit() or int(number) < 1:
        raise ValueError(f"no row {name}")
    n = int(number)
    numbered = {
        "producers": Row(lambda running: requests.producers(running, n), 6, warm=True),
        "connections": Row(lambda running: many.connections(running, n), 12, fresh=True),
        "transactions": Row(lambda running: transactions.transactions(running, n), 12),
        "transform": Row(lambda running: transactions.transform(running, n), 15),
        "session": Row(lambda running: many.session(running, n), 12, fresh=True, warm=True),
        "partitions": Row(lambda running: many.partitions(running, n), 15 + n / 300, fresh=True),
        "groups": Row(lambda running: many.groups(running, n), 20 + n / 50, fresh=True),
        "cold": Row(lambda running: throughput.cold(running, n), 15 + 15 * n, fresh=True),
        "aborted-recovery": Row(lambda running: recovery.aborted_recovery(running, n), 20 + n / 2000, fresh=True),
        "recovery": Row(lambda running: recovery.recovery(running, n), 15 + 8 * n, fresh=True),
        "scale-partitions": Row(lambda running: scale.partitions(running, n), 15 + n / 300, fresh=True, warm=True),
        "scale-connections": Row(lambda running: scale.connections(running, n), 25 + n / 500, fresh=True, warm=True),
    }
    if family not in numbered:
        raise ValueError(f"no row {name}")
    return numbered[family]
