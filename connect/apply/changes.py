"""Turns a record into the change that it asks for, without I/O. The writers of the topic are not trusted.

A row's values become SQL only as literals. A `tdsql` value must be exactly one literal by the grammar here; the values
of the other formats are turned into literals by the column's type. Names are quoted where SQL is built. Statements are
passed on unchanged; the caller must judge them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from barnabas.connect.binlog.charsets import literal
from barnabas.connect.binlog.oversize import MARK
from barnabas.connect.binlog.selected import Known
from barnabas.connect.mysql.connection import name_quoted

#: One SQL literal as the `tdsql` format writes it, and nothing else, in a session with backslash escapes. Every round
#: of a repetition that can backtrack costs memory, so the repetitions are possessive (`*+`), and bytes are taken 32 at
#: a time.
_LITERAL = re.compile(
    r"NULL"
    r"|-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
    r"|'[^'\\]*+(?:\\.[^'\\]*+)*+'"
    r"|(?:_[a-z0-9]+ )?x'(?:[0-9a-f]{64})*+(?:[0-9a-f]{2})*+'"
    r"|b'[01]+'",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
#: In these character sets, a text of the other formats is literally the text: never base64 of bytes that do not decode.
_CERTAIN = frozenset({"utf8mb4", "utf8mb3", "utf8", "latin1"})
_TIMES = frozenset({"date", "time", "datetime", "timestamp"})
#: The header that marks a snapshot's messages.
SNAPSHOT = "barnabas.snapshot"


class BadMessageError(Exception):
    """A record that cannot be applied; the text says why."""


class Row(NamedTuple):
    """A row before and after a change: its literals in the order of its columns, or its values by their names."""

    database: str
    table: str
    before: list[str] | dict[str, Any] | None
    after: list[str] | dict[str, Any] | None
    cut: str = ""


class Emptied(NamedTuple):
    """Delete all rows of a table."""

    database: str
    table: str
    cut: str = ""


class Ddl(NamedTuple):
    """A statement in a database."""

    database: str
    sql: str
    cut: str = ""


#: `cut` says what was cut out of the message (`--oversize truncate`); such a message cannot be applied.
Asked = Row | Emptied | Ddl


def asked_of(value: bytes | None, *, copied: bool) -> Asked | None:
    """The change that a record asks for, or None. `copied`: it is from a snapshot. Raises BadMessageError."""
    if value is None:
        return None
    try:
        told = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessageError(f"the value is not JSON ({error})") from None
    if isinstance(told, dict):
        found: Asked | None
        if "eventtypestr" in told:
            found = _of_tdsql(told, copied=copied)
        elif "op" in told or "ddl" in told:
            found = _of_debezium(told)
        elif "type" in told:
            found = _of_maxwell(told)
        else:
            raise BadMessageError(_NO_FORMAT)
        return found if found is None or MARK not in told else found._replace(cut=_cut(told[MARK]))
    raise BadMessageError(_NO_FORMAT)


_NO_FORMAT = "the value is of no format that can be applied: these are tdsql, debezium and maxwell"


def _cut(marks: Any) -> str:
    """What was cut, according to the message's mark."""
    cut = [
        f"{mark.get('in')} {mark.get('column', '')}".strip() + f" of {mark.get('characters')} characters"
        for mark in (marks if isinstance(marks, list) else [])
        if isinstance(mark, dict)
    ]
    return (
        f"the message was larger than its topic takes, and has only the beginning of {', '.join(cut)[:200]}: "
        f"subscribe again with --oversize split, or a larger max.message.bytes"
    )


def _text(told: dict[str, Any], key: str, *, empty: bool = False) -> str:
    found = told.get(key)
    if not isinstance(found, str) or not (found or empty):
        raise BadMessageError(f"the value has no text {key}")
    return found


# --- formats ----------------------------------------------------------------------------------------------------------


def _of_tdsql(told: dict[str, Any], *, copied: bool) -> Asked | None:
    kind = told["eventtypestr"]
    if kind in ("gtid", "xid"):
        return None
    if kind == "query":
        sql, table = _text(told, "sql"), _text(told, "table", empty=True)
        if copied and table and sql == f"TRUNCATE TABLE {name_quoted(table)}":
            return Emptied(_text(told, "db"), table)
        return Ddl(_text(told, "db", empty=True), sql)
    images = {"insert": (False, True), "update": (True, True), "delete": (True, False)}.get(str(kind))
    if images is None:
        raise BadMessageError(f"the eventtypestr {kind!r} is not known")
    before, after = (
        _literals(told, key) if wanted else None for key, wanted in zip(("where", "field"), images, strict=True)
    )
    return Row(_text(told, "db"), _text(told, "table"), before, after)


