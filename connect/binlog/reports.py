"""How subscriptions are doing, for `barnabas connect status`: periodic records in a compacted topic.

A report is written if possible, but the subscription does not depend on it. Only the position (`place.py`) is certain.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import msgspec

from barnabas.client import admin
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.fetch import Reader as Consumer
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.client.produce import Batch, produce
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.subscription_reports import TOPIC, Report, report_in

_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}


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
            report = report_in(record.value or b"")
            if report is not None:
                found[name] = report
    return found
