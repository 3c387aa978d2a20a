"""The query topics of a cluster, read from the topics' configuration, where the broker keeps them."""

from __future__ import annotations

import difflib
import uuid

import msgspec

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster
from barnabas.streams.query.errors import QueryError
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.patterns import PatternError, pattern
from barnabas.wire.queries.keys import DEAD_LETTER, DENIED, EVENTS, ON_ERROR, PLAN, QUERY, VALUES
from barnabas.wire.queries.plan import QueryPlan, Values, plan_of
from barnabas.wire.streams.keys import (
    RUNNING,
    STREAM,
    STREAM_DENIED,
    STREAM_KEYS,
    STREAM_NAME,
    STREAM_RUN,
    STREAM_STATE,
)
from barnabas.wire.streams.plan import StreamPlan, stream_plan_of

CLEANUP_POLICY = "cleanup.policy"
_MAX_BATCH_BYTES = 1 << 20
_KEYS = [QUERY, PLAN, ON_ERROR, EVENTS, DENIED, *VALUES, *STREAM_KEYS]


class Definition(msgspec.Struct, frozen=True):
    """One query topic."""

    topic: str
    query: str
    on_error: str
    plan: QueryPlan
    partitions: int
    max_batch_bytes: int = _MAX_BATCH_BYTES
    denied: str = ""  # the rights that its owner lacks, so that it must not run
    events: bool = False  # over a pattern: whether the results also say which topics are read


class Source(Values, frozen=True):
    """A topic that may be read."""

    name: str
    topic_id: str
    partitions: int


class StreamDefinition(msgspec.Struct, frozen=True):
    """One stream, by the topic that it writes to."""

    topic: str
    topic_id: str
    name: str
    text: str
    state: str
    run: int
    plan: StreamPlan
    partitions: int
    max_batch_bytes: int = _MAX_BATCH_BYTES
    denied: str = ""  # the rights that its owner lacks; its state is then `denied`


class Catalog(msgspec.Struct, frozen=True):
    """All topics of a cluster, and the query topics and streams among them."""

    sources: dict[str, Source]
    definitions: dict[str, Definition]
    results: frozenset[str] = frozenset()  # of queries, including dead letters
    streams: dict[str, StreamDefinition] = {}
    is_whole: bool = False  # whether the state of every topic is currently known

    def inputs(self, definition: Definition) -> list[TopicPartition]:
        """The partitions that a query reads and for which results can be written. Raises PatternError."""
        plan = definition.plan
        if not plan.pattern:
            source = self.sources[plan.source]
            return [(source.name, p) for p in range(min(definition.partitions, source.partitions))]
        matches = pattern(plan.pattern).matches
        names = sorted(n for n in self.sources if n not in self.results and matches(n))
        return [(name, p) for name in names for p in range(self.sources[name].partitions)]


def read_catalog(cluster: Cluster) -> Catalog:
    """The current catalog. Raises ClientError."""
    everything = cluster.metadata(None)
    topics = [topic for topic in everything if not topic.is_internal and topic.name and not topic.error_code]
    counts = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics if topic.name}
    sources = {}
    definitions = {}
    results = set()
    streams = {}
    for name, configs in topic_configs(cluster, counts, _KEYS).items():
        sources[name] = _source(name, *counts[name], configs)
        stream, plan = stream_plan_of(configs), plan_of(configs)
        if stream is not None:
            streams[name] = _stream(sources[name], configs, stream)
        if plan is None:
            continue
        results.add(name)
        if QUERY in configs:
            definitions[name] = Definition(
                topic=name,
                query=configs[QUERY],
                on_error=configs.get(ON_ERROR, DEAD_LETTER),
                plan=plan,
                partitions=sources[name].partitions,
                events=configs.get(EVENTS) == "true",
                denied=configs.get(DENIED, ""),
            )
    for name, configs in topic_configs(cluster, [*definitions, *streams], ["segment.bytes"], defaults=True).items():
        size = min(int(configs["segment.bytes"]), _MAX_BATCH_BYTES)  # a batch must fit into a segment
        if name in definitions:
            definitions[name] = msgspec.structs.replace(definitions[name], max_batch_bytes=size)
        else:
            streams[name] = msgspec.structs.replace(streams[name], max_batch_bytes=size)
    is_whole = not any(topic.error_code for topic in everything)
    return Catalog(sources, definitions, frozenset(results), streams, is_whole)


def _stream(topic: Source, configs: dict[str, str], plan: StreamPlan) -> StreamDefinition:
    return StreamDefinition(
        topic=topic.name,
        topic_id=topic.topic_id,
        name=configs.get(STREAM_NAME, topic.name),
        text=configs[STREAM],
        state=STREAM_DENIED if DENIED in configs else configs.get(STREAM_STATE, RUNNING),
        denied=configs.get(DENIED, ""),
        run=int(configs.get(STREAM_RUN, "0")),
        plan=plan,
        partitions=topic.partitions,
    )


def read_source(cluster: Cluster, topic: str) -> Source:
    """A topic that a new query reads. Raises QueryError if it is unknown."""
    (found,) = cluster.metadata([topic])
    configs = topic_configs(cluster, [topic], list(VALUES)).get(topic)
    if found.error_code or configs is None or found.is_internal:
        names = [each.name or "" for each in cluster.metadata(None) if not each.is_internal]
        near = difflib.get_close_matches(topic, names, n=1)
        raise QueryError(f"there is no topic {topic}: create it first" + (f"; did you mean {near[0]}?" if near else ""))
    return _source(topic, found.topic_id, len(found.partitions), configs)


def is_compacted(cluster: Cluster, topic: str) -> bool:
    """Whether a topic keeps the latest value of each key. Raises ClientError."""
    found = topic_configs(cluster, [topic], [CLEANUP_POLICY], defaults=True)
    return "compact" in found[topic][CLEANUP_POLICY].split(",")


def _source(name: str, topic_id: bytes, partitions: int, configs: dict[str, str]) -> Source:
    values = msgspec.structs.asdict(Values.of(configs))
    return Source(name, str(uuid.UUID(bytes=topic_id)), partitions, **values)


def read_pattern(cluster: Cluster, text: str, results: str) -> Values:
    """The form of all topics' values for a new query over a pattern. `results` is its own topic, if that exists.

    Raises QueryError.
    """
    try:
        matches = pattern(text).matches
    except PatternError as error:
        raise QueryError(str(error)) from None
    catalog = read_catalog(cluster)
    others = catalog.sources.keys() - catalog.results - {results}
    names = sorted(name for name in others if matches(name))
    if not names:
        raise QueryError(f"there is no topic whose whole name matches {text}: create the first one before the query")
    found = {name: catalog.sources[name].values for name in names}
    for name in names[1:]:
        if found[name] != found[names[0]]:
            raise QueryError(f"{names[0]} and {name} have different schemas: give them the same, or narrow the pattern")
    return found[names[0]]
