"""`barnabas sql`: query topics made, changed, shown and dropped; and SELECTs over topics, with a table or a chart."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import msgspec

from barnabas.client.admin import create_topic, delete_topic, set_topic_config, topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.scripts import groups, streams
from barnabas.scripts.chart import chart
from barnabas.scripts.insert import Insert, insert
from barnabas.scripts.statements import (
    AlterTopic,
    ControlStream,
    CreateStream,
    CreateTopic,
    Describe,
    DescribeStream,
    DropStream,
    DropTopic,
    Explain,
    Select,
    Statement,
    parse,
    split,
)
from barnabas.scripts.status import cell, is_fresh, last_status, saying_that_spark_starts
from barnabas.scripts.topics import absent
from barnabas.wire.errors import ErrorCode
from barnabas.wire.queries.keys import FORMAT, PLAN, QUERY, SCHEMA
from barnabas.wire.queries.plan import plan_of
from barnabas.wire.streams.keys import STREAM_KEYS, STREAM_NAME
from barnabas.wire.streams.plan import stream_plan_of
from barnabas.wire.table import table
from barnabas.wire.text import SPARK_REMEDY, visible, visible_bytes

_WATCH_SECONDS = 1.0
_WIDEST_CELL = 60
_COLUMNS = (
    ("TOPIC", "topic"),
    ("SOURCE", "source"),
    ("STATE", "state"),
    ("LAG", "lag"),
    ("ROWS", "rows"),
    ("ROWS/S", "rows_per_second"),
    ("BATCH MS", "batch_ms"),
    ("DEAD", "dead_letters"),
    ("LAST ERROR", "last_error"),
)


def run(args: argparse.Namespace) -> int:
    """Run the statements of the command line, or of standard input."""
    text = " ".join(args.statement) if args.statement else sys.stdin.read()
    statements = [parse(one) for one in split(text)]
    if not statements:
        raise ClientError('there is no statement: barnabas sql "SELECT * FROM topic", or on standard input')
    for statement in statements:
        _run(args, statement)
    return 0


def _run(args: argparse.Namespace, statement: Statement) -> None:
    if isinstance(statement, Select):
        _select(args, statement.query)
        return
    with Cluster(args.server) as cluster:
        if isinstance(statement, CreateTopic):
            _create(cluster, statement)
        elif isinstance(statement, DropTopic):
            _drop(cluster, statement)
        elif isinstance(statement, Insert):
            print(f"Wrote {insert(cluster, statement)} record(s) to {statement.topic}.")
        elif isinstance(statement, AlterTopic):
            _alter(args, cluster, statement)
        elif isinstance(statement, Describe):
            _describe(cluster, statement.name)
        elif isinstance(statement, CreateStream):
            with saying_that_spark_starts(cluster):
                streams.create(cluster, statement)
        elif isinstance(statement, DropStream):
            streams.drop(cluster, statement)
        elif isinstance(statement, ControlStream):
            streams.control(cluster, statement)
        elif isinstance(statement, DescribeStream):
            streams.describe(cluster, statement.name)
        elif isinstance(statement, Explain):
            streams.explain(cluster, statement, drawn=args.plot)
        elif statement.what == "TOPICS":
            _show_topics(cluster)
        else:
            _show(cluster, _TABLES[statement.what], watch=args.watch)


def _adhoc() -> Any:
    try:
        return importlib.import_module("barnabas.streams.adhoc")
    except ImportError as error:
        raise ClientError(f"this needs Spark ({error.name or error}): {SPARK_REMEDY}") from None


def _select(args: argparse.Namespace, query: str) -> None:
    began = time.monotonic()
    columns, rows = _adhoc().select(args.server, args.data_dir, args.master, query, args.limit + 1)
    shown = rows[: args.limit]
    print(chart(columns, shown) if args.plot else table(columns, [[_cell(value) for value in row] for row in shown]))
    more = ", and more: raise --limit" if len(rows) > len(shown) else ""
    print(f"{len(shown)} row(s){more}; {time.monotonic() - began:.1f} s", file=sys.stderr)


def _cell(value: Any) -> str:
    """A value of a row in one line."""
    if value is None:
        return ""
    text = visible_bytes(bytes(value)) if isinstance(value, bytes | bytearray) else str(value)
    text = visible(text)
    return text if len(text) <= _WIDEST_CELL else text[: _WIDEST_CELL - 1] + "…"


def _check_schema(configs: dict[str, str]) -> None:
    """Raises ClientError for a schema that no value can be parsed to. Without the spark extra, a query is told so."""
    if not configs.get(SCHEMA):
        return
    try:
        schemas = importlib.import_module("barnabas.streams.schema")
    except ImportError:
        return
    try:
        schemas.check_ddl(configs[SCHEMA])
    except schemas.WalError as error:
        raise ClientError(str(error)) from None


def _create(cluster: Cluster, statement: CreateTopic) -> None:
    configs = dict(statement.options)
    if statement.columns is not None:
        if statement.query is not None:
            raise ClientError("a query gives its topic its columns: leave them out")
        configs |= {FORMAT: configs.get(FORMAT, "json"), SCHEMA: statement.columns}
    _check_schema(configs)
    if statement.query is not None:
        configs[QUERY] = statement.query
    with saying_that_spark_starts(cluster) if QUERY in configs else nullcontext():
        made = create_topic(cluster, statement.name, configs, partitions=statement.partitions)
    if statement.if_not_exists and made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        print(f"Topic {statement.name} is there already.")
        return
    check(made.error_code, f"Topic {statement.name}", made.error_message)
    print(f"Created topic {statement.name} with {made.num_partitions} partition(s).")
    if statement.query is not None:
        _tell_values(cluster, statement.name)


def _tell_values(cluster: Cluster, name: str) -> None:
    told = topic_configs(cluster, [name], [SCHEMA, FORMAT]).get(name, {})
    print(visible(f"Its values: {told.get(FORMAT, 'raw')} {told.get(SCHEMA, '')}".rstrip() + "."))


def _alter(args: argparse.Namespace, cluster: Cluster, statement: AlterTopic) -> None:
    if statement.infer:
        schema = _adhoc().infer(args.server, args.data_dir, statement.name)
        options = {FORMAT: "json", SCHEMA: schema}
    else:
        options = statement.options or {QUERY: statement.query or ""}
        _check_schema(options)
    with saying_that_spark_starts(cluster) if QUERY in options else nullcontext():
        set_topic_config(cluster, statement.name, options)
    print(f"Altered topic {statement.name}.")
    if statement.infer or QUERY in options:
        _tell_values(cluster, statement.name)


def _drop(cluster: Cluster, statement: DropTopic) -> None:
    name = statement.name
    readers = [] if statement.cascade else _readers(cluster, name)
    if readers:
        raise ClientError(
            f"{name} is read by {', '.join(readers)}, which would end: drop them first, or write "
            f"DROP TOPIC {name} CASCADE"
        )
    code, message = delete_topic(cluster, name)
    if not (statement.if_exists and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        check(code, f"Topic {name}", message)
        print(f"Dropped topic {name}.")


def _readers(cluster: Cluster, name: str) -> list[str]:
    """The query topics and streams that read a topic. Those of a pattern go on without it, and are none of them."""
    topics = {topic.name or "": topic.topic_id for topic in cluster.metadata(None) if not topic.is_internal}
    if name not in topics:
        return []
    read = (name, str(uuid.UUID(bytes=topics.pop(name))))
    found = []
    for topic, configs in sorted(topic_configs(cluster, topics, [QUERY, PLAN, *STREAM_KEYS]).items()):
        plan, stream = plan_of(configs), stream_plan_of(configs)
        if plan is not None and QUERY in configs and (plan.source, plan.source_id) == read:
            found.append(f"query topic {topic}")
        if stream is not None and read in stream.sources.items():
            found.append(f"stream {configs.get(STREAM_NAME, topic)}")
    return found


def _describe(cluster: Cluster, name: str) -> None:
    configs = topic_configs(cluster, [name]).get(name)
    if configs is None:
        raise ClientError(absent(cluster, name))
    leaders = cluster.leaders(name)
    keys = [(name, partition) for partition in leaders]
    first, end = list_offsets(cluster, keys, EARLIEST), list_offsets(cluster, keys, LATEST)
    print(f"Topic:      {name}")
    if QUERY in configs:
        plan = msgspec.json.decode(configs[PLAN], type=dict[str, Any])
        print(visible(f"Query:      {configs[QUERY]}"))
        print(visible(f"Source:     {plan.get('source')}, from offsets {plan.get('offsets')}"))
    print(visible(f"Values:     {configs.get(FORMAT, 'raw')} {configs.get(SCHEMA, '')}".rstrip()))
    print(f"Partitions: {', '.join(f'{p}: {first[t, p]} to {end[t, p]}' for t, p in keys)}")


def _show_topics(cluster: Cluster) -> None:
    names = sorted(topic.name or "" for topic in cluster.metadata(None) if not topic.is_internal)
    configs = topic_configs(cluster, names, [QUERY, FORMAT, SCHEMA])
    rows = [
        (name, found.get(FORMAT, "raw"), found.get(SCHEMA, ""), found.get(QUERY, "")) for name, found in configs.items()
    ]
    print(table(("TOPIC", "FORMAT", "SCHEMA", "QUERY"), rows))


def _show(cluster: Cluster, table_of: Callable[[Cluster], str], *, watch: bool) -> None:
    while True:
        shown = table_of(cluster)
        if watch and sys.stdout.isatty():
            print("\x1b[2J\x1b[H", end="")
        print(shown, flush=True)
        if not watch:
            return
        time.sleep(_WATCH_SECONDS)


def _queries(cluster: Cluster) -> str:
    """The table of all query topics: what the driver said last, or that it says nothing."""
    names = [topic.name or "" for topic in cluster.metadata(None) if not topic.is_internal]
    queries = {
        name: plan
        for name, found in sorted(topic_configs(cluster, names, [QUERY, PLAN]).items())
        if QUERY in found and (plan := plan_of(found)) is not None
    }
    status = last_status(cluster)
    told = {query.topic: query for query in status.queries} if status is not None and is_fresh(status) else None
    rows = []
    for name, plan in queries.items():
        if told is not None and name in told:
            rows.append([cell(key, getattr(told[name], key)) for _, key in _COLUMNS])
            continue
        known = {"topic": name, "source": plan.source, "state": "UNKNOWN", "last_error": "no driver runs"}
        if told is not None:
            known |= {"state": "STARTING", "last_error": ""}
        rows.append([cell(key, known.get(key)) for _, key in _COLUMNS])
    return table([title for title, _ in _COLUMNS], rows)


_TABLES = {
    "QUERIES": _queries,
    "STREAMS": streams.table_of,
    "CONSUMERS": groups.consumers,
    "SUBSCRIPTIONS": groups.subscriptions,
}
