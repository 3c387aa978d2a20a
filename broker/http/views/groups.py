"""Consumer groups: their members, their positions, and moving these, with a preview before the change."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from barnabas.broker.http.asking import Asker, Broker, check
from barnabas.broker.http.messages import Refused, Request, Response, json_answer
from barnabas.broker.http.views.cluster import must_write
from barnabas.broker.http.views.fetching import EARLIEST, LATEST, offsets
from barnabas.broker.http.views.given import body, number, text
from barnabas.broker.http.views.lists import page_of, those
from barnabas.broker.metrics.lag_history import MOST_GROUPS as MOST_KEPT
from barnabas.broker.metrics.lag_history import History
from barnabas.broker.security.operations import DESCRIBE_CLUSTER, DESCRIBE_TOPIC
from barnabas.broker.workers import Yielder
from barnabas.wire.codegen import message_codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.records.consumer_protocol import ConsumerProtocolAssignment
from barnabas.wire.schema import ProtocolError

MOST_GROUPS = 100
#: The most partitions of a group whose lag is looked up, and the most members that are shown.
MOST_PARTITIONS, MOST_MEMBERS = 2000, 500
_BY_NAME = 9
SORTS = ("id", "state")
_NOT_YET = "A chart of the last hour begins here within a minute: the broker notes the lag of each group once a minute."


async def listed(asker: Asker, broker: Broker, request: Request) -> Response:
    """A page of the list. Query: filter, state, sort, order, limit, start."""
    query = request.query
    limit, start = number(query, "limit", 50, 1, MOST_GROUPS), number(query, "start", 0)
    wanted, state = query.get("filter", "").lower(), query.get("state", "")
    answer = await asker.ask(ListGroupsRequest())
    check(answer.error_code, "the list of groups")
    known: list[ListedGroup] = answer.groups
    found = await those(
        known, lambda each: wanted in each.group_id.lower() and (not state or each.group_state == state)
    )
    sort = query.get("sort", "id")
    if sort not in SORTS:
        raise Refused(400, f"sort must be one of {', '.join(SORTS)}")

    def order(each: ListedGroup) -> tuple[str, str]:
        return each.group_state if sort == "state" else "", each.group_id

    page = await page_of(found, order, start=start, limit=limit, reverse=query.get("order") == "desc")
    described = {each.group_id: each for each in await _described(asker, [each.group_id for each in page])}
    rows = []
    for each in page:
        told = described.get(each.group_id)
        lags = await _lags(asker, each.group_id, most=200)
        rows.append(
            {
                "id": each.group_id,
                "state": each.group_state,
                "type": each.group_type,
                "protocol": each.protocol_type,
                "members": None if told is None else len(told.members),
                "topics": None if lags is None else len({row["topic"] for row in lags}),
                "lag": None if lags is None else sum(row["lag"] or 0 for row in lags),
            }
        )
    return json_answer({"groups": rows, "matched": len(found), "total": len(known), "start": start})


async def _described(asker: Asker, ids: list[str]) -> list[DescribedGroup]:
    answer = await asker.ask(DescribeGroupsRequest(groups=ids))
    return [each for each in answer.groups if not each.error_code]


async def _lags(asker: Asker, group: str, most: int = MOST_PARTITIONS) -> list[dict[str, Any]] | None:
    """A group's position in each partition; None if it has too many, or the visitor may not see them."""
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    (found,) = (await asker.ask(asked, _BY_NAME)).groups
    if found.error_code or sum(len(topic.partitions) for topic in found.topics) > most:
        return None
    rows: list[dict[str, Any]] = []
    yielder = Yielder()
    for topic in found.topics:
        committed = {part.partition_index: part for part in topic.partitions if part.committed_offset >= 0}
        ends: dict[tuple[str, int], int] = {}
        try:
            ends = await offsets(asker, {topic.name: sorted(committed)}, LATEST)
        except Refused:  # the topic is deleted, or hidden from the visitor
            pass
        for index, part in sorted(committed.items()):
            end = ends.get((topic.name, index))
            lag = None if end is None else max(0, end - part.committed_offset)
            row = {"topic": topic.name, "partition": index, "committed": part.committed_offset, "end": end, "lag": lag}
            rows.append({**row, "metadata": (part.metadata or "")[:200]})
            await yielder()
    return rows


async def one(asker: Asker, broker: Broker, request: Request) -> Response:
    """A group with its members and lags. Query: id."""
    group = text(request.query, "id")
    (told,) = (await asker.ask(DescribeGroupsRequest(groups=[group]))).groups
    if told.error_code == ErrorCode.NOT_COORDINATOR:  # also if there has been no group yet, and so no coordinator
        listing = await asker.ask(ListGroupsRequest())
        if not listing.error_code and all(each.group_id != group for each in listing.groups):
            check(ErrorCode.GROUP_ID_NOT_FOUND, group)
    check(told.error_code, group, told.error_message)
    members = []
    yielder = Yielder()
    for each in told.members[:MOST_MEMBERS]:
        members.append(
            {
                "id": each.member_id,
                "instance": each.group_instance_id,
                "client": each.client_id,
                "host": each.client_host,
                "assigned": _assigned(each.member_assignment),
            }
        )
        await yielder()
    return json_answer(
        {
            "id": group,
            "state": told.group_state,
            "protocol": told.protocol_type,
            "assignor": told.protocol_data,
            "member_count": len(told.members),
            "members": members,
            "offsets": await _lags(asker, group),
        }
    )


