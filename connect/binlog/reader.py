"""From events to changes, without I/O: groups of events (transactions), their rows, and the place after each.

    event -> Begin | Change | Statement | End | None        `Reader.read`, one event at a time

A group begins with its GTID and ends with a commit, or with its only event. If a table map does not say what the
columns were, the reader stops. With `any_metadata` it uses the columns as they are now: `read` raises
TableUnknownError, and the caller asks the server, passes the answer to `tell`, and calls `read` again.
An event that cannot be understood raises EventError: a change is never left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from barnabas.connect.binlog import events
from barnabas.connect.binlog.charsets import decoder
from barnabas.connect.binlog.columns import Layout, Told, Value, layout_of, needs_telling, whatever
from barnabas.connect.binlog.events import EventError, Header, MariaGtid, Query, Table
from barnabas.connect.binlog.gtid_set import decoded, gtid_set_of
from barnabas.connect.binlog.payload import events_in
from barnabas.connect.mysql.packets import lenenc_int

_MOST_TABLES = 4096
_IMAGES = {events.WRITE: 1, events.UPDATE: 2, events.DELETE: 1}
_STATEMENT_PARTS = frozenset(
    {events.INTVAR, events.RAND, events.USER_VAR, events.BEGIN_LOAD_QUERY, events.EXECUTE_LOAD_QUERY}
)
_CHANGES = (b"insert", b"update", b"delete", b"replace", b"load")
_AS_STATEMENT = (
    "a change was logged as a statement, not as rows: set binlog_format=ROW on the server (and in every session), and "
    "take a new snapshot of {}"
)


class Place(msgspec.Struct, frozen=True):
    """How far a reader is: the GTIDs up to which everything is done, and the file and the position after them.

    For MariaDB, the GTIDs are the last one of each domain. For MySQL they are a set, empty if a transaction has no
    GTID.
    """

    gtids: str
    file: str
    position: int


class Begin(NamedTuple):
    """A group begins. `before` is the place after all groups before it; `timestamp` is in seconds since 1970.

    `fingerprint` distinguishes this event from another one at `start`, its position in the file of `before`.
    """

    gtid: str
    timestamp: int
    before: Place
    start: int
    fingerprint: int


class Change(NamedTuple):
    """The rows of one event. A row has its image after an insert, its image before a delete, or both for an update."""

    kind: int
    layout: Layout
    rows: list[tuple[list[Value], ...]]
    timestamp: int


class Statement(NamedTuple):
    """A statement that does not change rows: DDL."""

    database: str
    sql: str
    timestamp: int


class End(NamedTuple):
    """A group ends. `xid` is the storage engine's transaction number, or None."""

    xid: int | None
    timestamp: int
    after: Place
    is_prepared: bool = False  # XA PREPARE: a later group commits it or rolls it back


Item = Begin | Change | Statement | End


class TableUnknownError(Exception):
    """The binary log does not say what the columns of a table are."""

    def __init__(self, database: str, name: str) -> None:
        super().__init__(f"{database}.{name}")
        self.database, self.name = database, name


