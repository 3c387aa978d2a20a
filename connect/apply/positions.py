"""How far the target is: our own table there, updated in the same transaction as the rows.

Rows and position are therefore stored together or not at all. DDL commits by itself, so before it a mark is stored: a
fingerprint of the tables it concerns. A later run that finds the mark compares it with the tables: if they differ, the
statement was run.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import NamedTuple

from barnabas.connect.apply.ddl import Judged
from barnabas.connect.mysql.connection import Connection, name_quoted, quoted
from barnabas.connect.mysql.packets import ServerError

_TABLE = "`barnabas_apply`.`positions`"
_MAKE = (
    "CREATE DATABASE IF NOT EXISTS `barnabas_apply`",
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (name VARCHAR(100) NOT NULL, topic VARCHAR(249) NOT NULL, part INT NOT NULL, "
    "topic_id CHAR(22) NOT NULL, next BIGINT NOT NULL, pending BIGINT NULL, PRIMARY KEY (name, topic, part)) "
    "ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin",
)
_NOT_THERE = frozenset({1146, 1049, 1347})


class OtherApplierError(Exception):
    """Another process applies under the same name."""


class Kept(NamedTuple):
    """The next offset of a partition, and the mark of a statement that may already have been run."""

    topic_id: str
    next: int
    pending: int | None


class Positions:
    """The positions of one name. Raises ServerError, LostError."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self._name = connection, name

    async def begin(self, wait: int) -> None:
        """Take over the name for as long as the connection lives. Any earlier process of this name has ended by then.

        `wait`: how many seconds to wait for it to end.
        Raises OtherApplierError.
        """
        lock = "barnabas." + hashlib.sha256(self._name.encode()).hexdigest()[:40]
        ((got,),) = await self._connection.query(f"SELECT GET_LOCK({quoted(lock)}, {wait})")
        if got != "1":
            raise OtherApplierError(f"another process applies to {self._connection.source} as {self._name}")
        for statement in _MAKE:
            await self._connection.execute(statement)

    async def all(self) -> dict[tuple[str, int], Kept]:
        rows = await self._connection.query(
            f"SELECT topic, part, topic_id, next, pending FROM {_TABLE} WHERE name = {quoted(self._name)}"
        )
        return {
            (topic or "", int(part or 0)): Kept(topic_id or "", int(after or 0), None if mark is None else int(mark))
            for topic, part, topic_id, after, mark in rows
        }

    async def add(self, topic: str, part: int, topic_id: str, after: int) -> None:
        values = f"{quoted(self._name)}, {quoted(topic)}, {part}, {quoted(topic_id)}, {after}, NULL"
        await self._connection.execute(f"INSERT INTO {_TABLE} VALUES ({values})")

    async def move(self, topic: str, part: int, before: int, after: int) -> None:
        """Move a position in the open transaction. Raises OtherApplierError."""
        await self._set(topic, part, before, f"next = {after}, pending = NULL")

    async def mark(self, topic: str, part: int, at: int, fingerprint: int) -> None:
        """Store the mark of a statement that is about to be run. Raises OtherApplierError."""
        await self._set(topic, part, at, f"pending = {fingerprint}")

    async def _set(self, topic: str, part: int, before: int, change: str) -> None:
        where = f"name = {quoted(self._name)} AND topic = {quoted(topic)} AND part = {part} AND next = {before}"
        if await self._connection.execute(f"UPDATE {_TABLE} SET {change} WHERE {where}") != 1:
            raise OtherApplierError(f"another process has changed the positions of {self._name} in {_TABLE}")


async def fingerprint(connection: Connection, judged: Judged) -> int:
    """A number that shows whether a statement was run: a checksum of what the statement concerns, as it is now."""
    asked = [f"TABLE {name_quoted(database)}.{name_quoted(table)}" for database, table in judged.tables if table]
    if judged.database:
        asked.append(f"DATABASE {name_quoted(judged.database)}")
    found = []
    for each in asked:
        try:
            found.append(repr(await connection.query(f"SHOW CREATE {each}")))
        except ServerError as error:
            if error.code not in _NOT_THERE:
                raise
            found.append("")
    return zlib.crc32("\n".join(found).encode("utf-8", "surrogateescape"))
