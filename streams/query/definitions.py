"""The query topics of a cluster, as the broker keeps them in the topics' configuration."""

from __future__ import annotations

import uuid

import msgspec

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster, Key
from barnabas.streams.query.errors import QueryError
from barnabas.streams.source.options import Options
from barnabas.wire.patterns import PatternError, pattern

_MAX_BATCH_BYTES = 1 << 20
_SCHEMA_KEYS = [
    "barnabas.value.format", "barnabas.value.schema", "barnabas.value.avro.schema", "barnabas.value.avro.framing",
    "barnabas.value.csv.separator", "barnabas.value.csv.null",
]  # fmt: skip
_KEYS = [
    "barnabas.query", "barnabas.query.plan", "barnabas.query.on.error", "barnabas.query.events", *_SCHEMA_KEYS,
]  # fmt: skip


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic's values are: their format, the columns in them (DDL), and how Avro and CSV are written."""

    format: str = "raw"
    schema: str = ""
    avro_schema: str = ""
    avro_framing: str = "none"
    csv_separator: str = ","
    csv_null: str = ""

    @property
    def values(self) -> Values:
        """Only that, of a plan or a source."""
        return Values(**{name: getattr(self, name) for name in Values.__struct_fields__})

    @property
    def separator(self) -> str:
        """What stands between the fields of CSV."""
        return "\t" if self.csv_separator == "\\t" else self.csv_separator

    @property
    def options(self) -> Options:
        """How the `wal` source reads them."""
        return Options(
            path="",
            format=self.format,
            avro_schema=self.avro_schema,
            avro_framing=self.avro_framing,
            separator=self.separator,
            null_value=self.csv_null,
        )

    @property
    def reader_options(self) -> dict[str, str]:
        """The same as a reader of Spark's is told it."""
        own = {
            "avro": {"avroSchema": self.avro_schema, "avroFraming": self.avro_framing},
            "csv": {"sep": self.separator, "nullValue": self.csv_null},
        }
        return {"format": self.format, **own.get(self.format, {})}


class Plan(Values, frozen=True):
    """What the broker fixed when the query was made: its source, and what that one's values were at the time.

    Or the pattern of the names of its sources, and from which offsets on the topics of that time are read.
    """

    source: str = ""
    source_id: str = ""
    pattern: str = ""
    starts: dict[str, list[int]] = {}


class Definition(msgspec.Struct, frozen=True):
    """One query topic."""

    topic: str
    query: str
    on_error: str
    plan: Plan
    partitions: int
    max_batch_bytes: int = _MAX_BATCH_BYTES
    events: bool = False  # over a pattern: whether the results say which topics are read, too


class Source(Values, frozen=True):
    """A topic that may be read."""

    name: str
    topic_id: str
    partitions: int


class Catalog(msgspec.Struct, frozen=True):
    """All topics of a cluster, and the query topics among them."""

    sources: dict[str, Source]
    definitions: dict[str, Definition]
    results: frozenset[str] = frozenset()  # of queries, dead letters among them

    def inputs(self, definition: Definition) -> list[Key]:
        """The partitions that a query reads, where results can be written for them. Raises PatternError."""
        plan = definition.plan
        if not plan.pattern:
            source = self.sources[plan.source]
            return [(source.name, p) for p in range(min(definition.partitions, source.partitions))]
        matches = pattern(plan.pattern).matches
        names = sorted(n for n in self.sources if n not in self.results and matches(n))
        return [(name, p) for name in names for p in range(self.sources[name].partitions)]


def read_catalog(cluster: Cluster) -> Catalog:
    """What there is now. Raises ClientError."""
    topics = [
        topic for topic in cluster.metadata(None) if not topic.is_internal and topic.name and not topic.error_code
    ]
    counts = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics if topic.name}
    sources = {}
    definitions = {}
    results = set()
    for name, configs in topic_configs(cluster, counts, _KEYS).items():
        sources[name] = _source(name, *counts[name], configs)
        if "barnabas.query.plan" in configs:
            results.add(name)
        if "barnabas.query" in configs and "barnabas.query.plan" in configs:
            definitions[name] = Definition(
                topic=name,
                query=configs["barnabas.query"],
                on_error=configs.get("barnabas.query.on.error", "dead-letter"),
                plan=msgspec.json.decode(configs["barnabas.query.plan"], type=Plan),
                partitions=sources[name].partitions,
                events=configs.get("barnabas.query.events") == "true",
            )
    for name, configs in topic_configs(cluster, definitions, ["segment.bytes"], defaults=True).items():
        size = min(int(configs["segment.bytes"]), _MAX_BATCH_BYTES)  # a batch must fit into a segment
        definitions[name] = msgspec.structs.replace(definitions[name], max_batch_bytes=size)
    return Catalog(sources, definitions, frozenset(results))


def read_source(cluster: Cluster, topic: str) -> Source:
    """A topic that a new query reads. Raises QueryError for an unknown one."""
    (found,) = cluster.metadata([topic])
    configs = topic_configs(cluster, [topic], _SCHEMA_KEYS).get(topic)
    if found.error_code or configs is None or found.is_internal:
        raise QueryError(f"there is no topic {topic}: create it first")
    return _source(topic, found.topic_id, len(found.partitions), configs)


def _source(name: str, topic_id: bytes, partitions: int, configs: dict[str, str]) -> Source:
    schema = configs.get("barnabas.value.schema", "")
    value_format = configs.get("barnabas.value.format", "json" if schema else "raw")
    return Source(
        name, str(uuid.UUID(bytes=topic_id)), partitions, format=value_format, schema=schema,
        avro_schema=configs.get("barnabas.value.avro.schema", ""),
        avro_framing=configs.get("barnabas.value.avro.framing", "none"),
        csv_separator=configs.get("barnabas.value.csv.separator", ","),
        csv_null=configs.get("barnabas.value.csv.null", ""),
    )  # fmt: skip


def read_pattern(cluster: Cluster, text: str, results: str) -> Values:
    """What the values of all topics of a new query over a pattern are; `results` is its own topic, if that is there.

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