class Reader:
    """The state between events. `charsets`: the server's collations by number; `exact`: those without equal texts.

    `any_metadata`: if a table map does not describe its columns, ask for them. `chosen` says for which tables the
    values are wanted; for the others, rows are only counted and columns have no names.
    """

    def __init__(
        self,
        place: Place,
        charsets: dict[int, str],
        *,
        mariadb: bool,
        exact: frozenset[int] = frozenset(),
        any_metadata: bool = False,
        chosen: Callable[[str, str], bool] = lambda database, name: True,
    ) -> None:
        self._charsets, self._mariadb, self._exact = charsets, mariadb, exact
        self._any_metadata, self._chosen = any_metadata, chosen
        self.file, self.position = place.file, place.position
        self._gtids = _domains(place.gtids) if mariadb else {}
        #: The GTID set of MySQL, if all transactions so far have GTIDs.
        self._executed = gtid_set_of(place.gtids) if place.gtids and not mariadb else None
        self._checksums = False
        self._tables: dict[int, Layout] = {}
        self._layouts: dict[bytes, Layout] = {}
        self._told: dict[tuple[str, str], list[Told]] = {}
        self._gtid: MariaGtid | None = None
        self._named = ""
        self._in_group = False
        self._begun = False  # MySQL: a BEGIN was seen

    @property
    def place(self) -> Place:
        """The place after the last group that has ended."""
        if not self._mariadb:
            return Place(str(self._executed or ""), self.file, self.position)
        return Place(",".join(str(self._gtids[key]) for key in sorted(self._gtids)), self.file, self.position)

    def has_reached(self, target: Place) -> bool:
        """Whether all groups up to a place of the same server have been read."""
        if self._in_group:
            return False
        if target.gtids and not self._mariadb and self._executed is not None:
            return self._executed.has(gtid_set_of(target.gtids))
        if target.gtids and self._mariadb:
            wanted = _domains(target.gtids)
            none = MariaGtid(0, 0, -1, 0)
            return all(self._gtids.get(key, none).sequence >= each.sequence for key, each in wanted.items())
        return (len(self.file), self.file, self.position) >= (len(target.file), target.file, target.position)

    def tell(self, database: str, name: str, columns: list[Told]) -> None:
        """Pass in the columns that the server gives for a table."""
        self._told[database, name] = columns

    def parts(self, event: bytes, at: int = 0) -> Iterator[tuple[bytes, int]]:
        """The events to read in a received one, with their positions: itself, or those it holds. Raises EventError."""
        header = events.header_of(event, at)
        if header.kind != events.TRANSACTION_PAYLOAD:
            yield event, at
            return
        body = events.body_of(event, at, header, checksum=self._checksums)
        for inner in events_in(body, header, checksum=self._checksums):
            yield inner, 0

    def read(self, event: bytes, at: int = 0) -> Item | None:
        """Read the event that begins at `at`. Raises EventError, TableUnknownError."""
        header = events.header_of(event, at)
        kind = header.kind
        if kind == events.ROTATE and not header.timestamp:
            self._rotate(events.made_up(event, at, header))
            return None
        if kind in (events.HEARTBEAT, events.HEARTBEAT_V2):
            return None
        if kind == events.FORMAT_DESCRIPTION:
            self._checksums = events.has_checksums(event, at)
            if not header.end or not self._in_group:
                self._tables.clear()
            return None
        body = events.body_of(event, at, header, checksum=self._checksums)
        try:
            return self._item(header, body)
        except EventError as error:
            raise EventError(f"{error} ({self.file}, before position {header.end})") from None

    def _rotate(self, body: bytes) -> None:
        self.file, self.position = events.rotate_of(body)

    def _item(self, header: Header, body: bytes) -> Item | None:
        kind = header.kind
        rows = events.ROWS.get(kind)
        if rows is not None:
            return self._change(header, body, *rows)
        if kind == events.PARTIAL_UPDATE:
            return self._change(header, body, events.UPDATE, True, False)
        if kind == events.TABLE_MAP:
            self._map(body)
            return None
        if kind == events.GTID:
            return self._begin_maria(header, body)
        if kind == events.MYSQL_GTID:
            return self._begin(header, body, events.mysql_gtid_of(body))
        if kind == events.ANONYMOUS_GTID:
            self._executed = None
            return self._begin(header, body, "")
        if kind in (events.QUERY, events.QUERY_COMPRESSED):
            return self._query(header, events.query_of(body, compressed=kind == events.QUERY_COMPRESSED))
        if kind == events.XID:
            return self._end(header, events.xid_of(body))
        if kind == events.XA_PREPARE:
            return self._end(header, None, is_prepared=body[:1] != b"\x01")
        if kind == events.ROTATE:
            self._rotate(body)
            return None
        if kind in _STATEMENT_PARTS:
            raise EventError(_AS_STATEMENT.format("what it changed"))
        if kind == events.PREVIOUS_GTIDS and self._executed is None and not self._mariadb and not self._in_group:
            self._executed = decoded(body)
        if kind in events.IGNORED or header.flags & events.IGNORABLE_FLAG:
            if not self._in_group and header.end:
                self.position = header.end
            return None
        raise EventError(_REFUSED.get(kind, f"an event of type {kind}, which is not known"))

    # --- groups -------------------------------------------------------------------------------------------------------

    def _begin_maria(self, header: Header, body: bytes) -> Begin:
        self._gtid = events.maria_gtid_of(body, header)
        return self._begin(header, body, str(self._gtid))

    def _begin(self, header: Header, body: bytes, gtid: str) -> Begin:
        if self._in_group:
            raise EventError(f"the group {gtid or 'after it'} begins before {self._named} has ended")
        self._named = gtid or f"{self.file}:{self.position}"
        self._in_group, self._begun = True, False
        return Begin(self._named, header.timestamp, self.place, header.end - header.size, fingerprint_of(header, body))

    def _end(self, header: Header, xid: int | None, *, is_prepared: bool = False) -> End:
        if not self._in_group:
            raise EventError("a commit without its beginning")
        self._in_group = False
        self.position = header.end
        if self._gtid is not None:
            self._gtids[self._gtid.domain] = self._gtid
        if self._executed is not None:
            server, _, number = self._named.partition(":")
            self._executed.add(server, int(number), int(number) + 1)
        self._tables.clear()
        return End(xid, header.timestamp, self.place, is_prepared)

    def _query(self, header: Header, query: Query) -> Item | None:
        sql = _without_comments(query.sql)
        first = sql.split(None, 1)[0].lower().rstrip(b";") if sql.strip() else b""
        if not self._in_group and not self._mariadb:
            raise EventError("a statement without a GTID: MySQL before 5.7 is not supported")
        if first == b"begin":
            self._begun = True
            return None
        if first == b"commit":
            return self._end(header, None)
        if first == b"rollback" and not _names_a_savepoint(sql):
            return self._end(header, None)
        if first in (b"savepoint", b"release", b"rollback") or sql[:6].lower() in (b"xa end", b"xa sta"):
            return None
        if first in _CHANGES:
            raise EventError(_AS_STATEMENT.format("the tables that it changed"))
        return Statement(query.database, self._text(query), header.timestamp)

    def ends_alone(self, item: Item | None) -> bool:
        """Whether the statement just read ends its group. No event says so."""
        if not isinstance(item, Statement):
            return False
        return self._gtid.is_standalone if self._gtid is not None else not self._begun

    def end_alone(self, event: bytes, at: int = 0) -> End:
        """The End of such a group."""
        return self._end(events.header_of(event, at), None)

    def _text(self, query: Query) -> str:
        charset = self._charsets.get(query.charset, "utf8mb4")
        text = decoder(charset)(query.sql)
        return text if isinstance(text, str) else query.sql.decode("utf-8", "backslashreplace")

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _map(self, body: bytes) -> None:
        number = events.table_id_of(body)
        known = self._layouts.get(body)
        if known is None:
            table = events.table_of(body)
            told = self._told_of(table) if needs_telling(table) else None
            known = layout_of(table, self._charsets, told, mariadb=self._mariadb, exact=self._exact)
            if len(self._layouts) >= _MOST_TABLES:
                del self._layouts[next(iter(self._layouts))]
            self._layouts[body] = known
        self._tables[number] = known

    def _told_of(self, table: Table) -> list[Told]:
        """The columns to assume for a table whose map does not describe them. Raises EventError, TableUnknownError."""
        if not self._chosen(table.database, table.name):
            return whatever(table)
        if not self._any_metadata:
            raise EventError(_NOT_FULL.format(f"{table.database}.{table.name}"))
        told = self._told.get((table.database, table.name))
        if told is None:
            raise TableUnknownError(table.database, table.name)
        return told

    def forget(self) -> None:
        """Forget what the server told of tables: DDL has changed some, so it may no longer hold."""
        self._told.clear()
        self._layouts.clear()

    def _change(self, header: Header, body: bytes, kind: int, is_second: bool, compressed: bool) -> Change:
        layout = self._tables.get(events.table_id_of(body))
        if layout is None:
            raise EventError(f"rows of a table ({events.table_id_of(body)}) that no event has described")
        at = 8
        if is_second:
            at += int.from_bytes(body[at : at + 2], "little")
        count, at = lenenc_int(body, at)
        if count != len(layout.columns):
            raise EventError(
                f"rows of {count} columns, where {layout.database}.{layout.table} has {len(layout.columns)}"
            )
        size = (count + 7) // 8
        images = _IMAGES[kind]
        for _ in range(images):
            present = int.from_bytes(body[at : at + size], "little")
            if present != (1 << count) - 1:
                raise EventError(
                    f"a change of {layout.database}.{layout.table} does not have all columns: set "
                    "binlog_row_image=FULL on the server (and in every session)"
                )
            at += size
        if compressed:
            body, at = events.inflated(body, at), 0
        is_partial = header.kind == events.PARTIAL_UPDATE
        rows = layout.partial_rows(body, at) if is_partial else layout.rows(body, at, images=images)
        return Change(kind, layout, list(rows), header.timestamp)


