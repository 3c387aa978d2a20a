"""`barnabas topics`: create, list, describe, delete and alter topics."""

from __future__ import annotations

import argparse
import difflib
import uuid

from barnabas.client.admin import EARLIEST, LATEST, create_topic, delete_topic, set_topic_config, topic_configs
from barnabas.client.cluster import ClientError, Cluster, check
from barnabas.scripts.output import table
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.text import visible


def pairs(texts: list[str]) -> dict[str, str]:
    """KEY=VALUE arguments. Raises ClientError."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ClientError(f"--config {text}: expected KEY=VALUE")
        found[key] = value
    return found


def existing(cluster: Cluster, topic: str) -> dict[int, int]:
    """The leaders of a topic that is there. Raises ClientError, with the nearest name, for one that is not."""
    (found,) = cluster.metadata([topic])
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ClientError(absent(cluster, topic))
    return cluster.leaders(topic)


def absent(cluster: Cluster, topic: str) -> str:
    """What the user is told of a topic that is not there."""
    names = [known.name or "" for known in cluster.metadata(None)]
    near = difflib.get_close_matches(topic, names, n=1)
    remedy = f"did you mean {near[0]}?" if near else "'barnabas topics list' shows all"
    return f"Topic {topic}: UNKNOWN_TOPIC_OR_PARTITION (it does not exist; {remedy})"


def create(args: argparse.Namespace) -> int:
    """Create a topic."""
    with Cluster(args.server) as cluster:
        answer = create_topic(
            cluster, args.topic, pairs(args.config), partitions=args.partitions,
            replication_factor=args.replication_factor,
        )  # fmt: skip
    check(answer.error_code, f"Topic {args.topic}", answer.error_message)
    print(f"Created topic {args.topic} with {answer.num_partitions} partition(s).")
    return 0


def list_topics(args: argparse.Namespace) -> int:
    """Print the names of the topics, one a line."""
    with Cluster(args.server) as cluster:
        for topic in sorted(cluster.metadata(None), key=lambda t: t.name or ""):
            if args.internal or not topic.is_internal:
                print(visible(topic.name or ""))
    return 0


def offsets(cluster: Cluster, topic: str, leaders: dict[int, int], timestamp: int) -> dict[int, int]:
    """The offset of a timestamp or special value in every partition."""
    found: dict[int, int] = {}
    for leader in set(leaders.values()):
        partitions = [ListOffsetsPartition(p, timestamp=timestamp) for p, node in leaders.items() if node == leader]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, partitions)])
        for part in cluster.broker(leader).ask(request, ListOffsetsResponse).topics[0].partitions:
            check(part.error_code, f"Offsets of {topic}-{part.partition_index}")
            found[part.partition_index] = part.offset
    return found


def describe(args: argparse.Namespace) -> int:
    """Print a topic's partitions with their offsets, and the configuration that it sets itself."""
    with Cluster(args.server) as cluster:
        known = sorted(t.name or "" for t in cluster.metadata(None) if args.internal or not t.is_internal)
        for i, name in enumerate([args.topic] if args.topic else known):
            (topic,) = cluster.metadata([name])
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise ClientError(absent(cluster, name))
            check(topic.error_code, f"Topic {name}")
            leaders = {p.partition_index: p.leader_id for p in topic.partitions}
            first, end = (offsets(cluster, name, leaders, special) for special in (EARLIEST, LATEST))
            own = [f"{key}={value}" for key, value in topic_configs(cluster, [name])[name].items()]
            if i:
                print()
            print(f"Topic: {visible(name)}  Id: {uuid.UUID(bytes=topic.topic_id)}  Partitions: {len(topic.partitions)}")
            print(f"Configs: {visible(', '.join(own)) or 'the defaults'}")
            rows = [
                (p.partition_index, p.leader_id, p.leader_epoch, first[p.partition_index], end[p.partition_index],
                 end[p.partition_index] - first[p.partition_index])
                for p in sorted(topic.partitions, key=lambda p: p.partition_index)
            ]  # fmt: skip
            print(table(("PARTITION", "LEADER", "EPOCH", "START", "END", "RECORDS"), rows))
    return 0


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
            grown = CreatePartitionsTopic(name=args.topic, count=args.partitions, assignments=None)
            more = CreatePartitionsRequest(topics=[grown], timeout_ms=30000)
            result = cluster.controller(more, CreatePartitionsResponse).results[0]
            check(result.error_code, f"Topic {args.topic}", result.error_message)
    print(f"Altered topic {args.topic}.")
    return 0
