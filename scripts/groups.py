"""`barnabas groups`: list and describe consumer groups."""

from __future__ import annotations

import argparse

from barnabas.client.admin import LATEST
from barnabas.client.cluster import ClientError, Cluster, check
from barnabas.scripts.group_member import OFFSET_FETCH
from barnabas.scripts.output import table
from barnabas.scripts.topics import offsets
from barnabas.wire.codegen import codec
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.wire.records.consumer_protocol import ConsumerProtocolAssignment
from barnabas.wire.text import visible

DESCRIBE = 5


def list_groups(args: argparse.Namespace) -> int:
    """Print all groups with their state."""
    with Cluster(args.server) as cluster:
        cluster.metadata([])
        answer = cluster.controller(ListGroupsRequest(), ListGroupsResponse)
        check(answer.error_code, "Groups")
        rows = sorted((g.group_id, g.group_state, g.group_type, g.protocol_type) for g in answer.groups)
        print(table(("GROUP", "STATE", "TYPE", "PROTOCOL"), rows))
    return 0


def describe(args: argparse.Namespace) -> int:
    """Print a group's positions, what is left to read, and who reads it."""
    with Cluster(args.server) as cluster:
        wire = cluster.coordinator(args.group)
        group = wire.ask(DescribeGroupsRequest(groups=[args.group]), DescribeGroupsResponse, version=DESCRIBE).groups[0]
        check(group.error_code, f"Group {args.group}")
        stored = wire.ask(
            OffsetFetchRequest(group_id=args.group, topics=None), OffsetFetchResponse, version=OFFSET_FETCH
        )
        check(stored.error_code, f"Offsets of group {args.group}")
        positions = {(t.name, p.partition_index): p.committed_offset for t in stored.topics for p in t.partitions}
        if group.group_state == "Dead" and not positions:
            raise ClientError(f"Group {args.group} does not exist")
        owners = _owners(group)
        ends: dict[tuple[str, int], int] = {}
        for topic in sorted({topic for topic, _ in [*positions, *owners]}):
            leaders = cluster.leaders(topic)
            ends.update({(topic, p): end for p, end in offsets(cluster, topic, leaders, LATEST).items()})
        print(f"Group: {visible(args.group)}  State: {visible(group.group_state)}  Members: {len(group.members)}  "
              f"Assignor: {visible(group.protocol_data) or '-'}")  # fmt: skip
        rows = []
        for topic, partition in sorted({*positions, *owners}):
            at, end = positions.get((topic, partition), -1), ends.get((topic, partition), -1)
            lag = end - at if at >= 0 and end >= 0 else "-"
            owner = owners.get((topic, partition), ("-", "-"))
            rows.append((topic, partition, at if at >= 0 else "-", end, lag, *owner))
        print(table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST"), rows))
    return 0


def _owners(group: DescribedGroup) -> dict[tuple[str, int], tuple[str, str]]:
    found = {}
    for member in group.members:
        if group.protocol_type == "consumer" and len(member.member_assignment) > 2:
            assigned, _ = codec(ConsumerProtocolAssignment, 0).decode(member.member_assignment, 2)
            for topic in assigned.assigned_partitions:
                for partition in topic.partitions:
                    found[topic.topic, partition] = (member.member_id, member.client_host)
    return found
