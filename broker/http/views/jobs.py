"""Query topics and streams: their texts and states, and which job reads which topic, as a graph.

Visitors who may describe the settings of a job's topic can see the job, because the settings name its sources. Topics
that a pattern matches are only shown to visitors who may describe them. Errors may quote records, so they are only
shown to visitors who may read the sources.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.http.asking import Asker, Broker
from barnabas.broker.http.messages import Request, Response, json_answer
from barnabas.broker.security.operations import DESCRIBE_TOPIC, DESCRIBE_TOPIC_CONFIGS, READ_TOPIC
from barnabas.broker.workers import Yielder
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.queries.keys import DENIED, ON_ERROR, OWNER, QUERY, SCHEMA
from barnabas.wire.queries.messages import QueryStatus, StreamStatus
from barnabas.wire.streams.keys import STREAM, STREAM_NAME, STREAM_STATE

MOST_JOBS, MOST_SOURCES = 500, 100
_KEYS = [QUERY, STREAM, STREAM_NAME, STREAM_STATE, OWNER, DENIED, ON_ERROR, SCHEMA]
_RESOURCE_TOPIC = 2


def _sources(broker: Broker, name: str) -> tuple[list[str], str]:
    """What a topic's job reads: topics, and the pattern that found them."""
    query, stream = broker.queries.plans.get(name), broker.streams.plans.get(name)
    if stream is not None:
        return list(stream.sources), ""
    if query is None:
        return [], ""
    if query.pattern:
        return [topic.name for topic in broker.queries.matching(query.pattern)[:MOST_SOURCES]], query.pattern
    return [query.source] if query.source else [], ""


async def _described(asker: Asker, broker: Broker, names: list[str]) -> dict[str, dict[str, Any]]:
    """Jobs by the topic that they write, if the visitor may see the topic's settings."""
    seen = [name for name in names if asker.may(DESCRIBE_TOPIC_CONFIGS, name)]
    resources = [DescribeConfigsResource(_RESOURCE_TOPIC, name, _KEYS) for name in seen]
    answer = await asker.ask(DescribeConfigsRequest(resources=resources))
    status = await broker.queries.latest_status()
    told: dict[str, QueryStatus | StreamStatus] = {}
    if status is not None:
        told = {each.topic: each for each in status.queries} | {each.topic: each for each in status.streams}
    found: dict[str, dict[str, Any]] = {}
    for each in answer.results:
        if each.error_code:
            continue
        values = {entry.name: entry.value for entry in each.configs}
        name = each.resource_name
        sources, pattern = _sources(broker, name)
        may_read = all(asker.may(READ_TOPIC, source) for source in sources)
        if pattern:
            sources = [source for source in sources if asker.may(DESCRIBE_TOPIC, source)]
        how = told.get(name)
        is_stream = name in broker.streams.plans
        query = broker.queries.plans.get(name)
        found[name] = {
            "topic": name,
            "kind": "stream" if is_stream else "dead-letter" if query is not None and query.dead_letter_of else "query",
            "name": values.get(STREAM_NAME) or name,
            "text": values.get(STREAM) or values.get(QUERY) or "",
            "owner": values.get(OWNER) or "",
            "denied": values.get(DENIED) or "",
            "on_error": values.get(ON_ERROR) or "",
            "schema": values.get(SCHEMA) or "",
            "sources": sources,
            "pattern": pattern,
            "state": how.state if how is not None else (values.get(STREAM_STATE) or "") if is_stream else "",
            "lag": None if how is None else how.lag,
            "rows": None if how is None else how.rows,
            "rows_per_second": None if how is None else how.rows_per_second,
            "last_error": how.last_error if how is not None and may_read else None,
        }
    return found


async def of_topic(asker: Asker, broker: Broker, name: str) -> dict[str, Any] | None:
    """The job that writes a topic, and the jobs that read it; None if the visitor may see none of them."""
    readers = [each for each in _all(broker) if name in _sources(broker, each)[0]][:MOST_JOBS]
    if not readers and name not in broker.queries.plans and name not in broker.streams.plans:
        return None
    found = await _described(asker, broker, [name, *readers])
    own = found.pop(name, None)
    is_job = name in broker.queries.plans or name in broker.streams.plans
    if not found and (own is None or not is_job):
        return None
    return {"writes": own if is_job else None, "read_by": list(found.values())}


def _all(broker: Broker) -> list[str]:
    return sorted({*broker.queries.plans, *broker.streams.plans})


async def listed(asker: Asker, broker: Broker, request: Request) -> Response:
    """All query topics and streams, at most `MOST_JOBS`, and the age of the figures."""
    names = _all(broker)
    found: dict[str, dict[str, Any]] = {}
    yielder = Yielder()
    for start in range(0, min(len(names), MOST_JOBS), 100):
        found |= await _described(asker, broker, names[start : start + 100])
        await yielder()
    status = await broker.queries.latest_status()
    return json_answer(
        {
            "jobs": list(found.values()),
            "left_out": max(0, len(names) - MOST_JOBS),
            "driver": {
                "runs": broker.config["barnabas.streams.driver"],
                "told_ms_ago": None if status is None else max(0, broker.clock.wall_ms() - status.at_ms),
            },
        }
    )
