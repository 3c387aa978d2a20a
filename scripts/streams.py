"""The statements of `barnabas sql` for streams. A stream is a setting of the topic that it writes to."""

from __future__ import annotations

from datetime import UTC, datetime

from barnabas.client.admin import create_topic, set_topic_config, topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.scripts.statements import ControlStream, CreateStream, DropStream, Explain, Select
from barnabas.scripts.status import cell, is_fresh, last_status
from barnabas.scripts.stream_plan import picture, plan_lines, plan_text
from barnabas.wire.errors import ErrorCode
from barnabas.wire.queries.keys import FORMAT, SCHEMA
from barnabas.wire.streams.clauses import Clauses, parse_stream
from barnabas.wire.streams.event_time import meant_time, told_time
from barnabas.wire.streams.keys import (
    PAUSED,
    RUNNING,
    STOPPED,
    STREAM,
    STREAM_KEYS,
    STREAM_NAME,
    STREAM_PLAN,
    STREAM_RUN,
    STREAM_STATE,
)
from barnabas.wire.streams.plan import stream_plan_of
from barnabas.wire.streams.tokens import SyntaxProblem
from barnabas.wire.table import table
from barnabas.wire.text import visible

_STATES = {"PAUSE": PAUSED, "RESUME": RUNNING, "STOP": STOPPED, "START": RUNNING}
_DONE = {"PAUSE": "Paused", "RESUME": "Resumed", "STOP": "Stopped", "START": "Started"}
_COLUMNS = (
    ("STREAM", "name"),
    ("INTO", "topic"),
    ("SOURCE", "source"),
    ("STATE", "state"),
    ("QUERY", "query"),
    ("LAG", "lag"),
    ("ROWS", "rows"),
    ("ROWS/S", "rows_per_second"),
    ("BATCH MS", "batch_ms"),
    ("WATERMARK", "watermark"),
    ("STATE ROWS", "state_rows"),
    ("LATE", "late"),
    ("IGNORED", "ignored"),
    ("COPIED", "copied"),
    ("LAST ERROR", "last_error"),
)


def create(cluster: Cluster, statement: CreateStream) -> None:
    """Create a stream and, if needed, the topic that it writes to. Raises ClientError."""
    clauses = _parsed(statement.text)
    if statement.name in _streams(cluster):
        if statement.if_not_exists:
            print(f"Stream {statement.name} is there already.")
            return
        raise ClientError(f"there is a stream {statement.name} already: use another name, or drop it first")
    settings = {**statement.options, STREAM: statement.text, STREAM_NAME: statement.name}
    made = create_topic(cluster, statement.into, settings, partitions=statement.partitions)
    if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        if statement.partitions != -1:
            raise ClientError(f"topic {statement.into} is there already: leave PARTITIONS out")
        set_topic_config(cluster, statement.into, settings)
    else:
        check(made.error_code, f"Stream {statement.name}", made.error_message)
    told = topic_configs(cluster, [statement.into], [STREAM_PLAN, SCHEMA, FORMAT]).get(statement.into, {})
    print(visible(f"Created stream {statement.name} into topic {statement.into}."))
    print(visible(f"Its values: {told.get(FORMAT, 'raw')} {told.get(SCHEMA, '')}".rstrip() + "."))
    if not clauses.by_clock:
        print(visible(f"Its event time: {told_time(clauses.time)}."))
    plan = stream_plan_of(told)
    column = None if plan is None else meant_time(clauses, plan.schema)
    if column is not None:
        print(visible(f"{clauses.source} has a time {column}, too: write EVENT_TIME {column} for windows by that one."))


def drop(cluster: Cluster, statement: DropStream) -> None:
    """End a stream. The topic with its results stays. Raises ClientError."""
    topic = _streams(cluster).get(statement.name)
    if topic is None and statement.if_exists:
        return
    name = _topic_of(cluster, statement.name)
    set_topic_config(cluster, name, {}, unset=[STREAM])
    print(f"Dropped stream {statement.name}. Topic {name} keeps its results; DROP TOPIC {name} removes them.")


