"""`barnabas groups`: list and describe consumer groups."""

from __future__ import annotations

import argparse
import difflib
from collections import Counter
from collections.abc import Iterator, Mapping

from barnabas.client import groups
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets
from barnabas.scripts.listing import show
from barnabas.scripts.starts import Start, parse_start
from barnabas.scripts.topics import existing
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.codegen import message_codec
from barnabas.wire.messages.describe_groups import DescribedGroup
from barnabas.wire.records.consumer_protocol import ConsumerProtocolAssignment
from barnabas.wire.streams.keys import is_stream
from barnabas.wire.table import table
from barnabas.wire.text import visible


def list_groups(args: argparse.Namespace) -> int:
    """Print all groups with their state."""
    with Cluster(args.server) as cluster:
        rows = sorted((g.group_id, g.group_state, g.group_type, g.protocol_type) for g in groups.list_groups(cluster))
    show(("group", "state", "type", "protocol"), rows, as_json=args.json)
    return 0


def describe(args: argparse.Namespace) -> int:
    """Print a group's positions, its lag, and its members."""
    with Cluster(args.server) as cluster:
        group = groups.describe_group(cluster, args.group)
        positions = groups.committed(cluster, args.group)
        if group.group_state == "Dead" and not positions:
            raise ClientError(absent(cluster, args.group))
        owners = _owners(group)
        topics = sorted({topic for topic, _ in [*positions, *owners]})
        keys = [(topic, partition) for topic in topics for partition in cluster.leaders(topic)]
        ends = list_offsets(cluster, keys, LATEST, isolation=READ_UNCOMMITTED)
        if not args.json:
            print(
                f"Group: {visible(args.group)}  State: {visible(group.group_state)}  Members: {len(group.members)}  "
                f"Assignor: {visible(group.protocol_data) or '-'}"
            )
        rows = []
        for topic, partition in sorted({*positions, *owners}):
            place = positions.get((topic, partition))
            at, end = place.offset if place else -1, ends.get((topic, partition), -1)
            lag = end - at if at >= 0 and end >= 0 else None
            owner = owners.get((topic, partition), (None, None))
            rows.append((topic, partition, at if at >= 0 else None, end, lag, *owner))
    show(("topic", "partition", "committed", "end", "lag", "member", "host"), rows, as_json=args.json)
    return 0


def delete(args: argparse.Namespace) -> int:
    """Delete groups without members, together with their positions."""
    with Cluster(args.server) as cluster:
        for name in args.group:
            group = groups.describe_group(cluster, name)
            if group.group_state == "Dead" and not groups.committed(cluster, name):
                raise ClientError(absent(cluster, name))
            _check_idle(group)
            if args.dry_run:
                print(f"Would delete group {visible(name)}, with {len(groups.committed(cluster, name))} position(s).")
                continue
            groups.delete_group(cluster, name)
            print(f"Deleted group {visible(name)}.")
    return 0


def absent(cluster: Cluster, name: str) -> str:
    """The message for a group that does not exist."""
    near = difflib.get_close_matches(name, [each.group_id for each in groups.list_groups(cluster)], n=1)
    remedy = f"did you mean {near[0]}?" if near else "'barnabas groups list' shows all"
    return f"Group {name} does not exist; {remedy}"


def _check_idle(group: DescribedGroup) -> None:
    """Raises ClientError for a group that has members."""
    if group.members:
        who = ", ".join(sorted({f"{m.client_id} at {m.client_host}" for m in group.members})[:3])
        raise ClientError(f"Group {group.group_id} has {len(group.members)} member(s) ({who}): stop them first")


def reset(args: argparse.Namespace) -> int:
    """Move the positions of a group without members, or print where they would go."""
    start = parse_start(args.to, option="--to")
    assert start is not None
    with Cluster(args.server) as cluster:
        group = groups.describe_group(cluster, args.group)
        before = groups.committed(cluster, args.group)
        if group.group_state == "Dead" and not before and not args.topic:
            raise ClientError(absent(cluster, args.group))
        _check_idle(group)
        keys = _places(args, cluster, before)
        after = positions_of(cluster, start, keys)
        rows = [
            (topic, partition, place.offset if (place := before.get((topic, partition))) else None, offset)
            for (topic, partition), offset in sorted(after.items())
        ]
        if not args.dry_run:
            told = groups.commit(cluster, args.group, {key: groups.Committed(at) for key, at in after.items()})
            for (topic, partition), code in told.items():
                check(code, f"Position of {args.group} in {topic}-{partition}")
    show(("topic", "partition", "before", "after"), rows, as_json=False)
    if args.dry_run:
        print("Nothing was changed: leave --dry-run out.")
    return 0


