"""Apply topics to a target server: records -> row changes and statements -> transactions, each with its end position.

An attempt runs until something fails. The next one starts from the positions that the target holds. An error that a
retry cannot mend ends the run. Order is kept within each partition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import trio

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, check
from barnabas.client.fetch import fetch, records_of
from barnabas.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from barnabas.connect.apply.changes import SNAPSHOT, Asked, BadMessageError, Ddl, Emptied, Row, asked_of, literals_of
from barnabas.connect.apply.ddl import SYSTEM, Judged, judged
from barnabas.connect.apply.parts import Parts
from barnabas.connect.apply.positions import Kept, OtherApplierError, Positions, fingerprint
from barnabas.connect.apply.tables import Image, Table
from barnabas.connect.binlog.ddl import tables_of
from barnabas.connect.binlog.naming import Chosen
from barnabas.connect.binlog.server import known_columns
from barnabas.connect.mysql.connection import QUERY_SECONDS, Connection, LostError, connect, name_quoted
from barnabas.connect.mysql.handshake import AuthError
from barnabas.connect.mysql.packets import ProtocolError, ServerError
from barnabas.connect.mysql.source import Source
from barnabas.connect.pauses import Pauses
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Record
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import PartitionData
from barnabas.wire.uuids import encode_uuid

#: The most rows and bytes of one transaction, and of one statement in it.
BATCH_ROWS, BATCH_BYTES = 2000, 1 << 20
_STATEMENT_ROWS, _STATEMENT_BYTES = 500, 256 << 10
#: Locks are held, and progress stays unseen, for at most this time plus one statement.
_TRANSACTION_SECONDS = 1.0
_WAIT_MS = 500
_PATIENCE_SECONDS = 5.0
#: Timeout of a DDL statement: an ALTER TABLE copies a whole table.
_DDL_SECONDS = 24 * 3600.0
#: The transaction was rolled back, or the server is shutting down: a retry is allowed.
_AGAIN = frozenset({1020, 1040, 1053, 1077, 1079, 1205, 1213, 1317, 1927, 1969})
#: A value that the target's column cannot hold exactly is an error; a date, however, may be invalid.
_ROWS_MODE = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'"
#: A statement that the source has run is run here too, even if the source's session was lenient.
_STATEMENTS_MODE = "SET SESSION sql_mode = 'NO_AUTO_VALUE_ON_ZERO'"
#: The session settings that the messages' literals are made for.
_SESSION = (
    _ROWS_MODE,
    "SET SESSION time_zone = '+00:00', foreign_key_checks = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION wait_timeout = 28800",
)
Say = Callable[..., None]


class FinalError(Exception):
    """The applier cannot continue; the message says why, where, and what helps."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What to apply. `ddl`: also run statements. `until_end`: stop at the end that the topics have now.

    `wait`: how many seconds to wait for another process of this name to end.
    """

    name: str
    topics: tuple[str, ...]
    tables: tuple[str, ...] = ()
    ddl: bool = False
    until_end: bool = False
    wait: int = 20


class _Op(NamedTuple):
    """A change of rows. `copied`: it comes from a snapshot, which does not order its tables by their foreign keys."""

    asked: Row | Emptied
    copied: bool
    offset: int


class Applier:
    """`run` works until it is cancelled, reaches the end, or raises FinalError. `rows` counts the applied rows."""

    def __init__(self, servers: str, target: Source, settings: Settings, say: Say) -> None:
        self._servers, self._target, self._settings, self._say = servers, target, settings, say
        self._chosen = Chosen(settings.tables)
        self.rows = 0

    async def run(self) -> None:
        pauses = Pauses()
        while True:
            pauses.begin()
            try:
                await self._attempt()
                return
            except (BadMessageError, OtherApplierError, AuthError) as error:
                raise FinalError(str(error)) from None
            except ServerError as error:
                if error.code not in _AGAIN:
                    raise FinalError(f"{self._target} refuses: {error}") from None
                reason = str(error)
            except (LostError, ProtocolError, ClientError) as error:
                reason = str(error)
            wait = pauses.next()
            self._say("warning", "apply.retrying", name=self._settings.name, error=reason, seconds=round(wait, 1))
            await trio.sleep(wait)

    async def _attempt(self) -> None:
        async with await connect(self._target) as connection:
            for statement in _SESSION:
                await connection.execute(statement)
            positions = Positions(connection, self._settings.name)
            await positions.begin(self._settings.wait)
            with Cluster(self._servers, patience=_PATIENCE_SECONDS) as cluster:
                kept = await self._kept(cluster, positions)
                session = _Session(self._settings, self._chosen, connection, positions, kept, self._count, self._say)
                await self._follow(cluster, session, kept)

    async def _kept(self, cluster: Cluster, positions: Positions) -> dict[TopicPartition, Kept]:
        """The position from which each partition continues. Raises FinalError if one cannot continue."""
        kept = await positions.all()
        found: dict[TopicPartition, Kept] = {}
        for told in await trio.to_thread.run_sync(cluster.metadata, self._settings.topics):
            check(told.error_code, f"Topic {told.name}")
            keys = [(told.name or "", part.partition_index) for part in told.partitions]
            starts = await trio.to_thread.run_sync(list_offsets, cluster, keys, EARLIEST)
            for key in keys:
                start = starts[key]
                if key not in kept:
                    await positions.add(*key, encode_uuid(told.topic_id), start)
                    found[key] = Kept(encode_uuid(told.topic_id), start, None)
                    continue
                found[key] = kept[key]
                if kept[key].topic_id != encode_uuid(told.topic_id):
                    raise FinalError(f"the topic {key[0]} was deleted and made again: start again with another --name")
                if kept[key].next < start:
                    raise FinalError(_LOST.format(*key, kept[key].next, start))
        return found

    async def _follow(self, cluster: Cluster, session: _Session, kept: dict[TopicPartition, Kept]) -> None:
        next_ = {key: each.next for key, each in kept.items()}
        ends: dict[TopicPartition, int] | None = None
        if self._settings.until_end:

            def latest() -> dict[TopicPartition, int]:
                return list_offsets(cluster, list(next_), LATEST, isolation=READ_COMMITTED)

            ends = await trio.to_thread.run_sync(latest)
        self._say("info", "apply.reading", name=self._settings.name, topics=",".join(self._settings.topics))
        while ends is None or any(next_[key] < ends[key] for key in next_):

            def ask() -> dict[TopicPartition, PartitionData]:
                return fetch(cluster, next_, wait_ms=_WAIT_MS, isolation=READ_COMMITTED)

            told = await trio.to_thread.run_sync(ask)
            for key, part in told.items():
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise FinalError(_LOST.format(*key, next_[key], "another place"))
                check(part.error_code, f"Fetch of {key[0]}-{key[1]}")
                for record, after in records_of(part, next_[key]):
                    if record is not None:
                        await session.take(key, record)
                    next_[key] = after
                await session.end(key, next_[key])

    def _count(self, rows: int) -> None:
        self.rows += rows


_LOST = (
    "{0}-{1} goes on at offset {2}, and the topic begins at {3}: the records in between are deleted (retention), so "
    "the target would miss them; copy the tables again, under another --name"
)


class _Session:
    """One connection's transactions."""

    def __init__(
        self,
        settings: Settings,
        chosen: Chosen,
        connection: Connection,
        positions: Positions,
        kept: dict[TopicPartition, Kept],
        count: Callable[[int], None],
        say: Say,
    ) -> None:
        self._settings, self._chosen, self._connection, self._positions = settings, chosen, connection, positions
        self._count, self._say = count, say
        self._written = {key: each.next for key, each in kept.items()}
        self._pending = {key: each.pending for key, each in kept.items()}
        self._partitions = {topic: sum(t == topic for t, _ in kept) for topic, _ in kept}
        self._tables: dict[tuple[str, str], Table] = {}
        self._parts = {key: Parts() for key in kept}
        self._ops: list[_Op] = []
        self._size = 0
        self._checks_keys = True

    async def take(self, key: TopicPartition, record: Record) -> None:
        """Apply a record, or collect it for a later statement. Raises FinalError."""
        copied = any(name == SNAPSHOT for name, _ in record.headers)
        parts = self._parts[key]
        first = record.offset if parts.first is None else parts.first
        try:
            whole = parts.joined(record)
            if whole is None:
                return
            asked = asked_of(whole.value, copied=copied)
            if asked is None or not self._is_wanted(asked):
                return
            if asked.cut:
                raise BadMessageError(asked.cut)
            if isinstance(asked, Ddl):
                await self._flush(key, first)
                await self._statement(key, first, record.offset + 1, asked)
                return
        except BadMessageError as error:
            await self._flush(key, first)
            raise FinalError(f"{key[0]}-{key[1]}, offset {first}: {error}") from None
        self._ops.append(_Op(asked, copied, first))
        self._size += len(whole.value or b"")
        if len(self._ops) >= BATCH_ROWS or self._size >= BATCH_BYTES:
            await self._flush(key, record.offset + 1)

    async def end(self, key: TopicPartition, after: int) -> None:
        """Tell the session that the partition has no more records for now."""
        if self._ops:
            first = self._parts[key].first
            await self._flush(key, after if first is None else first)

    def _is_wanted(self, asked: Asked) -> bool:
        """Whether this change is to be applied. Raises BadMessageError."""
        if isinstance(asked, Ddl):
            return self._chosen.has_statement(tables_of(asked.sql, asked.database) or [], asked.database)
        if asked.database.lower() in SYSTEM:
            raise BadMessageError(f"a change of {asked.database}.{asked.table}, which is a table of the server's own")
        return self._chosen.has(asked.database, asked.table)

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def _flush(self, key: TopicPartition, after: int) -> None:
        """Write a partition's collected changes and its new position in one transaction; in several if it is slow."""
        before = self._written[key]
        if not self._ops and before == after:
            return
        ops, self._ops, self._size = self._ops, [], 0
        at = 0
        while True:
            began, done = trio.current_time(), at
            await self._connection.execute("START TRANSACTION")
            while at < len(ops) and trio.current_time() - began < _TRANSACTION_SECONDS:
                at = await self._apply_some(key, ops, at)
            place = after if at == len(ops) else ops[at].offset
            await self._positions.move(*key, self._written[key], place)
            await self._connection.execute("COMMIT")
            self._written[key] = place
            self._count(at - done)
            if at == len(ops):
                return

    async def _check_keys(self, checked: bool) -> None:
        await self._connection.execute(f"SET SESSION foreign_key_checks = {int(checked)}")
        self._checks_keys = checked

    async def _apply_some(self, key: TopicPartition, ops: list[_Op], at: int) -> int:
        """Apply the first changes that fit one statement, and return the index after them."""
        first = ops[at]
        if first.copied == self._checks_keys:  # a session's checks may change within a transaction
            await self._check_keys(not first.copied)
        try:
            table = await self._table(first.asked.database, first.asked.table)
            if isinstance(first.asked, Emptied):
                await self._connection.execute(table.emptied())
                return at + 1
            before, after = _images(first.asked, table)
            if before is not None and after is not None:
                sql = table.updated(before, after)
                if sql is not None:
                    await self._found(key, first, table, await self._connection.execute(sql), 1)
                return at + 1
            end = at + 1
            rows = [before or after or []]
            size = len(rows[0])
            most = _STATEMENT_ROWS if after is not None or table.has_key else 1
            while end < len(ops) and len(rows) < most and size < _STATEMENT_BYTES and _alike(first, ops[end]):
                images = _images(ops[end].asked, table)
                rows.append(images[0] or images[1] or [])
                size += sum(map(len, rows[-1]))
                end += 1
            sql = table.inserted(rows) if after is not None else table.deleted(rows)
            await self._found(key, first, table, await self._connection.execute(sql), len(rows))
            return end
        except (BadMessageError, UnicodeEncodeError) as error:
            raise FinalError(f"{key[0]}-{key[1]}, offset {first.offset}: {error}") from None
        except ServerError as error:
            if error.code in _AGAIN:
                raise
            where = f"{key[0]}-{key[1]}, from offset {first.offset} on"
            raise FinalError(f"{where}: {self._connection.source} refuses: {error}{_remedy(error)}") from None

    async def _found(self, key: TopicPartition, op: _Op, table: Table, found: int, expected: int) -> None:
        if found != expected:
            raise FinalError(
                f"{key[0]}-{key[1]}, from offset {op.offset} on: {table.told} does not have the row(s) that changed "
                f"({found} of {expected} found): the target is not a copy of what the topic begins with, or another "
                f"client writes to it"
            )

    async def _table(self, database: str, name: str) -> Table:
        known = self._tables.get((database, name))
        if known is None:
            columns = await known_columns(self._connection, database, name)
            if not columns:
                raise BadMessageError(
                    f"the target has no table {database}.{name}: make it, or apply a topic that has DDL, with --ddl"
                )
            known = self._tables[database, name] = Table(database, name, columns)
        return known

    # --- statements ---------------------------------------------------------------------------------------------------

    async def _statement(self, key: TopicPartition, offset: int, after: int, asked: Ddl) -> None:
        verdict = judged(asked.sql, asked.database)
        told = f"{key[0]}-{key[1]}, offset {offset}"
        if verdict.refused:
            raise FinalError(f"{told}: this statement is not run, as {verdict.reason}: {asked.sql[:200]!r}{_SKIP}")
        if verdict.run and not self._settings.ddl:
            raise FinalError(f"{told}: a statement comes, and --ddl was not given: {asked.sql[:200]!r}{_SKIP}")
        if verdict.run and self._partitions[key[0]] > 1:
            raise FinalError(
                f"{told}: a statement comes in a topic of several partitions, so it is unknown which rows come before "
                f"it: subscribe with --partitions 1: {asked.sql[:200]!r}"
            )
        if not verdict.run:
            self._say("warning", "apply.left.out", place=told, reason=verdict.reason, statement=asked.sql[:200])
        elif self._pending[key] in (None, now := await fingerprint(self._connection, verdict)):
            await self._positions.mark(*key, offset, now)
            await self._run(told, asked, verdict)
        self._pending[key] = None
        await self._positions.move(*key, offset, after)
        self._written[key] = after
        self._tables.clear()

    async def _run(self, told: str, asked: Ddl, verdict: Judged) -> None:
        await self._check_keys(False)  # tables come in any order, and the source has checked their keys
        connection = self._connection
        connection.patience = _DDL_SECONDS
        try:
            if asked.database and not verdict.database:
                await connection.execute(f"USE {name_quoted(asked.database)}")
            await connection.execute(_STATEMENTS_MODE)
            await connection.execute(asked.sql)
            await connection.execute(_ROWS_MODE)
        except ServerError as error:
            if error.code in _AGAIN:
                raise
            raise FinalError(f"{told}: {connection.source} refuses {asked.sql[:200]!r}: {error}{_SKIP}") from None
        finally:
            connection.patience = QUERY_SECONDS
        self._say("info", "apply.statement", place=told, statement=asked.sql[:200])


def _images(asked: Row | Emptied, table: Table) -> tuple[Image | None, Image | None]:
    """A row's literals before and after the change. Raises BadMessageError."""
    assert isinstance(asked, Row)
    before, after = (
        None if image is None else literals_of(image, table.columns, table.told)
        for image in (asked.before, asked.after)
    )
    return before, after


def _alike(first: _Op, other: _Op) -> bool:
    """Whether one statement can contain both."""
    one, two = first.asked, other.asked
    return (
        isinstance(one, Row)
        and isinstance(two, Row)
        and (one.database, one.table, one.before is None, one.after is None, first.copied)
        == (two.database, two.table, two.before is None, two.after is None, other.copied)
    )


def _remedy(error: ServerError) -> str:
    if error.code in (1451, 1452):
        return (
            ": topics of tables come in no order of their foreign keys, so apply one topic with all of these tables "
            "(--topic-per database, or server)"
        )
    if error.code == 1062:
        return ": the row is there already, so the target is not a copy of what the topic begins with"
    if error.code == 1153:
        return ": raise max_allowed_packet on the target"
    return ""


_SKIP = (
    "; to go on without it, set `next` one higher in the target's table barnabas_apply.positions, and `pending` to NULL"
)