async def lags(asker: Asker, broker: Broker, request: Request) -> Response:
    """A group's total lag in the last hour: times in ms, and records; or `why` there is none. Query: id."""
    group = text(request.query, "id")
    (told,) = (await asker.ask(DescribeGroupsRequest(groups=[group]))).groups
    check(told.error_code, group, told.error_message)
    node, history = broker.routing.node_of_group(group), broker.watch.lag_history
    found = history.of(group)
    why = ""
    if node != broker.routing.here:
        why = f"The lag of the last hour is on the console of node {node}, which coordinates this group."
    elif found is None:
        why = (
            f"The lag of the last hour is kept for {MOST_KEPT:,} groups, and there are more." if history.is_full else ""
        )
    elif not _may_see(asker, found):
        why = "The lag of the last hour includes topics that you may not describe."
    if found is None or why:
        return json_answer({"at": [], "records": [], "why": why or _NOT_YET})
    return json_answer({"at": found.at.tolist(), "records": found.records.tolist(), "why": ""})


def _may_see(asker: Asker, history: History) -> bool:
    if history.topics is None:  # they are too many to be known
        return asker.may(DESCRIBE_CLUSTER)
    return all(asker.may(DESCRIBE_TOPIC, topic) for topic in history.topics)


def _assigned(data: bytes) -> list[dict[str, Any]] | None:
    """The partitions of a member, if it uses the format of consumers."""
    if not data:
        return []
    try:
        if len(data) > 64 << 10:
            return None
        found, _ = message_codec(ConsumerProtocolAssignment, 0).decode(data, 2)
    except ProtocolError:
        return None
    return [
        {"topic": each.topic, "partitions": list(each.partitions)[:1000]} for each in found.assigned_partitions[:500]
    ]


class Reset(msgspec.Struct, forbid_unknown_fields=True):
    """Where a group should continue: at the beginning, the end, an offset, a time (ms), or a number of records further.

    `topic` and `partition` limit which positions move. Without `apply` this is only a preview.
    """

    id: str
    to: Literal["earliest", "latest", "offset", "time", "shift"]
    value: int = 0
    topic: str | None = None
    partition: int | None = None
    apply: bool = False


async def reset(asker: Asker, broker: Broker, request: Request) -> Response:
    """Move a group, or preview it: the positions before and after. The body is a `Reset`."""
    must_write(broker)
    given = body(request, Reset)
    lags = await _lags(asker, given.id)
    if lags is None:
        raise Refused(400, f"{given.id} cannot be read, or has more than {MOST_PARTITIONS:,} partitions")
    moved = [
        row
        for row in lags
        if row["end"] is not None
        and given.topic in (None, row["topic"])
        and given.partition in (None, row["partition"])
    ]
    if not moved:
        raise Refused(400, f"{given.id} has no committed offset there")
    topics: dict[str, list[int]] = {}
    for row in moved:
        topics.setdefault(row["topic"], []).append(row["partition"])
    first = await offsets(asker, topics, EARLIEST)
    by_time = await offsets(asker, topics, given.value) if given.to == "time" else {}
    rows = []
    for row in moved:
        where, end = (row["topic"], row["partition"]), row["end"]
        wanted = {
            "earliest": first[where],
            "latest": end,
            "offset": given.value,
            "time": end if by_time.get(where, -1) < 0 else by_time.get(where, -1),
            "shift": row["committed"] + given.value,
        }[given.to]
        after = min(max(wanted, first[where]), end)
        rows.append({"topic": where[0], "partition": where[1], "from": row["committed"], "to": after, "end": end})
    if given.apply:
        await _commit(asker, given.id, rows)
    return json_answer({"id": given.id, "applied": given.apply, "moves": rows})


async def _commit(asker: Asker, group: str, rows: list[dict[str, Any]]) -> None:
    """Commit as a client that is not a member, which is accepted if the group has no members. Raises Refused."""
    for told in await _described(asker, [group]):
        if told.members:
            raise Refused(409, f"{group} has {len(told.members)} members: stop them, then move it")
    for start in range(0, len(rows), 500):
        asked: dict[str, list[OffsetCommitRequestPartition]] = {}
        for row in rows[start : start + 500]:
            part = OffsetCommitRequestPartition(partition_index=row["partition"], committed_offset=row["to"])
            asked.setdefault(row["topic"], []).append(part)
        topics = [OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in asked.items()]
        for topic in (await asker.ask(OffsetCommitRequest(group_id=group, topics=topics), _BY_NAME)).topics:
            for part in topic.partitions:
                check(part.error_code, f"{topic.name}-{part.partition_index}")


class Named(msgspec.Struct, forbid_unknown_fields=True):
    """A group by its id."""

    id: str


async def delete(asker: Asker, broker: Broker, request: Request) -> Response:
    """Delete a group with its offsets. The body has its `id`."""
    must_write(broker)
    given = body(request, Named)
    (told,) = (await asker.ask(DeleteGroupsRequest(groups_names=[given.id]))).results
    check(told.error_code, given.id)
    return json_answer({"deleted": given.id})
