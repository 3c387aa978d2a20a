"""The rows of a consumer that replays the messages of tables, and the rows of the server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import trio

from barnabas.connect.binlog.selected import SESSION, Selected
from barnabas.connect.binlog.server import Server, known_columns
from compat_tests.binlog.mariadb import MariaDb

Rows = Counter[tuple[str, ...]]


def replayed(messages: Iterable[dict[str, Any]]) -> dict[str, Rows]:
    """The rows of each table after `tdsql` messages. Asserts that each update and delete finds its row."""
    found: dict[str, Rows] = {}
    for each in messages:
        rows = found.setdefault(each["table"], Counter())
        if each["eventtypestr"] == "query":
            assert re.match("TRUNCATE TABLE ", each["sql"])
            rows.clear()
            continue
        if each["where"]:
            assert rows[tuple(each["where"])] > 0, each
            rows[tuple(each["where"])] -= 1
        if each["field"]:
            rows[tuple(each["field"])] += 1
    return {table: +rows for table, rows in found.items()}


def rows_of(server: MariaDb, database: str, table: str) -> Rows:
    """The rows of a table, as literals."""

    async def ask() -> Rows:
        asked = Server(server.reader(), 4242, any_metadata=True)
        async with await asked.open() as connection:
            selected = Selected(database, table, await known_columns(connection, database, table))
            for statement in SESSION:
                await connection.query(statement)
            sql = selected.sql(None, 10_000_000)
            return Counter(
                [tuple(selected.layout.literals(selected.row(raw))) async for raw in connection.raw_rows(sql)]
            )

    return trio.run(ask)
