"""What subscribers read: one JSON text for each change, in one of the known formats.

- `tdsql`: the subscription of TDSQL and TencentDB: `where` and `field` are the row before and after, as SQL literals.
- `debezium`: `before`, `after`, `source`, `op`, without schemas.
- `maxwell`: `data`, `old`, `type`, `xid`, `commit`.
The latter two write bytes as base64 and decimals as texts, so that nothing is rounded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from barnabas.connect.binlog.charsets import Undecoded
from barnabas.connect.binlog.columns import Layout, Value
from barnabas.connect.binlog.events import DELETE, UPDATE, WRITE
from barnabas.connect.binlog.reader import Change, Statement
from barnabas.connect.mysql.connection import name_quoted

FORMATS = ("tdsql", "debezium", "maxwell")
#: The kind of a row that existed when the copy was made; no event has this number.
READ = 0
_NAMES = {WRITE: "insert", UPDATE: "update", DELETE: "delete", READ: "insert"}
_MAXWELL_NAMES = {**_NAMES, READ: "bootstrap-insert"}
_OPS = {READ: "r", WRITE: "c", UPDATE: "u", DELETE: "d"}
_XID, _QUERY, _GTID = 16, 2, 33
_encode = msgspec.json.Encoder().encode
Images = tuple[Sequence[Value], ...]


class Group(NamedTuple):
    """What the messages of a group share. `timestamp` is in seconds; `host` and `port` are the server's."""

    gtid: str
    timestamp: int
    host: str
    port: int
    server: str
    file: str
    position: int


class Message(NamedTuple):
    """A message that has no topic yet. `key` names the row; None if the table has no primary key."""

    database: str
    table: str
    key: bytes | None
    value: bytes | None


def key_of(layout: Layout, row: Sequence[Value]) -> bytes | None:
    """The primary key of a row, as a JSON object."""
    if not layout.key:
        return None
    return _encode({layout.columns[number].name: plain(row[number]) for number in layout.key})


def plain(value: Value) -> Any:
    """A value as JSON represents it."""
    if type(value) is bytes:
        return base64.b64encode(value).decode()
    if isinstance(value, Undecoded):
        return base64.b64encode(value.data).decode()
    return value


def before_and_after(kind: int, images: Images) -> tuple[Sequence[Value] | None, Sequence[Value] | None]:
    """The row before and after a change."""
    if kind in (WRITE, READ):
        return None, images[0]
    if kind == DELETE:
        return images[0], None
    return images[0], images[1]


class Tdsql:
    """One JSON object for each change, and for the begin and the end of its transaction."""

    #: Begin, end and statements are messages, too.
    frames = True

    def begin(self, group: Group, index: int) -> bytes | None:
        return _encode(self._common(group, index, _GTID, "gtid", "", ""))

    def end(self, group: Group, index: int, xid: int | None) -> bytes | None:
        if xid is None:
            return None
        return _encode({**self._common(group, index, _XID, "xid", "", ""), "xid": str(xid)})

    def statement(self, group: Group, index: int, statement: Statement) -> bytes:
        common = self._common(group, index, _QUERY, "query", statement.database, "")
        return _encode({**common, "sql": statement.sql})

    def change(self, group: Group, change: Change) -> Callable[[Images, int], bytes]:
        """A function that makes the messages of an event's rows."""
        layout, kind = change.layout, change.kind
        common = self._common(group, 0, kind or WRITE, _NAMES[kind], layout.database, layout.table)

        def message(images: Images, index: int) -> bytes:
            before, after = before_and_after(kind, images)
            common["event_index"] = str(index)
            common["where"] = [] if before is None else layout.literals(before)
            common["field"] = [] if after is None else layout.literals(after)
            return _encode(common)

        return message

    def emptied(self, group: Group, index: int, database: str, table: str) -> bytes:
        """A message that voids what was copied of a table, because its copy starts again."""
        common = self._common(group, index, _QUERY, "query", database, table)
        return _encode({**common, "sql": f"TRUNCATE TABLE {name_quoted(table)}"})

    def copying(self, group: Group, index: int, database: str, table: str, *, done: bool) -> bytes | None:
        """The begin or end message of a table's copy, if the format has one."""
        return None

    def _common(self, group: Group, index: int, kind: int, name: str, database: str, table: str) -> dict[str, Any]:
        return {
            "logtype": "mysqlbinlog",
            "eventtype": kind,
            "eventtypestr": name,
            "db": database,
            "table": table,
            "localip": group.host,
            "localport": group.port,
            "begintime": group.timestamp,
            "gtid": group.gtid,
            "event_index": str(index),
        }


