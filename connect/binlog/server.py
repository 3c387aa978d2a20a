"""What a reader asks the server: whether its binary log is readable, from where, and what its columns are."""

from __future__ import annotations

import re

import trio

from barnabas.connect.binlog import events
from barnabas.connect.binlog.columns import Told, is_exact
from barnabas.connect.binlog.gtid_set import gtid_set_of
from barnabas.connect.binlog.logged import told_of
from barnabas.connect.binlog.reader import Place, fingerprint_of
from barnabas.connect.binlog.selected import Known
from barnabas.connect.mysql.connection import CONNECT_SECONDS, Connection, columns_of, connect, quoted
from barnabas.connect.mysql.packets import ServerError
from barnabas.connect.mysql.source import Source

#: The server sends three heartbeats in this time. If not a byte comes, it is frozen or gone.
SILENCE_SECONDS = 15.0
_CHECKED = {"log_bin": ("ON", "1"), "binlog_format": ("ROW",), "binlog_row_image": ("FULL",)}
_PURGED = re.compile("purged|first log file|Could not find first", re.IGNORECASE)
_FATAL_1236 = 1236
#: The column with the GTID set in MySQL's answer about the end of its binary log.
_EXECUTED = 4


class RefusedError(Exception):
    """The server's binary log cannot be read as configured; the message has the remedy. A retry does not help."""


