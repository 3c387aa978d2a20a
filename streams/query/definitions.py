"""The query topics of a cluster, as the broker keeps them in the topics' configuration."""

from __future__ import annotations

import uuid

import msgspec

from client.admin import topic_configs
from client.cluster import Cluster
from streams.query.errors import QueryError

_KEYS = ["barnabas.query", "barnabas.query.plan", "barnabas.query.on.error"]
_MAX_BATCH_BYTES = 1 << 20
_SCHEMA_KEYS = ["barnabas.value.format", "barnabas.value.schema"]


class Plan(msgspec.Struct, frozen=True):
    """What the broker fixed when the query was made: its source, and that one's format and schema (DDL) at the time."""

    source: str = ""
    source_id: str = ""
    format: str = "raw"
    schema: str = ""


class Definition(msgspec.Struct, frozen=True):
    """One query topic."""

    topic: str
    query: str
    on_error: str
    plan: Plan
    partitions: int
    max_batch_bytes: int = _MAX_BATCH_BYTES


class Source(msgspec.Struct, frozen=True):
    """A topic that may be read."""

    name: str
    topic_id: str
    partitions: int


class Catalog(msgspec.Struct, frozen=True):
    """All topics of a cluster, and the query topics among them."""

    sources: dict[str, Source]
    definitions: dict[str, Definition]


def read_catalog(cluster: Cluster) -> Catalog:
    """What there is now. Raises ClientError."""
    topics = [
        topic for topic in cluster.metadata(None) if not topic.is_internal and topic.name and not topic.error_code
    ]
    sources = {
        topic.name: Source(topic.name, str(uuid.UUID(bytes=topic.topic_id)), len(topic.partitions))
        for topic in topics
        if topic.name
    }
    definitions = {}
    for name, configs in topic_configs(cluster, sources, _KEYS).items():
        if "barnabas.query" in configs and "barnabas.query.plan" in configs:
            definitions[name] = Definition(
                topic=name,
                query=configs["barnabas.query"],
                on_error=configs.get("barnabas.query.on.error", "dead-letter"),
                plan=msgspec.json.decode(configs["barnabas.query.plan"], type=Plan),
                partitions=sources[name].partitions,
            )
    for name, configs in topic_configs(cluster, definitions, ["segment.bytes"], defaults=True).items():
        size = min(int(configs["segment.bytes"]), _MAX_BATCH_BYTES)  # a batch must fit into a segment
        definitions[name] = msgspec.structs.replace(definitions[name], max_batch_bytes=size)
    return Catalog(sources, definitions)


def read_schema(cluster: Cluster, topic: str) -> tuple[Source, str, str]:
    """A topic that a new query reads, its format and its schema (DDL). Raises QueryError for an unknown one."""
    (found,) = cluster.metadata([topic])
    configs = topic_configs(cluster, [topic], _SCHEMA_KEYS).get(topic)
    if found.error_code or configs is None or found.is_internal:
        raise QueryError(f"there is no topic {topic}: create it first")
    source = Source(topic, str(uuid.UUID(bytes=found.topic_id)), len(found.partitions))
    schema = configs.get("barnabas.value.schema", "")
    return source, configs.get("barnabas.value.format", "json" if schema else "raw"), schema
