"""`barnabas sql`: create, change, show and drop query topics, and SELECT over topics, with a table or a chart."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec

from barnabas.client.admin import create_topic, delete_topic, set_topic_config, topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.scripts import groups, streams
from barnabas.scripts.insert import Insert, insert
from barnabas.scripts.mistakes import check_text, pointed
from barnabas.scripts.selects import Selects, Settings
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
    Show,
    ShowCreate,
    Statement,
    Written,
    parse,
    written,
)
from barnabas.scripts.status import cell, is_fresh, last_status, saying_that_spark_starts
from barnabas.scripts.topics import absent
from barnabas.wire.errors import ErrorCode
from barnabas.wire.queries.keys import FORMAT, PLAN, QUERY, SCHEMA
from barnabas.wire.queries.plan import plan_of
from barnabas.wire.streams.keys import STREAM_KEYS, STREAM_NAME
from barnabas.wire.streams.plan import stream_plan_of
from barnabas.wire.table import table
from barnabas.wire.text import SPARK_REMEDY, visible

_WATCH_SECONDS = 1.0
_SHOWN = 60
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


class Session:
    """One user's statements, one after the other. Once Spark was needed, it stays for those that follow."""

    def __init__(self, settings: Settings, *, watch: bool = False) -> None:
        self.settings, self._watch = settings, watch
        self._selects = Selects(settings)

    def run(self, text: str, show: Callable[[str], None] = print) -> None:
        """Run one statement; `show` gets a SELECT's result if it is text. Raises ClientError."""
        check_text(text)
        statement = parse(text)
        if isinstance(statement, Select):
            self._selects.run(statement.query, show)
        elif isinstance(statement, Explain) and isinstance(statement.what, Select):
            for line in self._selects.explain(statement.what.query):
                print(visible(line))
        else:
            with Cluster(self.settings.server) as cluster:
                self._on_cluster(cluster, statement)

    def _on_cluster(self, cluster: Cluster, statement: Statement) -> None:
        if isinstance(statement, CreateTopic):
            _create(cluster, statement)
        elif isinstance(statement, DropTopic):
            _drop(cluster, statement)
        elif isinstance(statement, Insert):
            print(f"Wrote {insert(cluster, statement)} record(s) to {statement.topic}.")
        elif isinstance(statement, AlterTopic):
            _alter(self.settings, cluster, statement)
        elif isinstance(statement, Describe):
            _describe(cluster, statement.name)
        elif isinstance(statement, ShowCreate):
            print(_statement_of(cluster, statement.name))
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
            streams.explain(cluster, statement, drawn=self.settings.plot)
        elif isinstance(statement, Show) and statement.what == "TOPICS":
            _show_topics(cluster)
        elif isinstance(statement, Show):
            _show(cluster, _TABLES[statement.what], watch=self._watch)


def run(args: argparse.Namespace) -> int:
    """Run the statements from the command line or standard input; on a terminal, the statements that are typed."""
    settings = Settings(
        args.server, args.data_dir, args.master, max(args.limit, 0), args.format, args.output, args.plot, args.upright,
        args.engine,
    )  # fmt: skip
    session = Session(settings, watch=args.watch)
    if not args.statement and sys.stdin.isatty():
        return int(importlib.import_module("barnabas.scripts.shell").run(session))
    return _run_all(session, args)


def _run_all(session: Session, args: argparse.Namespace) -> int:
    text = " ".join(args.statement) if args.statement else sys.stdin.read()
    goes_on = args.on_error == "continue"
    try:
        given = list(written(text))
    except ClientError as error:
        _point(text, error)
        raise
    if not given:
        raise ClientError('there is no statement: barnabas sql "SELECT * FROM topic", or on standard input')
    if not goes_on:  # a text with a mistake in it is not run at all
        for number, statement in enumerate(given, 1):
            with _telling(number, statement, len(given)):
                check_text(statement.text)
                parse(statement.text)
    failed = 0
    for number, statement in enumerate(given, 1):
        try:
            with _telling(number, statement, len(given)):
                session.run(statement.text)
        except ClientError as error:
            if not goes_on:
                raise
            failed += 1
            print(f"barnabas: {visible(str(error))}", file=sys.stderr, flush=True)
    if failed:
        print(f"barnabas: {failed} of {len(given)} statements failed", file=sys.stderr)
    return 1 if failed else 0


@contextmanager
def _telling(number: int, statement: Written, count: int) -> Iterator[None]:
    """Report which statement an error is in, if there are several, and point to its position."""
    try:
        yield
    except ClientError as error:
        _point(statement.text, error)
        if count == 1:
            raise
        begin = visible(statement.text.split("\n")[0])
        begin = begin if len(begin) <= _SHOWN else begin[: _SHOWN - 1] + "…"
        raise ClientError(f"statement {number} (line {statement.line}): {begin}: {error}") from None


def _point(text: str, error: ClientError) -> None:
    for line in pointed(text, str(error)):
        print(line, file=sys.stderr)


def _adhoc() -> Any:
    try:
        return importlib.import_module("barnabas.streams.adhoc")
    except ImportError as error:
        raise ClientError(f"this needs Spark ({error.name or error}): {SPARK_REMEDY}") from None


def _check_schema(configs: dict[str, str]) -> None:
    """Raises ClientError for an invalid schema. Without the spark extra nothing is checked: a query reports that."""
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


def _alter(settings: Settings, cluster: Cluster, statement: AlterTopic) -> None:
    if statement.infer:
        schema = _adhoc().infer(settings.server, settings.data_dir, statement.name)
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
    """The query topics and streams that read a topic. Those with a pattern work without it and are left out."""
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


def _statement_of(cluster: Cluster, name: str) -> str:
    """The statement that would create such a topic. Raises ClientError."""
    configs = topic_configs(cluster, [name]).get(name)
    if configs is None:
        raise ClientError(absent(cluster, name))
    schema, query = configs.get(SCHEMA, ""), configs.get(QUERY)
    made = {FORMAT, SCHEMA, QUERY, PLAN} if query is not None or configs.get(FORMAT) == "json" else {SCHEMA, PLAN}
    options = ", ".join(
        f"{_quoted(key)} = {_quoted(value)}" for key, value in sorted(configs.items()) if key not in made
    )
    parts = [f"CREATE TOPIC `{name}`"]
    if schema and query is None:
        parts[0] += f" ({schema})"
    if query is None:
        parts.append(f"PARTITIONS {len(cluster.leaders(name))}")
    if options:
        parts.append(f"WITH ({options})")
    if query is not None:
        parts.append(f"AS {query}")
    return visible(" ".join(parts) + ";", keep="\n")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


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
    """A table of all query topics with the driver's last report, or a note that there is none."""
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
