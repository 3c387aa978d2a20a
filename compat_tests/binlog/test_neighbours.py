"""Every type of column before and after every other one: a table map's metadata of one column does not shift another.

The types form a ring; in a table of distance D, each column's type is D places after the one before. The number of
types is prime, so over all distances each type is followed by each other one.
"""

from __future__ import annotations

import itertools

import pytest
import trio

from barnabas.connect.binlog.events import DELETE, UPDATE, WRITE
from barnabas.connect.binlog.selected import SESSION as SELECTED
from barnabas.connect.binlog.selected import Selected
from barnabas.connect.binlog.server import Server, known_columns
from compat_tests.binlog.mariadb import MariaDb
from compat_tests.binlog.reading import changes, place_of
from compat_tests.binlog.test_types import ROWS, SESSION

_LARGE = frozenset({"LONGBLOB", "LONGTEXT", "BLOB COMPRESSED"})


def is_prime(number: int) -> bool:
    return all(number % by for by in range(2, int(number**0.5) + 1))


def kinds() -> dict[str, tuple[str, str]]:
    """A prime number of types, with two values of each, which may be equal."""
    found = {kind: [value for of, value in ROWS if of == kind] for kind in dict.fromkeys(kind for kind, _ in ROWS)}
    chosen = {kind: (of[0], of[-1]) for kind, of in found.items() if kind not in _LARGE}
    count = next(number for number in itertools.count(len(chosen)) if is_prime(number))
    for number in range(count - len(chosen)):
        chosen[f"VARCHAR({number + 1})"] = ("'a'", "'b'")
    return chosen


KINDS = kinds()


def ring(distance: int) -> list[str]:
    """The types in the order of a distance."""
    names = list(KINDS)
    return [names[number * distance % len(names)] for number in range(len(names))]


def made(distance: int) -> str:
    columns = [f"c{number} {kind}" for number, kind in enumerate(ring(distance))]
    return f"CREATE TABLE t{distance} (id INT PRIMARY KEY, {', '.join(columns)}) ENGINE=MyISAM"


def statements(distance: int) -> list[str]:
    first, second = ([KINDS[kind][each] for kind in ring(distance)] for each in (0, 1))
    changed = ", ".join(f"c{number} = {value}" for number, value in enumerate(second))
    half = [value if number % 2 else "NULL" for number, value in enumerate(second)]
    return [
        f"INSERT INTO t{distance} VALUES (1, {', '.join(first)}), (2, {', '.join(half)})",
        f"UPDATE t{distance} SET {changed} WHERE id = 1",
        f"DELETE FROM t{distance}",
    ]


def expected(mariadb: MariaDb, database: str) -> dict[str, list[str]]:
    """The literals of each type's values, as a SELECT returns them from a table for each type."""

    async def ask() -> dict[str, list[str]]:
        found = {}
        asked = Server(mariadb.reader(), 4242, any_metadata=True)
        async with await asked.open() as connection:
            for statement in SELECTED:
                await connection.query(statement)
            for number, kind in enumerate(KINDS):
                table = Selected(database, f"k{number}", await known_columns(connection, database, f"k{number}"))
                rows = [table.row(raw) async for raw in connection.raw_rows(table.sql(None, 10))]
                found[kind] = [table.layout.literals(row)[1] for row in rows]
        return found

    return trio.run(ask)


def images(literals: dict[str, list[str]], distance: int) -> list[tuple[int, list[list[str]]]]:
    """The expected events of a table's statements."""
    first, second = ([literals[kind][each] for kind in ring(distance)] for each in (0, 1))
    half = [value if number % 2 else "NULL" for number, value in enumerate(second)]
    one, changed, two = ["1", *first], ["1", *second], ["2", *half]
    return [(WRITE, [one]), (WRITE, [two]), (UPDATE, [one, changed]), (DELETE, [changed]), (DELETE, [two])]


_METADATA = ["FULL", *(pytest.param(other, marks=pytest.mark.long) for other in ("MINIMAL", "NO_LOG"))]


@pytest.mark.parametrize("metadata", _METADATA)
def test_every_type_beside_every_other(mariadb: MariaDb, metadata: str) -> None:
    database, distances = f"beside_{metadata}".lower(), range(1, len(KINDS))
    alone = [f"USE {database}"]
    for number, (kind, values) in enumerate(KINDS.items()):
        alone.append(f"CREATE TABLE k{number} (id INT PRIMARY KEY, v {kind})")
        alone.append(f"INSERT INTO k{number} VALUES (0, {values[0]}), (1, {values[1]})")
    mariadb.sql(f"SET GLOBAL binlog_row_metadata = {metadata}", f"CREATE DATABASE {database}")
    mariadb.sql(*SESSION, *alone, *map(made, distances))
    place = place_of(mariadb)
    mariadb.sql(*SESSION, f"USE {database}", *(each for distance in distances for each in statements(distance)))
    literals = expected(mariadb, database)
    unknown = {kind for kind in KINDS if "😀" in kind and metadata != "FULL"}  # not for the server's tables
    literals |= {kind: ["*", "*"] for kind in unknown}
    found: dict[str, list[tuple[int, list[list[str]]]]] = {}
    for change in changes(mariadb, place):
        names = ["", *ring(int(change.layout.table[1:]))]
        for row in change.rows:
            texts = []
            for image in map(change.layout.literals, row):
                pairs = zip(names, image, strict=True)
                texts.append(["*" if name in unknown and value != "NULL" else value for name, value in pairs])
            found.setdefault(change.layout.table, []).append((change.kind, texts))
    assert len(found) == len(distances)
    for distance in distances:
        assert found[f"t{distance}"] == images(literals, distance), ring(distance)
