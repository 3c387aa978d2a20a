"""Topics: a list that is filtered and sorted here, as there may be ten thousand, and all details of one topic.

A page of the list asks only about its own topics. To sort by size or number of records, all topics have to be asked
about: up to `MOST_SORTED` partitions, in pieces.
"""

from __future__ import annotations

import msgspec
import trio

from barnabas.broker.http.asking import Asker, Broker, check
from barnabas.broker.http.messages import Refused, Request, Response, json_answer
from barnabas.broker.http.views import jobs
from barnabas.broker.http.views.cluster import RESOURCE_TOPIC, kind_of, settings_of
from barnabas.broker.http.views.fetching import EARLIEST, LATEST, log_dirs, offsets, partitions_of
from barnabas.broker.http.views.given import number, text
from barnabas.broker.http.views.lists import page_of, those
from barnabas.broker.security.operations import DESCRIBE_TOPIC_CONFIGS
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

MOST_TOPICS, MOST_SORTED, MOST_PARTITIONS, MOST_GROUPS = 200, 50_000, 500, 500
TOPICS_IN_A_PIECE = 250
SORTS = ("name", "partitions", "records", "bytes")
_BY_NAME = 9  # the last version of OffsetFetch that names topics


class Sizes(msgspec.Struct):
    """The contents of a topic. None stands for what the visitor may not know."""

    records: int | None = None
    bytes: int | None = None


async def listed(asker: Asker, broker: Broker, request: Request) -> Response:
    """A page of the list. Query: filter, kind, internal, sort, order (asc, desc), limit, start."""
    query = request.query
    limit, start = number(query, "limit", 50, 1, MOST_TOPICS), number(query, "start", 0)
    wanted, kind, sort = query.get("filter", "").lower(), query.get("kind", ""), query.get("sort", "name")
    if sort not in SORTS:
        raise Refused(400, f"sort must be one of {', '.join(SORTS)}")
    answer = await asker.ask(MetadataRequest(topics=None))
    has_internal = query.get("internal") == "true"
    known = await those(answer.topics, lambda topic: has_internal or not topic.is_internal)
    found = await those(
        known,
        lambda topic: wanted in (topic.name or "").lower() and (not kind or kind_of(broker, topic.name or "") == kind),
    )
    sizes: dict[str, Sizes] = {}
    if sort in ("records", "bytes"):
        if sum(len(topic.partitions) for topic in found) > MOST_SORTED:
            raise Refused(
                400, f"sort by name or filter: more than {MOST_SORTED:,} partitions cannot be sorted by {sort}"
            )
        sizes = await _sizes(asker, found)

    def order(topic: MetadataResponseTopic) -> tuple[int, str]:
        name = topic.name or ""
        if sort == "partitions":
            return len(topic.partitions), name
        return getattr(sizes[name], sort) or 0 if sizes else 0, name

    page = await page_of(found, order, start=start, limit=limit, reverse=query.get("order") == "desc")
    sizes = sizes or await _sizes(asker, page)
    retention = await _retention(asker, page)
    rows = [
        {
            "name": topic.name,
            "kind": kind_of(broker, topic.name or ""),
            "internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "records": sizes[topic.name or ""].records,
            "bytes": sizes[topic.name or ""].bytes,
            **retention.get(topic.name or "", {}),
        }
        for topic in page
    ]
    return json_answer({"topics": rows, "matched": len(found), "total": len(known), "start": start})


async def _sizes(asker: Asker, topics: list[MetadataResponseTopic]) -> dict[str, Sizes]:
    """The contents of topics, asked for in pieces, so that other requests have their turn in between."""
    found: dict[str, Sizes] = {}
    for start in range(0, len(topics), TOPICS_IN_A_PIECE):
        found |= await _sizes_of_few(asker, topics[start : start + TOPICS_IN_A_PIECE])
        await trio.lowlevel.checkpoint()
    return found


