"""`INSERT INTO topic [(column, ...)] VALUES (...), ...`: rows of literals become records.

In the list of columns, `_key` and `_timestamp` are the record's own. A topic without columns takes `_value`.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from barnabas.client.admin import topic_configs
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.scripts.produce import Sender
from barnabas.scripts.topics import absent
from barnabas.wire.batch import Record
from barnabas.wire.queries.keys import FORMAT, SCHEMA, VALUES
from barnabas.wire.streams.cursor import Cursor
from barnabas.wire.streams.tokens import NUMBER, QUOTED, STRING, WORD, Token, split_at, string_value
from barnabas.wire.text import SPARK_REMEDY

_KEY, _VALUE, _TIMESTAMP = "_key", "_value", "_timestamp"
_RAW = "raw"

#: A number is kept as its digits; a time is the text in its quotes.
Literal = str | bytes | bool | None | msgspec.Raw


class Insert(NamedTuple):
    """Rows for a topic. `columns` is None if the statement names none: then they are the topic's."""

    topic: str
    columns: list[str] | None
    rows: list[list[Literal]]


def parse_insert(text: str) -> Insert:
    """Parse an INSERT. Raises SyntaxProblem with the position."""
    cursor = Cursor(text)
    cursor.expect("INSERT")
    cursor.expect("INTO")
    topic = cursor.topic()
    columns = None
    if cursor.peek().says("("):
        opening = cursor.peek()
        columns = [_column(cursor, part, opening) for part in split_at(cursor.inside(), ",")]
    cursor.expect("VALUES")
    rows: list[list[Literal]] = []
    while True:
        opening = cursor.peek()
        if not opening.says("("):
            raise cursor.wrong("expected a row in parentheses")
        row = [_literal(cursor, part, opening) for part in split_at(cursor.inside(), ",")]
        wanted = len(columns or (rows[0] if rows else row))
        if len(row) != wanted:
            raise cursor.wrong(f"the row has {len(row)} values, not {wanted}", opening)
        rows.append(row)
        if cursor.at == len(cursor.tokens):
            return Insert(topic, columns, rows)
        if not cursor.takes(","):
            raise cursor.wrong("expected a comma or the end")


def _column(cursor: Cursor, part: list[Token], opening: Token) -> str:
    if len(part) != 1 or part[0].kind not in (WORD, QUOTED):
        raise cursor.wrong("expected the name of a column", part[0] if part else opening)
    return part[0].name


def _literal(cursor: Cursor, part: list[Token], opening: Token) -> Literal:
    what = "expected a literal: a number, 'text', X'hex', TIMESTAMP 'time', DATE 'day', TRUE, FALSE or NULL"
    if not part:
        raise cursor.wrong(what, opening)
    first = part[0]
    if first.says("-", "+") and len(part) == 2 and part[1].kind == NUMBER:
        return _number(cursor, part[1], "-" if first.text == "-" else "")
    if first.kind == NUMBER and len(part) == 1:
        return _number(cursor, first, "")
    if first.says("TRUE", "FALSE") and len(part) == 1:
        return first.text.upper() == "TRUE"
    if first.says("NULL") and len(part) == 1:
        return None
    strings = part[1:] if first.says("TIMESTAMP", "DATE", "X") else part
    if not strings or strings[0].kind != STRING:
        raise cursor.wrong(what, first)
    if len(strings) > 1:
        raise cursor.wrong("expected a comma", strings[1])
    value = string_value(strings[0])
    if not first.says("X"):
        return value
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise cursor.wrong("this is not a hexadecimal number", first) from None


def _number(cursor: Cursor, token: Token, sign: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(token.text)
    except msgspec.DecodeError:
        raise cursor.wrong("this is not a number", token) from None
    return msgspec.Raw((sign + token.text).encode())


# -- into the topic --------------------------------------------------------------------------------------------------


def insert(cluster: Cluster, statement: Insert) -> int:
    """Write the rows, and return how many. Raises ClientError if none was written."""
    found = topic_configs(cluster, [statement.topic], [*VALUES]).get(statement.topic)
    if found is None:
        raise ClientError(absent(cluster, statement.topic))
    records = list(_records(statement, found))
    sender = Sender(cluster, statement.topic, unit="Row")
    for number, record in enumerate(records, 1):
        sender.add(number, record)
    sender.send()
    return sender.sent


def _records(statement: Insert, configs: dict[str, str]) -> Iterator[Record]:
    """The records of the rows. Raises ClientError for the first row that the topic cannot hold."""
    format_ = configs.get(FORMAT, _RAW)
    names = statement.columns
    if names is None:
        names = _names_of(statement, configs, format_)
    if len(names) != len(statement.rows[0]):
        raise ClientError(
            f"a row has {len(statement.rows[0])} values, and {statement.topic} the columns {', '.join(names)}"
        )
    if len(set(names)) != len(names):
        raise ClientError(f"a column is named twice: {', '.join(names)}")
    rows = [dict(zip(names, row, strict=True)) for row in statement.rows]
    now = time.time_ns() // 1_000_000
    keys = [_bytes(row.pop(_KEY, None)) for row in rows]
    times = [_time(row.pop(_TIMESTAMP, None), now) for row in rows]
    for key, at, value in zip(keys, times, _values(statement.topic, rows, configs, format_), strict=True):
        yield Record(key, value, at, ())


def _names_of(statement: Insert, configs: dict[str, str], format_: str) -> list[str]:
    if configs.get(SCHEMA) and format_ != _RAW:
        return [name for name, _ in _streams("schema").check_ddl(configs[SCHEMA])]
    if len(statement.rows[0]) == 1 and format_ == _RAW:
        return [_VALUE]
    raise ClientError(
        f"{statement.topic} has no columns: name them, as in INSERT INTO {statement.topic} (_key, _value)"
    )


def _values(
    topic: str, rows: list[dict[str, Literal]], configs: dict[str, str], format_: str
) -> Sequence[bytes | None]:
    if format_ == _RAW:
        for row in rows:
            if row.keys() != {_VALUE}:
                raise ClientError(f"{topic} has no columns but _value, _key and _timestamp, as its values are raw")
        return [_bytes(row[_VALUE]) for row in rows]
    for number, row in enumerate(rows, 1):
        if any(isinstance(value, bytes) for value in row.values()):
            raise ClientError(f"row {number}: {format_} has no bytes")
    objects = [msgspec.json.encode(row) for row in rows]
    if not configs.get(SCHEMA) and format_ == "json":
        return objects
    return _typed(topic, rows, objects, configs)


def _typed(
    topic: str, rows: list[dict[str, Literal]], objects: list[bytes], configs: dict[str, str]
) -> Sequence[bytes | None]:
    """The values in the topic's format, with the types of its columns."""
    load = _streams("load")
    try:
        return load.typed(topic, configs, rows[0].keys(), objects)  # type: ignore[no-any-return]
    except load.WalError as error:
        raise ClientError(str(error)) from None


def _streams(module: str) -> Any:
    try:
        return importlib.import_module(f"barnabas.streams.{module}")
    except ImportError as error:
        raise ClientError(f"a topic with columns needs PyArrow ({error.name or error}): {SPARK_REMEDY}") from None


def _bytes(value: Literal) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return value.encode() if isinstance(value, str) else bytes(value)


def _time(value: Literal, now: int) -> int:
    if value is None:
        return now
    try:
        if isinstance(value, msgspec.Raw):
            return msgspec.json.decode(value, type=int)
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, msgspec.DecodeError):
        pass
    raise ClientError("_timestamp is milliseconds since 1970, or a time like TIMESTAMP '2024-05-01 12:00:00'")
