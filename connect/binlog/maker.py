"""What a subscription writes, without I/O: changes become messages, in chunks that each have an end position.

The messages of a group are numbered from 1, whether they are chosen or not. The number therefore identifies a message
whatever the options are, and a reader that starts a group again skips those already written.
"""

from __future__ import annotations

import msgspec
import trio

from barnabas.connect.binlog.ddl import is_drop, renames_of, tables_of
from barnabas.connect.binlog.events import DELETE, WRITE
from barnabas.connect.binlog.masks import Masks
from barnabas.connect.binlog.messages import Format, Group, key_of
from barnabas.connect.binlog.naming import Chosen, Topics
from barnabas.connect.binlog.place import Copied, Position, Table
from barnabas.connect.binlog.reader import Begin, Change, End, Item, Place, Statement
from barnabas.connect.binlog.server import RefusedError, Server
from barnabas.connect.binlog.sink import Header, Out
from barnabas.connect.mysql.connection import name_quoted

CHUNK_BYTES, CHUNK_SECONDS = 1 << 20, 0.05
_IDLE_SECONDS = 10.0
_ACCOUNTS = ("user", "role", "password")
_ACCOUNT_VERBS = frozenset({"grant", "revoke"})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription's options. For a new one, `start` is `now`, `oldest`, a GTID position of MariaDB or a set of
    MySQL; `snapshot` is `never`, or `initial` to copy the existing rows first.
    """

    name: str
    format: str = "tdsql"
    per: str = "table"
    prefix: str = ""
    tables: tuple[str, ...] = ()
    start: str = "now"
    partitions: int = 1
    configs: dict[str, str] = {}
    snapshot: str = "never"
    masks: tuple[str, ...] = ()
    mask_key: bytes = b""


def identity(name: str, gtid: str, index: int) -> tuple[Header, ...]:
    """The headers that identify a message."""
    return (
        ("barnabas.source", name.encode()),
        ("barnabas.gtid", gtid.encode()),
        ("barnabas.index", b"%d" % index),
    )


class Chunk(msgspec.Struct):
    """Messages, and the position after them."""

    messages: list[Out]
    position: Position


class Maker:
    """Collects the messages of items, and knows the position after them."""

    def __init__(
        self,
        server: Server,
        settings: Settings,
        shape: Format,
        topics: Topics,
        chosen: Chosen,
        masks: Masks,
        position: Position,
    ) -> None:
        self._server, self._settings, self._format = server, settings, shape
        self._topics, self._chosen, self._masks = topics, chosen, masks
        self._position = position
        self._done = position.index if position.group else 0
        self._messages: list[Out] = []
        self._group: Group | None = None
        self._begin: Begin | None = None
        self._index = 0
        self._made = position.made
        self._place = position.place
        self._moved = False
        self._has_ended = False  # whether a group has ended of which messages were already written
        self._since = self._now = 0.0
        self._idle_since = trio.current_time()
        self.size = 0

    @property
    def place(self) -> Place:
        """The place after the last group that has ended."""
        return self._place

    # --- chunks -------------------------------------------------------------------------------------------------------

    def wait(self, now: float) -> float:
        """How many seconds to wait for the next event."""
        if self._messages or self._has_ended:
            return max(self._since + CHUNK_SECONDS - now, 0)
        if self._moved:
            return max(self._idle_since + _IDLE_SECONDS - now, 0)
        return float("inf")

    def chunk(self) -> Chunk:
        """The collected messages, and the position after them."""
        begin, position = self._begin, self._position
        self._position = msgspec.structs.replace(
            position,
            place=self._place,
            group=begin.gtid if begin is not None else "",
            index=self._index if begin is not None else 0,
            made=self._made,
            messages=position.messages + len(self._messages),
        )
        found = Chunk(self._messages, self._position)
        self._messages, self.size, self._moved, self._has_ended = [], 0, False, False
        self._idle_since = trio.current_time()
        return found

    def _add(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        group = self._group
        assert group is not None
        if not self._messages:
            self._since = self._now
        headers = identity(self._settings.name, group.gtid, self._index)
        self._messages.append(Out(topic, key, value, headers, group.timestamp * 1000))
        self.size += len(value or b"") + len(key or b"") + 100

    # --- items --------------------------------------------------------------------------------------------------------

    def take(self, item: Item, now: float, known: list[tuple[bool, ...]] | None = None) -> None:
        """Collect the messages of an item. Each has a number in its group, from 1, whether it is chosen or not.

        `known` says for each image of a change whether the topics have that row. A row that becomes one of them is
        inserted; a row that stops being one is deleted.
        """
        self._now = now
        if isinstance(item, Change):
            self._change(item, known)
        elif isinstance(item, Begin):
            self._start(item)
        elif isinstance(item, End):
            self._end(item)
        else:
            self._statement(item)

    def _next(self) -> bool:
        """Count a message, and return whether it must still be written."""
        self._index += 1
        return self._index > self._done

    def _start(self, begin: Begin) -> None:
        if self._done and begin.gtid != self._position.group:
            raise RefusedError(
                f"the binary log goes on with {begin.gtid} where {self._position.group} was begun: its history is "
                "another one, so start again with --start now, or a new name (--name)"
            )
        source = self._server.source
        self._begin, self._index, self._made = begin, 0, begin.timestamp
        file = begin.before.file
        self._group = Group(
            begin.gtid, begin.timestamp, source.host, source.port, self._settings.name, file, begin.start
        )
        self._position = msgspec.structs.replace(
            self._position, file=file, start=begin.start, fingerprint=begin.fingerprint
        )
        if self._format.frames and self._next() and (topic := self._topics.frames):
            value = self._format.begin(self._group, self._index)
            if value is not None:
                self._add(topic, None, value)

    def _end(self, end: End) -> None:
        assert self._group is not None
        if self._format.frames and self._next() and (topic := self._topics.frames):
            value = self._format.end(self._group, self._index, end.xid)
            if value is not None:
                self._add(topic, None, value)
        if self._position.group:
            self._has_ended = True
            if not self._messages:
                self._since = self._now
        self._begin, self._group = None, None
        self._place, self._made, self._done = end.after, end.timestamp, 0
        self._moved = True

    def _statement(self, statement: Statement) -> None:
        assert self._group is not None
        if not self._next() or _is_about_accounts(statement.sql):
            return
        sql = self._of_what_is_copied(statement)
        if not sql:
            return
        statement = statement._replace(sql=sql)
        named = tables_of(sql, statement.database) or []
        if not self._chosen.has_statement(named, statement.database):
            return
        databases = dict.fromkeys(database for database, _ in named) or (statement.database,)
        topics = dict.fromkeys(self._topics.statements(database) for database in databases)
        for topic in filter(None, topics):
            self._add(topic, None, self._format.statement(self._group, self._index, statement))

    def _change(self, change: Change, known: list[tuple[bool, ...]] | None) -> None:
        layout = change.layout
        assert self._group is not None
        table = layout.database, layout.table
        copied = self._position.copied
        if not self._chosen.has(*table) or (copied is not None and not copied.has(table)):
            self._index += len(change.rows)
            return
        topic = self._topics.of(*table)
        if self._masks:
            layout, shown = self._masks.masked(layout)
            change = change._replace(layout=layout, rows=[tuple(map(shown, images)) for images in change.rows])
        message = self._format.change(self._group, change)
        for number, images in enumerate(change.rows):
            if not self._next():
                continue
            if known is None or all(known[number]):
                self._add(topic, key_of(layout, images[-1]), message(images, self._index))
            elif any(known[number]):
                kind, image = (DELETE, images[0]) if known[number][0] else (WRITE, images[1])
                half = self._format.change(self._group, change._replace(kind=kind))
                self._add(topic, key_of(layout, image), half((image,), self._index))

    def judges(self, change: Change) -> bool:
        """Whether a part of the change's table is copied, so that someone must say which rows are."""
        copied = self._position.copied
        return (
            copied is not None
            and copied.after is not None
            and copied.has_part((change.layout.database, change.layout.table))
        )

    def _of_what_is_copied(self, statement: Statement) -> str:
        """The statement, reduced to already copied tables. The later copies of other tables include its effect."""
        sql, copied = statement.sql, self._position.copied
        if copied is None:
            return sql
        renames = renames_of(sql, statement.database)
        if renames:
            return self._renamed(sql, copied, renames)
        named = [table for table in tables_of(sql, statement.database) or [] if self._chosen.has(*table)]
        there = [table for table in named if copied.has(table)]
        if len(there) == len(named):
            return sql
        # of the tables that the statement drops, only those that are copied
        return f"DROP TABLE IF EXISTS {', '.join(map(_quoted, there))}" if there and is_drop(sql) else ""

    def _renamed(self, sql: str, copied: Copied, renames: list[tuple[Table, Table]]) -> str:
        """The part of a renaming statement that concerns copied tables. Also updates which tables are copied."""
        there = []
        for before, behind in renames:
            whole = self._chosen.has(*before) and copied.has_whole(before)
            if whole and copied.has_part(behind):
                raise RefusedError(
                    f"{'.'.join(before)} was renamed to {'.'.join(behind)}, another table of which a part was copied: "
                    "start again with --snapshot initial and a new name (--name)"
                )
            if whole:
                there.append((before, behind))
            if self._chosen.has(*before) or self._chosen.has(*behind):
                copied = copied.renamed(before, behind, whole=whole)
        self._position = msgspec.structs.replace(self._position, copied=copied)
        if len(there) == len(renames):
            return sql
        pairs = [f"{_quoted(before)} TO {_quoted(behind)}" for before, behind in there]
        return f"RENAME TABLE {', '.join(pairs)}" if pairs else ""


def _quoted(table: Table) -> str:
    return ".".join(map(name_quoted, table))


def _is_about_accounts(sql: str) -> bool:
    """Whether a statement concerns accounts: it contains passwords, which no subscriber may read."""
    words = sql.lower().split(None, 4)
    if not words:
        return False
    return words[0] in _ACCOUNT_VERBS or (
        words[0] in ("create", "alter", "drop", "rename", "set") and any(word in _ACCOUNTS for word in words[1:4])
    )
