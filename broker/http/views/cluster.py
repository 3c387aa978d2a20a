"""The broker: its identity, listeners, contents and settings, and the warnings in its log."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from typing import Any

from barnabas.broker.http.asking import Asker, Broker, check
from barnabas.broker.http.messages import Refused, Request, Response, json_answer
from barnabas.broker.http.views.fetching import log_dirs
from barnabas.broker.settings.keys import (
    SOURCE_DEFAULT,
    SOURCE_DYNAMIC_BROKER,
    SOURCE_DYNAMIC_DEFAULT,
    SOURCE_STATIC,
    SOURCE_TOPIC,
)
from barnabas.broker.workers import Yielder, let_go
from barnabas.wire import KAFKA_VERSION
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsResult
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.metadata import MetadataRequest

RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
MOST_EVENTS = 100
_SOURCES = {
    SOURCE_TOPIC: "topic",
    SOURCE_DYNAMIC_BROKER: "changed on the broker",
    SOURCE_DYNAMIC_DEFAULT: "changed for all brokers",
    SOURCE_STATIC: "server.properties",
    SOURCE_DEFAULT: "default",
}


async def overview(asker: Asker, broker: Broker, request: Request, started_ms: int) -> Response:
    """The broker's identity and contents. Disks and events are only for visitors who may describe the cluster."""
    cluster = await asker.ask(DescribeClusterRequest())
    topics = (await asker.ask(MetadataRequest(topics=None))).topics
    listing = await asker.ask(ListGroupsRequest(), waits=False)
    dirs = await log_dirs(asker, None)
    kinds: Counter[str] = Counter()
    partitions = 0
    yielder = Yielder()
    for topic in topics:
        partitions += len(topic.partitions)
        kinds[kind_of(broker, topic.name)] += 1
        kinds["internal"] += topic.is_internal
        await yielder()
    told: dict[str, Any] = {
        "version": version("barnabas"),
        "kafka": KAFKA_VERSION,
        "cluster": cluster.cluster_id,
        "node": broker.identity.node_id,
        "controller": cluster.controller_id,
        "listeners": [
            {
                "name": each.name,
                "protocol": each.protocol.name,
                "address": _address(*broker.identity.advertised(each.name)),
            }
            for each in broker.identity.bound
        ],
        "has_authorizer": asker.authorizer is not None,
        "counts": {
            "topics": len(topics) - kinds["internal"],
            "internal_topics": kinds["internal"],
            "partitions": partitions,
            "groups": None if listing.error_code else len(listing.groups),  # None: a coordinator still reads its log
            "query_topics": kinds["query"],
            "streams": kinds["stream"],
        },
    }
    if dirs:
        told |= {"uptime_ms": broker.clock.wall_ms() - started_ms, **await _of_operator(broker, dirs)}
    for rows in (topics, *(each.topics for each in dirs)):
        await let_go(rows)
    return json_answer(told)


async def _of_operator(broker: Broker, dirs: list[DescribeLogDirsResult]) -> dict[str, Any]:
    """The part for visitors who may describe the cluster."""
    yielder = Yielder()
    logs = 0
    for each in dirs:
        for topic in each.topics:
            logs += sum(part.partition_size for part in topic.partitions)
            await yielder()
    events = [
        {"level": level, "event": event, "count": count}
        for (level, event), count in broker.log.told.most_common()
        if level in ("warning", "error")
    ]
    return {
        "disks": [
            {
                "path": each.log_dir,
                "total": each.total_bytes,
                "usable": each.usable_bytes,
                "logs": logs,
            }
            for each in dirs
        ],
        "connections": sum(broker.connections.per_listener.values()),
        "appended": {"records": broker.watch.total.records, "bytes": broker.watch.total.bytes},
        "events": events[:MOST_EVENTS],
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def kind_of(broker: Broker, topic: str) -> str:
    """topic, query, dead-letter or stream."""
    plan = broker.queries.plans.get(topic)
    if plan is not None:
        return "dead-letter" if plan.dead_letter_of else "query"
    return "stream" if topic in broker.streams.plans else "topic"


async def broker_settings(asker: Asker, broker: Broker, request: Request) -> Response:
    """The broker's settings, with their descriptions."""
    return json_answer({"settings": await settings_of(asker, RESOURCE_BROKER, str(broker.identity.node_id))})


async def settings_of(asker: Asker, kind: int, name: str) -> list[dict[str, Any]]:
    """The settings of a topic or broker. Raises Refused."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    asked = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (found,) = (await asker.ask(asked)).results
    check(found.error_code, name, found.error_message)
    return [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "source": _SOURCES.get(each.config_source, "unknown"),
            "is_default": each.config_source == SOURCE_DEFAULT,
            "read_only": each.read_only,
            "sensitive": each.is_sensitive,
            "doc": each.documentation or "",
        }
        for each in found.configs
    ]


def must_write(broker: Broker) -> None:
    """Raises Refused if the console is read-only."""
    if not broker.config["barnabas.http.console.writes"]:
        raise Refused(403, "the console is read-only: set barnabas.http.console.writes=true to allow changes")