class _RowsOnly:
    """A format without messages for the begin and end of a transaction."""

    frames = False

    def begin(self, group: Group, index: int) -> bytes | None:
        return None

    def end(self, group: Group, index: int, xid: int | None) -> bytes | None:
        return None

    def copying(self, group: Group, index: int, database: str, table: str, *, done: bool) -> bytes | None:
        return None


class Debezium(_RowsOnly):
    """Debezium's envelope, as with `schemas.enable=false`."""

    def statement(self, group: Group, index: int, statement: Statement) -> bytes:
        source = self._source(group, statement.database, None, 0)
        return _encode({"source": source, "databaseName": statement.database, "ddl": statement.sql})

    def change(self, group: Group, change: Change) -> Callable[[Images, int], bytes]:
        layout, kind = change.layout, change.kind
        names = [column.name for column in layout.columns]

        def message(images: Images, index: int) -> bytes:
            before, after = before_and_after(kind, images)
            return _encode(
                {
                    "before": None if before is None else _named(names, before),
                    "after": None if after is None else _named(names, after),
                    "source": self._source(group, layout.database, layout.table, index, copied=kind == READ),
                    "op": _OPS[kind],
                    "ts_ms": change.timestamp * 1000,
                }
            )

        return message

    def emptied(self, group: Group, index: int, database: str, table: str) -> bytes:
        source = self._source(group, database, table, index, copied=True)
        return _encode({"before": None, "after": None, "source": source, "op": "t", "ts_ms": group.timestamp * 1000})

    def _source(
        self, group: Group, database: str, table: str | None, index: int, *, copied: bool = False
    ) -> dict[str, Any]:
        return {
            "connector": "mysql",
            "name": group.server,
            "ts_ms": group.timestamp * 1000,
            "snapshot": "true" if copied else "false",
            "db": database,
            "table": table,
            "gtid": group.gtid,
            "file": group.file,
            "pos": group.position,
            "row": index,
        }


class Maxwell(_RowsOnly):
    """Maxwell's JSON. No row has `commit`: when it writes a row, it cannot know if it is the last."""

    def statement(self, group: Group, index: int, statement: Statement) -> bytes:
        told = {"type": "ddl", "database": statement.database, "ts": statement.timestamp * 1000}
        return _encode({**told, "sql": statement.sql, "gtid": group.gtid})

    def change(self, group: Group, change: Change) -> Callable[[Images, int], bytes]:
        layout, kind = change.layout, change.kind
        names = [column.name for column in layout.columns]
        common: dict[str, Any] = {
            "database": layout.database,
            "table": layout.table,
            "type": _MAXWELL_NAMES[kind],
            "ts": change.timestamp,
            "gtid": group.gtid,
        }

        def message(images: Images, index: int) -> bytes:
            before, after = before_and_after(kind, images)
            told = {**common, "xoffset": index, "data": _named(names, images[-1])}
            if before is not None and after is not None:
                told["old"] = {
                    name: plain(old) for name, old, new in zip(names, before, after, strict=True) if old != new
                }
            return _encode(told)

        return message

    def emptied(self, group: Group, index: int, database: str, table: str) -> bytes:
        told = {"type": "table-truncate", "database": database, "table": table, "ts": group.timestamp}
        return _encode({**told, "gtid": group.gtid, "xoffset": index})

    def copying(self, group: Group, index: int, database: str, table: str, *, done: bool) -> bytes | None:
        kind = "bootstrap-complete" if done else "bootstrap-start"
        told = {"database": database, "table": table, "type": kind, "ts": group.timestamp, "data": {}}
        return _encode({**told, "gtid": group.gtid, "xoffset": index})


def _named(names: Sequence[str], row: Sequence[Value]) -> dict[str, Any]:
    return {name: plain(value) for name, value in zip(names, row, strict=True)}


Format = Tdsql | Debezium | Maxwell


def format_of(name: str) -> Format:
    """A format by its name."""
    kinds: dict[str, type[Format]] = {"tdsql": Tdsql, "debezium": Debezium, "maxwell": Maxwell}
    return kinds[name]()
