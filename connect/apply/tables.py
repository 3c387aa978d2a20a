"""SQL that inserts, updates and deletes rows of a table in the target. Its literals have been checked before."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from barnabas.connect.binlog.columns import GREATEST_FLOAT
from barnabas.connect.binlog.selected import GEOMETRIES, Known
from barnabas.connect.mysql.connection import name_quoted

Image = list[str]
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_EMPTY = "''"
_MOST_BIT = len("b''") + 64
_BY_NAME = frozenset({"uuid", "inet6", "inet4"})


class Table:
    """A table as it is in the target. `columns` has all columns, including generated and invisible ones."""

    def __init__(self, database: str, name: str, columns: Sequence[Known]) -> None:
        self.columns = columns
        self.told = f"{database}.{name}"
        self._name = f"{name_quoted(database)}.{name_quoted(name)}"
        self._names = [name_quoted(column.name) for column in columns]
        self._written = [number for number, column in enumerate(columns) if not column.generated]
        self._key = [number for _, number in sorted((c.key, number) for number, c in enumerate(columns) if c.key)]
        self._insert = f"INSERT INTO {self._name} ({', '.join(self._names[n] for n in self._written)}) VALUES "

    def inserted(self, rows: Sequence[Image]) -> str:
        """One statement for many rows."""
        written = self._written
        return self._insert + ",".join(f"({','.join([row[n] for n in written])})" for row in rows)

    def updated(self, before: Image, after: Image) -> str | None:
        """One row's change as a statement; None if no written column changes."""
        names = self._names
        changes = ", ".join(f"{names[n]} = {after[n]}" for n in self._written if before[n] != after[n])
        return f"UPDATE {self._name} SET {changes} WHERE {self._where(before)}" if changes else None

    def deleted(self, rows: Sequence[Image]) -> str:
        """One statement for many rows; for a single row if the table has no primary key."""
        found = " OR ".join(f"({self._where(row)})" for row in rows) if len(rows) > 1 else self._where(rows[0])
        return f"DELETE FROM {self._name} WHERE {found}"

    def emptied(self) -> str:
        return f"DELETE FROM {self._name}"

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    def _where(self, row: Image) -> str:
        if self._key:
            found = [f"{self._names[n]} = {_compared(self.columns[n], row[n])}" for n in self._key]
            return " AND ".join(found + [each for n in self._key for each in self._members(n, row[n])])
        found = [_same(self._names[n], self.columns[n], row[n]) for n in range(len(row))]
        found += [each for n in range(len(row)) for each in self._members(n, row[n])]
        return " AND ".join(found) + " LIMIT 1"

    def _members(self, number: int, literal: str) -> list[str]:
        """Conditions that a value has exactly the members with the given text: other members may have the same text."""
        name, column = self._names[number], self.columns[number]
        if column.kind not in ("enum", "set") or not literal.startswith("'"):
            return []
        count = f"BIT_COUNT({name} + 0) = {literal.count(',') + 1 if literal != _EMPTY else 0}"
        return [_bytes_are(name, column, literal), f"{name} + 0 > 0" if column.kind == "enum" else count]


def _compared(column: Known, literal: str) -> str:
    """A literal in a form that equals the column's value and can use an index."""
    kind = column.kind
    if literal == "NULL":
        return literal
    if kind == "float" and literal[0] not in "'xb_":  # the shortest number differs from the FLOAT's value as a DOUBLE
        number = float(literal)
        return repr(struct.unpack("<f", struct.pack("<f", number))[0]) if abs(number) <= GREATEST_FLOAT else literal
    if kind == "bit" and literal.startswith("b'") and len(literal) <= _MOST_BIT:
        return str(int(literal[2:-1], 2))
    if kind in _BY_NAME:
        return f"CAST({literal} AS {kind})"
    return literal


def _bytes_are(name: str, column: Known, literal: str) -> str:
    return f"CAST({name} AS BINARY) = CAST(CONVERT({literal} USING {column.charset}) AS BINARY)"


def _same(name: str, column: Known, literal: str) -> str:
    """A condition that a column has exactly this value, whatever its collation treats as equal."""
    if literal == "NULL":
        return f"{name} IS NULL"
    if column.kind in _TEXTS:
        return _bytes_are(name, column, literal)
    if column.kind in GEOMETRIES:
        return f"HEX({name}) = HEX({literal})"
    if column.kind == "bit":
        return f"{name} + 0 = {_compared(column, literal)}"
    return f"{name} = {_compared(column, literal)}"
