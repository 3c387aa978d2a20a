"""`barnabas topics`: create, list, describe, delete and alter topics."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

from barnabas.client.admin import create_partitions, create_topic, delete_topic, set_topic_config, topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets
from barnabas.client.transactions import OpenTransaction, open_transactions
from barnabas.scripts.listing import duration, show, size
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.wire.messages.metadata import MetadataResponseTopic
from barnabas.wire.table import table
from barnabas.wire.text import visible

#: How many topics' figures are requested at a time.
AT_ONCE = 500
RETENTION = ["cleanup.policy", "retention.ms", "retention.bytes"]


def pairs(texts: list[str]) -> dict[str, str]:
    """Parse KEY=VALUE arguments. Raises ClientError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ClientError(f"--config {text}: expected KEY=VALUE")
        found[key] = value
    return found


def existing(cluster: Cluster, topic: str) -> dict[int, int]:
    """The leaders of an existing topic. For a missing one, raises ClientError with the nearest name."""
    (found,) = cluster.metadata([topic])
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ClientError(absent(cluster, topic))
    return cluster.leaders(topic)


def absent(cluster: Cluster, topic: str) -> str:
    """The message for a topic that does not exist."""
    names = [known.name or "" for known in cluster.metadata(None)]
    near = difflib.get_close_matches(topic, names, n=1)
    remedy = f"did you mean {near[0]}?" if near else "'barnabas topics list' shows all"
    return f"Topic {topic}: UNKNOWN_TOPIC_OR_PARTITION (it does not exist; {remedy})"


def create(args: argparse.Namespace) -> int:
    """Create a topic."""
    with Cluster(args.server) as cluster:
        answer = create_topic(
            cluster,
            args.topic,
            pairs(args.config),
            partitions=args.partitions,
            replication_factor=args.replication_factor,
        )
    check(answer.error_code, f"Topic {args.topic}", answer.error_message)
    print(f"Created topic {args.topic} with {answer.num_partitions} partition(s).")
    return 0


def list_topics(args: argparse.Namespace) -> int:
    """Print the topics, one name per line; on a terminal or on request, with figures."""
    with Cluster(args.server) as cluster:
        found = sorted(cluster.metadata(None), key=lambda t: t.name or "")
        topics = [topic for topic in found if args.internal or not topic.is_internal]
        if args.names or not (args.long or args.json or sys.stdout.isatty()):
            for topic in topics:
                print(visible(topic.name or ""))
            return 0
        sizes = _sizes(cluster)
        rows = []
        for at in range(0, len(topics), AT_ONCE):
            rows += _figures(cluster, topics[at : at + AT_ONCE], sizes, as_json=args.json)
            _progress(at + AT_ONCE, len(topics))
    show(("topic", "partitions", "records", "bytes", "retention"), rows, as_json=args.json)
    return 0


def _figures(
    cluster: Cluster, topics: list[MetadataResponseTopic], sizes: Mapping[str, int] | None, *, as_json: bool
) -> list[tuple[object, ...]]:
    keys = [(topic.name or "", part.partition_index) for topic in topics for part in topic.partitions]
    first, end = (list_offsets(cluster, keys, special, isolation=READ_UNCOMMITTED) for special in (EARLIEST, LATEST))
    configs = topic_configs(cluster, [topic.name or "" for topic in topics], RETENTION, defaults=True)
    rows: list[tuple[object, ...]] = []
    for topic in topics:
        name = topic.name or ""
        of = [(name, part.partition_index) for part in topic.partitions]
        count = sum(end[key] - first[key] for key in of)
        stored = None if sizes is None else sizes.get(name, 0)
        rows.append((name, len(of), count, stored if as_json else size(stored), _retention(configs.get(name, {}))))
    return rows


def _sizes(cluster: Cluster) -> dict[str, int] | None:
    """The size of each topic in bytes, added up over the brokers; None if the user may not see it."""
    found: Counter[str] = Counter()
    for node in cluster.node_ids():
        request = DescribeLogDirsRequest(topics=None)
        for result in cluster.ask(partial(cluster.broker, node), request, DescribeLogDirsResponse).results:
            if result.error_code:
                return None
            for topic in result.topics:
                found[topic.name] += sum(part.partition_size for part in topic.partitions)
    return found or None


def _retention(configs: Mapping[str, str]) -> str | None:
    """How long, and up to which size, a topic is kept."""
    if not configs:
        return None
    policies = configs.get("cleanup.policy", "delete").split(",")
    kept = ["compact"] if "compact" in policies else []
    if "delete" in policies:
        ms, most = int(configs.get("retention.ms", -1)), int(configs.get("retention.bytes", -1))
        kept += [duration(ms)] if ms >= 0 else []
        kept += [size(most) or ""] if most >= 0 else []
    return ", ".join(kept) or "for ever"


