"""`barnabas groups`: list and describe consumer groups."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

from barnabas.client import groups
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets
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
        print(table(("GROUP", "STATE", "TYPE", "PROTOCOL"), rows))
    return 0


def describe(args: argparse.Namespace) -> int:
    """Print a group's positions, what is left to read, and who reads it."""
    with Cluster(args.server) as cluster:
        group = groups.describe_group(cluster, args.group)
        positions = groups.committed(cluster, args.group)
        if group.group_state == "Dead" and not positions:
            raise ClientError(f"Group {args.group} does not exist")
        owners = _owners(group)
        topics = sorted({topic for topic, _ in [*positions, *owners]})
        keys = [(topic, partition) for topic in topics for partition in cluster.leaders(topic)]
        ends = list_offsets(cluster, keys, LATEST, isolation=READ_UNCOMMITTED)
        print(
            f"Group: {visible(args.group)}  State: {visible(group.group_state)}  Members: {len(group.members)}  "
            f"Assignor: {visible(group.protocol_data) or '-'}"
        )
        rows = []
        for topic, partition in sorted({*positions, *owners}):
            place = positions.get((topic, partition))
            at, end = place.offset if place else -1, ends.get((topic, partition), -1)
            lag = end - at if at >= 0 and end >= 0 else "-"
            owner = owners.get((topic, partition), ("-", "-"))
            rows.append((topic, partition, at if at >= 0 else "-", end, lag, *owner))
        print(table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST"), rows))
    return 0


def consumers(cluster: Cluster) -> str:
    """The table of the members of all groups, with how many partitions each has."""
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
    """The table of what all groups read: their positions, between where the partitions begin and end."""
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
    """All groups but those in which streams keep their own places."""
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