def _literals(told: dict[str, Any], key: str) -> list[str]:
    found = told.get(key)
    if not isinstance(found, list) or not found:
        raise BadMessageError(f"the value has no list {key}")
    for each in found:
        if not isinstance(each, str) or _LITERAL.fullmatch(each) is None:
            raise BadMessageError(f"{key} has a value that is not one SQL literal: {str(each)[:100]!r}")
    return found


def _of_debezium(told: dict[str, Any]) -> Asked | None:
    source = told.get("source")
    if not isinstance(source, dict):
        raise BadMessageError("the value has no source: a Debezium message without its envelope cannot be applied")
    if "ddl" in told:
        return Ddl(_text(told, "databaseName", empty=True), _text(told, "ddl"))
    op = told["op"]
    database, table = _text(source, "db"), _text(source, "table")
    if op == "t":
        return Emptied(database, table)
    if op == "m":
        return None
    if not isinstance(op, str) or op not in ("c", "r", "u", "d"):
        raise BadMessageError(f"the op {op!r} is not known")
    before = _values(told, "before") if op in "ud" else None
    return Row(database, table, before, _values(told, "after") if op != "d" else None)


def _of_maxwell(told: dict[str, Any]) -> Asked | None:
    kind = told["type"]
    if kind in ("bootstrap-start", "bootstrap-complete"):
        return None
    if kind == "ddl":
        return Ddl(_text(told, "database", empty=True), _text(told, "sql"))
    database, table = _text(told, "database"), _text(told, "table")
    if kind == "table-truncate":
        return Emptied(database, table)
    if kind not in ("insert", "bootstrap-insert", "update", "delete"):
        raise BadMessageError(f"the type {kind!r} is not known")
    data = _values(told, "data")
    if kind == "delete":
        return Row(database, table, data, None)
    if kind == "update":
        return Row(database, table, {**data, **_values(told, "old")}, data)
    return Row(database, table, None, data)


def _values(told: dict[str, Any], key: str) -> dict[str, Any]:
    found = told.get(key)
    if not isinstance(found, dict):
        raise BadMessageError(f"the value has no object {key}: the whole row is needed")
    return found


# --- values -----------------------------------------------------------------------------------------------------------


def literals_of(image: list[str] | dict[str, Any], columns: Sequence[Known], table: str) -> list[str]:
    """The literals of a row, in the order of the target's columns. Raises BadMessageError."""
    if isinstance(image, list):
        if len(image) != len(columns):
            raise BadMessageError(f"{table} has {len(columns)} columns in the target, and the row has {len(image)}")
        return image
    if image.keys() != {column.name for column in columns}:
        names = ", ".join(sorted(image.keys() ^ {column.name for column in columns}))
        raise BadMessageError(f"{table} in the target and the row do not both have the column(s) {names}")
    return [_literal(image[column.name], column, table) for column in columns]


def _literal(value: Any, column: Known, table: str) -> str:
    found = None
    kind = column.kind
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        pass
    elif isinstance(value, int):
        if kind in ("enum", "set", "float", "double") or kind.endswith("int"):
            found = str(value)
        elif kind == "year":
            found = str(value) if value else "'0000'"
        elif kind == "bit" and value >= 0:
            found = f"b'{value:b}'"
    elif isinstance(value, float):
        found = repr(value) if kind in ("float", "double") and _LITERAL.fullmatch(repr(value)) else None
    elif isinstance(value, str):
        found = _text_literal(value, column, table)
    if found is None:
        raise BadMessageError(f"{table}: {str(value)[:50]!r} is not a value of {column.name}, which is {column.full}")
    return found


def _text_literal(value: str, column: Known, table: str) -> str | None:
    kind = column.kind
    if kind == "decimal":
        return value if _NUMBER.fullmatch(value) else None
    if kind in _TIMES or kind in ("enum", "set"):
        return literal(value)
    if column.charset in _CERTAIN:
        return literal(value)
    if column.charset != "binary":
        raise BadMessageError(
            f"{table}: it is unknown whether the text of {column.name} is text or bytes, as its character set is "
            f"{column.charset}: apply the format tdsql"
        )
    try:
        return literal(base64.b64decode(value, validate=True))
    except ValueError:  # bad base64, or characters that base64 does not have
        return None