async def _sizes_of_few(asker: Asker, topics: list[MetadataResponseTopic]) -> dict[str, Sizes]:
    found = {topic.name or "": Sizes() for topic in topics}
    asked = {topic.name or "": [part.partition_index for part in topic.partitions] for topic in topics}
    try:
        first, last = await offsets(asker, asked, EARLIEST), await offsets(asker, asked, LATEST)
        for (name, index), end in last.items():
            found[name].records = (found[name].records or 0) + max(0, end - first[name, index])
        for each in await log_dirs(asker, asked):
            for topic in each.topics:
                if topic.name in found:
                    size = sum(part.partition_size for part in topic.partitions)
                    found[topic.name].bytes = (found[topic.name].bytes or 0) + size
    except Refused:  # a topic was deleted, or a log or node is not available: the page shows that the value is unknown
        pass
    return found


async def _retention(asker: Asker, topics: list[MetadataResponseTopic]) -> dict[str, dict[str, str | None]]:
    keys = ["cleanup.policy", "retention.ms"]
    names = [topic.name or "" for topic in topics if asker.may(DESCRIBE_TOPIC_CONFIGS, topic.name or "")]
    resources = [DescribeConfigsResource(RESOURCE_TOPIC, name, keys) for name in names]
    answer = await asker.ask(DescribeConfigsRequest(resources=resources))
    return {
        each.resource_name: {entry.name.replace(".", "_"): entry.value for entry in each.configs}
        for each in answer.results
        if not each.error_code
    }


async def one(asker: Asker, broker: Broker, request: Request) -> Response:
    """A topic, a page of its partitions, and the job that writes it. Query: name, start."""
    name, start = text(request.query, "name"), number(request.query, "start", 0)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = (await asker.ask(asked)).topics
    check(topic.error_code, name)
    parts = sorted(topic.partitions, key=lambda part: part.partition_index)
    page = parts[start : start + MOST_PARTITIONS]
    indexes = {name: [part.partition_index for part in page]}
    first, last = await offsets(asker, indexes, EARLIEST), await offsets(asker, indexes, LATEST)
    sizes = {
        part.partition_index: part.partition_size
        for each in await log_dirs(asker, indexes)
        for of_topic in each.topics
        for part in of_topic.partitions
    }
    told = {
        "name": name,
        "id": topic.topic_id.hex(),
        "internal": topic.is_internal,
        "kind": kind_of(broker, name),
        "partition_count": len(parts),
        "partitions": [
            {
                "index": part.partition_index,
                "leader": part.leader_id,
                "epoch": part.leader_epoch,
                "start": first[name, part.partition_index],
                "end": last[name, part.partition_index],
                "bytes": sizes.get(part.partition_index),
            }
            for part in page
        ],
        "job": await jobs.of_topic(asker, broker, name),
    }
    return json_answer(told)


async def settings(asker: Asker, broker: Broker, request: Request) -> Response:
    """A topic's settings, with their descriptions. Query: name."""
    return json_answer({"settings": await settings_of(asker, RESOURCE_TOPIC, text(request.query, "name"))})


async def groups(asker: Asker, broker: Broker, request: Request) -> Response:
    """Groups that have committed offsets of a topic. A page examines `MOST_GROUPS` groups. Query: name, start."""
    name, start = text(request.query, "name"), number(request.query, "start", 0)
    parts = (await partitions_of(asker, name))[:MOST_PARTITIONS]
    ends = await offsets(asker, {name: parts}, LATEST)
    listing = await asker.ask(ListGroupsRequest())
    check(listing.error_code, "the list of groups")
    known = sorted(listing.groups, key=lambda group: group.group_id)
    rows = []
    for group in known[start : start + MOST_GROUPS]:
        wanted = OffsetFetchRequestGroup(
            group_id=group.group_id, topics=[OffsetFetchRequestTopics(name=name, partition_indexes=parts)]
        )
        (found,) = (await asker.ask(OffsetFetchRequest(groups=[wanted]), _BY_NAME)).groups
        committed = {
            part.partition_index: part.committed_offset
            for of_topic in found.topics
            for part in of_topic.partitions
            if part.committed_offset >= 0 and not part.error_code
        }
        if committed:
            lag = sum(max(0, ends[name, index] - at) for index, at in committed.items())
            rows.append({"id": group.group_id, "state": group.group_state, "partitions": len(committed), "lag": lag})
    after = start + MOST_GROUPS
    return json_answer({"groups": rows, "next": after if after < len(known) else None})