def _progress(done: int, total: int) -> None:
    """Show on a terminal how far a long list is."""
    if total > AT_ONCE and sys.stderr.isatty():
        print(f"\r{min(done, total)} of {total} topics", end="" if done < total else "\n", file=sys.stderr, flush=True)


def bounds(cluster: Cluster, topic: str, partitions: Iterable[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Where partitions begin and end. Open transactions are included."""
    keys = [(topic, partition) for partition in partitions]
    first, end = (list_offsets(cluster, keys, special, isolation=READ_UNCOMMITTED) for special in (EARLIEST, LATEST))
    return {p: offset for (_, p), offset in first.items()}, {p: offset for (_, p), offset in end.items()}


def describe(args: argparse.Namespace) -> int:
    """Print a topic's partitions with their offsets, and its own configuration."""
    with Cluster(args.server) as cluster:
        known = sorted(t.name or "" for t in cluster.metadata(None) if args.internal or not t.is_internal)
        for i, name in enumerate([args.topic] if args.topic else known):
            (topic,) = cluster.metadata([name])
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ClientError(absent(cluster, name))
            check(topic.error_code, f"Topic {name}")
            first, end = bounds(cluster, name, [p.partition_index for p in topic.partitions])
            configs = topic_configs(cluster, [name])[name]
            if args.json:
                _describe_as_json(topic, first, end, configs)
                continue
            own = [f"{key}={value}" for key, value in configs.items()]
            if i:
                print()
            print(f"Topic: {visible(name)}  Id: {uuid.UUID(bytes=topic.topic_id)}  Partitions: {len(topic.partitions)}")
            print(f"Configs: {visible(', '.join(own)) or 'the defaults'}")
            rows = [
                (
                    p.partition_index,
                    p.leader_id,
                    p.leader_epoch,
                    first[p.partition_index],
                    end[p.partition_index],
                    end[p.partition_index] - first[p.partition_index],
                )
                for p in sorted(topic.partitions, key=lambda p: p.partition_index)
            ]
            print(table(("PARTITION", "LEADER", "EPOCH", "START", "END", "RECORDS"), rows))
            for held in open_transactions(cluster, [(name, p.partition_index) for p in topic.partitions]):
                print(visible(holder(name, held, time.time())))
    return 0


def _describe_as_json(
    topic: MetadataResponseTopic, first: Mapping[int, int], end: Mapping[int, int], configs: Mapping[str, str]
) -> None:
    partitions = [
        {
            "partition": p.partition_index,
            "leader": p.leader_id,
            "epoch": p.leader_epoch,
            "start": first[p.partition_index],
            "end": end[p.partition_index],
        }
        for p in sorted(topic.partitions, key=lambda p: p.partition_index)
    ]
    topic_id = str(uuid.UUID(bytes=topic.topic_id))
    print(json.dumps({"topic": topic.name, "id": topic_id, "configs": configs, "partitions": partitions}))


def holder(topic: str, held: OpenTransaction, now: float) -> str:
    """Who holds up a partition's readers, and how to end that."""
    who = f"Partition {held.partition}: read_committed consumers wait at offset {held.start_offset}"
    where = f"--topic {topic} --partition {held.partition} --start-offset {held.start_offset}"
    if held.known is None:
        since = f"last record {_ago(now - held.last_timestamp / 1000)}"
        who += f" for producer {held.producer_id}, {since}, which no coordinator knows"
        return f"{who}; end it with kafka-transactions.sh abort {where}"
    known = held.known
    since = _ago(now - known.transaction_start_time_ms / 1000)
    who += f" for transactional id {known.transactional_id} (producer {held.producer_id}, {known.transaction_state}"
    if known.transaction_state != "Ongoing":
        return f"{who} since {since}): its markers are being written; if that lasts, the broker's log says why not"
    return (
        f"{who} since {since}): it ends by itself after {known.transaction_timeout_ms / 1000:g} s, or when a producer "
        f"of this id starts, or with kafka-transactions.sh forceTerminateTransaction"
    )


def _ago(seconds: float) -> str:
    return f"{max(seconds, 0):.0f} s ago"


def delete(args: argparse.Namespace) -> int:
    """Delete topics."""
    with Cluster(args.server) as cluster:
        for name in args.topic:
            code, message = delete_topic(cluster, name)
            check(code, f"Topic {name}", message)
            print(f"Deleted topic {name}.")
    return 0


def alter(args: argparse.Namespace) -> int:
    """Change a topic's partition count or configuration."""
    configs = pairs(args.config)
    if args.partitions is None and not configs and not args.delete_config:
        raise ClientError("Nothing to change: give --partitions, --config or --delete-config")
    with Cluster(args.server) as cluster:
        if configs or args.delete_config:
            set_topic_config(cluster, args.topic, configs, unset=args.delete_config)
        if args.partitions is not None:
            create_partitions(cluster, args.topic, args.partitions)
    print(f"Altered topic {args.topic}.")
    return 0