class Server:
    """A server whose binary log is read."""

    def __init__(
        self, source: Source, server_id: int, silence: float = SILENCE_SECONDS, *, any_metadata: bool = False
    ) -> None:
        """`any_metadata`: take what the binary log does not say about columns from their current state."""
        self.source, self.server_id, self.silence, self.any_metadata = source, server_id, silence, any_metadata
        self.mariadb = True
        self.version = ""
        #: The character set of each collation, and the collations in which no two different texts are equal.
        self.charsets: dict[int, str] = {}
        self.exact: frozenset[int] = frozenset()
        #: MySQL: whether every transaction has a GTID.
        self.has_gtids = False

    async def open(self) -> Connection:
        """Open a connection, and learn all that a reader needs to know. Raises RefusedError, LostError, ServerError."""
        connection = await connect(self.source, patience=min(CONNECT_SECONDS, self.silence))
        try:
            await self._look(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _look(self, connection: Connection) -> None:
        self.mariadb, self.version = connection.greeting.is_mariadb, connection.greeting.version
        names = ", ".join(quoted(name) for name in (*_CHECKED, "binlog_row_metadata", "server_id", "gtid_mode"))
        told = columns_of(await connection.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
        for name, wanted in _CHECKED.items():
            if told.get(name, wanted[0]).upper() not in wanted:
                raise RefusedError(
                    f"{self.source} has {name}={told[name]}: set {name}={wanted[0]}, and restart it or its sessions"
                )
        if told.get("server_id") == str(self.server_id):
            raise RefusedError(
                f"{self.source} itself has the server id {self.server_id}: give another one with --server-id"
            )
        metadata = told.get("binlog_row_metadata", "")
        if metadata.upper() != "FULL" and not self.any_metadata:
            raise RefusedError((_NOT_FULL if metadata else _NO_METADATA).format(self.source, metadata))
        self.has_gtids = told.get("gtid_mode", "").upper() == "ON"
        view = "COLLATION_CHARACTER_SET_APPLICABILITY" if self.mariadb else "COLLATIONS"
        rows = await connection.query(f"SELECT ID, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.{view}")
        self.charsets = {int(row[0]): row[1] for row in rows if row[0] and row[1]}
        self.exact = frozenset(int(row[0]) for row in rows if row[0] and is_exact(row[2] or ""))

    async def now(self, connection: Connection) -> Place:
        """The end of the binary log. Raises ServerError."""
        statement = "SHOW MASTER STATUS" if self.mariadb or self.version < "8.4" else "SHOW BINARY LOG STATUS"
        rows = await connection.query(statement)
        if not rows:
            raise RefusedError(f"{self.source} has no binary log: set log_bin")
        file, position = rows[0][0] or "", int(rows[0][1] or 4)
        gtids = ""
        if self.mariadb:
            gtids = (await connection.query(f"SELECT BINLOG_GTID_POS({quoted(file)}, {position})"))[0][0] or ""
        elif self.has_gtids and len(rows[0]) > _EXECUTED:
            gtids = "".join((rows[0][_EXECUTED] or "").split())
        return Place(gtids, file, position)

    async def snapshot(self, connection: Connection) -> Place:
        """Begin a transaction that sees one moment, and return that moment's place. Raises ServerError."""
        await connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if not self.mariadb:
            await connection.query("FLUSH TABLES WITH READ LOCK")
        await connection.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        if not self.mariadb:
            place = await self.now(connection)
            await connection.query("UNLOCK TABLES")
            return place
        told = columns_of(await connection.query("SHOW STATUS LIKE 'Binlog_snapshot_%'"))
        file, position = told["binlog_snapshot_file"], int(told["binlog_snapshot_position"])
        gtids = (await connection.query(f"SELECT BINLOG_GTID_POS({quoted(file)}, {position})"))[0][0] or ""
        return Place(gtids, file, position)

    async def oldest(self, connection: Connection) -> Place:
        """The beginning of the oldest existing file. Raises ServerError."""
        rows = await connection.query("SHOW BINARY LOGS")
        file = rows[0][0] or ""
        gtids = ""
        if self.mariadb:
            gtids = (await connection.query(f"SELECT BINLOG_GTID_POS({quoted(file)}, 4)"))[0][0] or ""
        return Place(gtids, file, 4)

    async def begin(self, connection: Connection, place: Place) -> None:
        """Request the events from a place on: by GTID if there are any, otherwise by file and position."""
        await connection.query("SET @master_binlog_checksum = @@global.binlog_checksum")
        await connection.query(f"SET @master_heartbeat_period = {int(self.silence / 3 * 10**9)}")
        if self.mariadb:
            await connection.query("SET @mariadb_slave_capability = 4")
            if place.gtids or not place.file:
                await connection.query(f"SET @slave_connect_state = {quoted(place.gtids)}")
                await connection.query("SET @slave_gtid_strict_mode = 1")
                await connection.dump("", 4, self.server_id)
                return
        elif place.gtids:
            try:
                executed = gtid_set_of(place.gtids)
            except ValueError as error:
                raise RefusedError(
                    f"{error}: --start is `now`, `oldest`, or of MySQL a GTID set such as "
                    "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
                ) from None
            await connection.dump_after(executed.encoded(), self.server_id)
            return
        await connection.dump(place.file, place.position, self.server_id)

    async def check_history(self, file: str, start: int, fingerprint: int) -> str | None:
        """Check that the event where a group began is still the one that was read.

        Returns a warning if that cannot be known.
        After RESET MASTER, or on another server, GTIDs can be the same and mean other changes. Raises RefusedError.
        """
        connection = await self.open()
        try:
            await connection.query("SET @master_binlog_checksum = @@global.binlog_checksum")
            await connection.query("SET @mariadb_slave_capability = 4")
            await connection.dump(file, start, self.server_id)
            checksums = False
            with trio.fail_after(self.silence):
                while True:
                    event = await connection.event()
                    header = events.header_of(event, 1)
                    if header.kind == events.FORMAT_DESCRIPTION:
                        checksums = events.has_checksums(event, 1)
                    elif header.kind == events.ROTATE and not header.timestamp:
                        continue
                    elif header.kind in (events.HEARTBEAT, events.HEARTBEAT_V2):
                        raise RefusedError(_OTHER_HISTORY.format(self.source, file, start))
                    else:
                        body = events.body_of(event, 1, header, checksum=checksums)
                        if header.end - header.size != start or fingerprint_of(header, body) != fingerprint:
                            raise RefusedError(_OTHER_HISTORY.format(self.source, file, start))
                        return None
        except ServerError as error:
            if error.code == _FATAL_1236 and _PURGED.search(error.message):
                return f"{file} is purged, so it cannot be checked whether the server's history is still the same"
            raise RefusedError(_OTHER_HISTORY.format(self.source, file, start)) from None
        except (events.EventError, trio.TooSlowError):
            raise RefusedError(_OTHER_HISTORY.format(self.source, file, start)) from None
        finally:
            await connection.close()

    async def columns(self, database: str, table: str) -> list[Told]:
        """The current columns of a table. Raises RefusedError, ServerError."""
        connection = await connect(self.source)
        try:
            known = await known_columns(connection, database, table)
        finally:
            await connection.close()
        if not known:
            raise RefusedError(
                f"nothing says what the columns of {database}.{table} were, and the table does not exist any more: "
                "run SET GLOBAL binlog_row_metadata = 'FULL' on the server, and start after its last change (--start "
                "now)"
            )
        return [told_of(each) for each in known]


async def known_columns(connection: Connection, database: str, table: str) -> list[Known]:
    """What the server says about a table's columns; empty if there is no such table. Raises ServerError."""
    of = f"WHERE TABLE_SCHEMA = {quoted(database)} AND TABLE_NAME = {quoted(table)}"
    rows = await connection.query(
        "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, EXTRA, "
        "CHARACTER_OCTET_LENGTH, IS_NULLABLE "
        f"FROM information_schema.COLUMNS {of} ORDER BY ORDINAL_POSITION"
    )
    keys = await connection.query(
        f"SELECT COLUMN_NAME, SEQ_IN_INDEX FROM information_schema.STATISTICS {of} AND INDEX_NAME = 'PRIMARY'"
    )
    places = {name: int(place or 0) for name, place in keys}
    return [
        Known(
            name or "",
            (kind or "").lower(),
            full or "",
            charset or "binary",
            collation or "",
            values_of(full or ""),
            places.get(name, 0),
            "GENERATED" in (extra or "").upper().replace("DEFAULT_GENERATED", ""),
            int(octets or 0),
            nullable == "YES",
        )
        for name, kind, full, charset, collation, extra, octets, nullable in rows
    ]


_NOT_FULL = (
    "{0} has binlog_row_metadata={1}, so its binary log does not say what the columns of a row were: run SET GLOBAL "
    "binlog_row_metadata = 'FULL' there, and set it in its configuration; --row-metadata any takes what they are now"
)
_NO_METADATA = (
    "{0} is older than MariaDB 10.5 or MySQL 8.0.1, so its binary log does not say what the columns of a row were: "
    "--row-metadata any takes what they are now"
)
_OTHER_HISTORY = (
    "the binary log of {0} is not the one that was read (at {1}, position {2}, is another event, or none): it was "
    "reset, or this is another server: start again with --start now, or a new name (--name)"
)


#: A text in a type as information_schema writes it, and an escape for another character in it.
_TEXT, _ESCAPED = re.compile(r"'((?:[^'\\]|''|\\.)*+)'", re.DOTALL), re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPES = {"0": "\0", "n": "\n", "r": "\r"}


def values_of(kind: str) -> tuple[str, ...]:
    """The texts of an ENUM or SET, from its type as information_schema writes it."""
    if not kind.lower().startswith(("enum(", "set(")):
        return ()
    return tuple(
        _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]) if found[1] else "'", text)
        for text in _TEXT.findall(kind)
    )


def is_final(error: ServerError) -> bool:
    """Whether a retry cannot help: a wrong password, a missing privilege, a place that is gone."""
    return error.code in _FINAL


_FINAL = frozenset({1044, 1045, 1142, 1143, 1227, 1236, 1698, 1941, 1942, 1943, 1944, 4052, 4151})
