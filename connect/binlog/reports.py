"""How subscriptions are doing, for `barnabas connect status`: periodic records in a compacted topic.

A report is written if possible, but the subscription does not depend on it. Only the position (`place.py`) is certain.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Literal, TypeAlias

import msgspec

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.fetch import Reader as Consumer
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch

#: The key of a record is the name of its subscription.
TOPIC = "barnabas.connect.status"
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
#: Without a report for this long, a subscription counts as ended.
STALE_SECONDS = 60
#: The most characters of a reported error.
MOST_ERROR = 1000
State: TypeAlias = Literal["READING", "COPYING", "RETRYING", "ENDED"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How one subscription does: messages per second since the previous report, and the last error with its time.

    Times are in seconds since 1970.
    """

    state: State
    at: int
    per_second: float = 0.0
    error: str = ""
    error_at: int = 0

    def state_at(self, now: float) -> str:
        """The state; a subscription that was killed no longer reports."""
        return "SILENT" if self.state != "ENDED" and now - self.at > STALE_SECONDS else self.state


def tell(cluster: Cluster, name: str, report: Report) -> None:
    """Write a report. Raises ClientError."""
    admin.create_topic(cluster, TOPIC, _CONFIGS, partitions=1)
    record = Record(name.encode(), msgspec.json.encode(report), time.time_ns() // 1_000_000)
    produce(cluster, [Batch(TOPIC, 0, build_batch([record]))], acks=1)


def reports(cluster: Cluster, names: Collection[str]) -> dict[str, Report]:
    """The last report of each of these subscriptions. Any client may write to the topic, so unreadable reports are left
    out and errors are cut.
    """
    key = (TOPIC, 0)
    try:
        (start,) = list_offsets(cluster, [key], EARLIEST).values()
        (end,) = list_offsets(cluster, [key], LATEST).values()
    except ClientError:  # no report was ever written
        return {}
    consumer = Consumer(cluster, TOPIC)
    consumer.positions[0] = start
    found = {}
    while consumer.positions[0] < end:
        for _, record in consumer.poll():
            name = (record.key or b"").decode("utf-8", "replace")
            if name not in names:
                continue
            try:
                report = msgspec.json.decode(record.value or b"", type=Report)
            except msgspec.MsgspecError:
                continue
            found[name] = msgspec.structs.replace(report, error=report.error[:MOST_ERROR])
    return found