_NOT_FULL = (
    "rows of {0} were logged before binlog_row_metadata was FULL (or in a transaction that had begun before), and "
    "nothing says what its columns were: start again behind them, with a new name (--name) and --snapshot initial; "
    "or let --row-metadata any take what they are now, until these rows are read"
)
_REFUSED = {
    events.START_ENCRYPTION: "the binary log comes encrypted, which a server does not send to replicas",
    events.INCIDENT: "the server says that changes are missing from its binary log (an incident event)",
    events.TAGGED_GTID: "GTIDs with tags are not supported",
}


def fingerprint_of(header: Header, body: bytes) -> int:
    """A number that distinguishes a group's first event from others."""
    return zlib.crc32(body, zlib.crc32(f"{header.timestamp} {header.kind} {header.server_id}".encode()))


def _domains(text: str) -> dict[int, MariaGtid]:
    """A MariaDB GTID position, by domain. Raises ValueError."""
    found = {}
    for part in filter(None, text.split(",")):
        domain, server, sequence = (int(number) for number in part.strip().split("-"))
        found[domain] = MariaGtid(domain, server, sequence, 0)
    return found


def _without_comments(sql: bytes) -> bytes:
    """The statement from its first word on. The content of executable comments counts."""
    sql = sql.lstrip()
    while True:
        if sql.startswith((b"/*!", b"/*M!")):
            return sql.partition(b" ")[2].lstrip()
        if sql.startswith(b"/*"):
            sql = sql.partition(b"*/")[2].lstrip()
        elif sql.startswith((b"--", b"#")):
            sql = sql.partition(b"\n")[2].lstrip()
        else:
            return sql


def _names_a_savepoint(sql: bytes) -> bool:
    return b" to " in sql.lower()[:40]