def _places(
    args: argparse.Namespace, cluster: Cluster, before: Mapping[TopicPartition, groups.Committed]
) -> list[TopicPartition]:
    """The partitions to reset: those of the named topics, or those that the group has read."""
    topics = args.topic or sorted({topic for topic, _ in before})
    keys = []
    for topic in topics:
        there = existing(cluster, topic)
        for partition in args.partition or there:
            if partition not in there:
                raise ClientError(f"Topic {topic} has no partition {partition}: it has {len(there)}")
            keys.append((topic, partition))
    return keys


def positions_of(cluster: Cluster, start: Start, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset of a start in each partition, limited to the partition's begin and end. Raises ClientError."""
    first, end = (list_offsets(cluster, keys, special, isolation=READ_UNCOMMITTED) for special in (EARLIEST, LATEST))
    if start.kind == "time":
        found = list_offsets(cluster, keys, start.number)
        return {key: found[key] if found[key] >= 0 else end[key] for key in keys}
    wanted = {"beginning": first, "end": end, "last": {key: end[key] - start.number for key in keys}}
    at = wanted.get(start.kind, dict.fromkeys(keys, start.number))
    return {key: min(max(at[key], first[key]), end[key]) for key in keys}


def consumers(cluster: Cluster) -> str:
    """A table of the members of all groups, with their numbers of partitions."""
    rows = []
    for group in _described(cluster):
        assigned = Counter(member for member, _ in _owners(group).values())
        for member in group.members:
            rows.append(
                (
                    group.group_id,
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    group.group_state,
                    assigned[member.member_id],
                )
            )
    return table(("GROUP", "MEMBER", "CLIENT", "HOST", "STATE", "PARTITIONS"), sorted(rows))


def subscriptions(cluster: Cluster) -> str:
    """A table of what all groups read: their positions, and where the partitions begin and end."""
    found = []
    for group in _described(cluster):
        owners, positions = _owners(group), groups.committed(cluster, group.group_id)
        for key in sorted({*owners, *positions}):
            found.append((group.group_id, key, positions.get(key), owners.get(key, ("-", "-"))[0]))
    there = {
        topic.name for topic in cluster.metadata(sorted({key[0] for _, key, _, _ in found})) if not topic.error_code
    }
    keys = sorted({key for _, key, _, _ in found if key[0] in there})
    begins = list_offsets(cluster, keys, EARLIEST, isolation=READ_UNCOMMITTED)
    ends = list_offsets(cluster, keys, LATEST, isolation=READ_UNCOMMITTED)
    rows = []
    for name, key, place, owner in found:
        at, begin, end = place.offset if place else -1, begins.get(key, -1), ends.get(key, -1)
        lag = end - at if at >= 0 and end >= 0 else -1
        rows.append((name, *key, *("-" if number < 0 else number for number in (at, begin, end, lag)), owner))
    return table(("GROUP", "TOPIC", "PARTITION", "COMMITTED", "BEGIN", "END", "LAG", "MEMBER"), rows)


def _described(cluster: Cluster) -> Iterator[DescribedGroup]:
    """All groups except those in which streams keep their own positions."""
    for name in sorted(listed.group_id for listed in groups.list_groups(cluster)):
        if not is_stream(name):
            yield groups.describe_group(cluster, name)


def _owners(group: DescribedGroup) -> dict[tuple[str, int], tuple[str, str]]:
    found = {}
    for member in group.members:
        if group.protocol_type == "consumer" and len(member.member_assignment) > 2:
            assigned, _ = message_codec(ConsumerProtocolAssignment, 0).decode(member.member_assignment, 2)
            for topic in assigned.assigned_partitions:
                for partition in topic.partitions:
                    found[topic.topic, partition] = (member.member_id, member.client_host)
    return found