def control(cluster: Cluster, statement: ControlStream) -> None:
    """Pause, resume or recalculate a stream. Raises ClientError."""
    name = _topic_of(cluster, statement.name)
    if statement.word == "RECALCULATE":
        run = int(topic_configs(cluster, [name], [STREAM_RUN])[name].get(STREAM_RUN, "0"))
        set_topic_config(cluster, name, {STREAM_RUN: str(run + 1)})
        print(f"Recalculating stream {statement.name}: all its results are written again, behind those in {name}.")
        return
    set_topic_config(cluster, name, {STREAM_STATE: _STATES[statement.word]})
    print(f"{_DONE[statement.word]} stream {statement.name}.")


def describe(cluster: Cluster, stream: str) -> None:
    """Show a stream's definition. Raises ClientError."""
    name = _topic_of(cluster, stream)
    configs = topic_configs(cluster, [name], [*STREAM_KEYS, SCHEMA, FORMAT])[name]
    plan = stream_plan_of(configs)
    print(visible(f"Stream:  {stream}"))
    print(visible(f"Text:    {configs[STREAM]}"))
    if plan is not None:
        print(visible(f"Source:  {plan.source}, from offsets {', '.join(map(str, plan.starts))}"))
        joined = plan.joined
        if joined is not None:
            begins = "as a table" if joined.is_table else f"from offsets {', '.join(map(str, joined.starts))}"
            print(visible(f"Joined:  {joined.source}, {begins}"))
    clauses = _parsed(configs[STREAM])
    if not clauses.by_clock:
        print(visible(f"Time:    {told_time(clauses.time)}"))
    print(visible(f"Into:    {name}"))
    print(visible(f"Values:  {configs.get(FORMAT, 'raw')} {configs.get(SCHEMA, '')}".rstrip()))
    print(visible(f"State:   {configs.get(STREAM_STATE, RUNNING)}"))


def explain(cluster: Cluster, statement: Explain, *, drawn: bool) -> None:
    """Show the tasks of a stream, as text or as a picture. Raises ClientError."""
    assert not isinstance(statement.what, Select)
    if isinstance(statement.what, CreateStream):
        into, text = statement.what.into, statement.what.text
    else:
        into = _topic_of(cluster, statement.what)
        text = topic_configs(cluster, [into], [STREAM])[into][STREAM]
    show = picture if drawn else plan_text
    print(show(plan_lines(_parsed(text), into)))


def table_of(cluster: Cluster) -> str:
    """A table of all streams with the driver's last report, or a note that there is none."""
    status = last_status(cluster)
    fresh = status if status is not None and is_fresh(status) else None
    told = {stream.topic: stream for stream in fresh.streams} if fresh is not None else {}
    rows = []
    for name, topic in sorted(_streams(cluster).items()):
        if topic in told:
            cells = {key: getattr(told[topic], key) for _, key in _COLUMNS}
            for name in ("watermark", "copied"):
                cells[name] = None if cells[name] is None else _time(cells[name])
        else:
            state, why = ("STARTING", "") if fresh is not None else ("UNKNOWN", "no driver runs")
            configs = topic_configs(cluster, [topic], [*STREAM_KEYS])[topic]
            plan = stream_plan_of(configs)
            if configs.get(STREAM_STATE, RUNNING) != RUNNING:
                state, why = configs[STREAM_STATE].upper(), ""
            source = ", ".join(plan.sources) if plan is not None else ""
            cells = {"name": name, "topic": topic, "source": source, "state": state, "last_error": why}
        rows.append([cell(key, cells.get(key)) for _, key in _COLUMNS])
    return table([title for title, _ in _COLUMNS], rows)


def _parsed(text: str) -> Clauses:
    try:
        return parse_stream(text)
    except SyntaxProblem as error:
        raise ClientError(str(error)) from None


def _streams(cluster: Cluster) -> dict[str, str]:
    """The topics that streams write to, by the streams' names."""
    names = [topic.name or "" for topic in cluster.metadata(None) if not topic.is_internal]
    found = topic_configs(cluster, names, [STREAM, STREAM_NAME])
    return {configs.get(STREAM_NAME, name): name for name, configs in found.items() if STREAM in configs}


def _topic_of(cluster: Cluster, stream: str) -> str:
    found = _streams(cluster)
    if stream not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ClientError(f"there is no stream {stream}: there are {known}")
    return found[stream]


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
