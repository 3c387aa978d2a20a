"""Reading a data directory's logs as Arrow batches, beside a running broker or without one.

    log_dir = LogDir("/var/lib/barnabas")
    ends = log_dir.ranges(log_dir.partitions("orders"))       # {(topic, partition): (earliest, end)}
    for split in plan(log_dir, ends):
        for batch in read(split, ["offset", "value"]):
            ...                                               # pyarrow.RecordBatch

Nothing at or above the durable end is read, and nothing is written. Errors are `WalError`, each one line.
"""

from __future__ import annotations

from barnabas.streams.wal.errors import DataLossError, NewTopicError, NotReadyError, TooMuchError, WalError
from barnabas.streams.wal.log_dir import LogDir, Ranges
from barnabas.streams.wal.plan import Planner, Split, plan
from barnabas.streams.wal.read import COLUMNS, read, schema_of
from barnabas.streams.wal.stamps import Stamps
from barnabas.streams.wal.times import offset_at

__all__ = [
    "COLUMNS",
    "DataLossError",
    "LogDir",
    "NewTopicError",
    "NotReadyError",
    "Planner",
    "Ranges",
    "Split",
    "Stamps",
    "TooMuchError",
    "WalError",
    "offset_at",
    "plan",
    "read",
    "schema_of",
]
